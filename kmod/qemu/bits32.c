// SPDX-License-Identifier: GPL-2.0
/*
 * A program of 32 bits, without a library: calls, and system calls as libc makes them, through the
 * vdso, and by INT 80H. What it executes is another thing in each round.
 */
#define AT_NULL 0 /* <linux/auxvec.h>, <asm/auxvec.h> */
#define AT_SYSINFO 32
#define SYS_GETPID 20 /* <asm/unistd_32.h> */
#define SYS_NANOSLEEP 162

static unsigned long vdso_entry;

static long through_vdso(long number, const long *first)
{
	long result;

	asm volatile("call *%1"
		     : "=a"(result)
		     : "m"(vdso_entry), "a"(number), "b"(first), "c"(0)
		     : "memory");
	return result;
}

static long at_once(long number)
{
	long result;

	asm volatile("int $0x80" : "=a"(result) : "a"(number) : "memory");
	return result;
}

/* A path through the program for each number. */
static __attribute__((noinline)) unsigned int branch_by(unsigned int number)
{
	if (number < 2)
		return at_once(SYS_GETPID);
	return branch_by(number / 2) + (number & 1 ? branch_by(number / 8) : number);
}

__attribute__((used)) void begin(const unsigned long *stack)
{
	static const long millisecond[2] = { 0, 1000000 };
	const unsigned long *at = stack + 1 + stack[0] + 1;
	volatile unsigned int sum = 0;

	while (*at++)
		;
	for (; at[0] != AT_NULL; at += 2)
		if (at[0] == AT_SYSINFO)
			vdso_entry = at[1];
	for (unsigned int round = 0;; round++) {
		sum += branch_by(round);
		through_vdso(SYS_NANOSLEEP, millisecond);
	}
}

asm(".globl _start\n_start: mov %esp, %eax\n\tpush %eax\n\tcall begin");

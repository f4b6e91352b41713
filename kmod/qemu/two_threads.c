// SPDX-License-Identifier: GPL-2.0
/*
 * Two threads that take turns, without any library, so that all of its code is two hundred bytes:
 * what the decoder's test of a core's archive was recorded from (record_in_guest.py).
 * gcc -Os -static -nostdlib -no-pie -fno-stack-protector -fno-asynchronous-unwind-tables
 *     -Wl,-z,norelro,-z,noseparate-code
 */
#define CLONE_THREAD_OF_OURS 0x50f00	/* VM, FS, FILES, SIGHAND, THREAD, SYSVSEM */
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1

static volatile int turn;
static char stack[4096] __attribute__((used, aligned(16)));

static long syscall6(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return result;
}

__attribute__((noinline)) static void wait_for(int mine)
{
	while (turn != mine)
		syscall6(202, (long)&turn, FUTEX_WAIT, !mine, 0);
}

__attribute__((noinline)) static void hand_over(int to)
{
	turn = to;
	syscall6(202, (long)&turn, FUTEX_WAKE, 1, 0);
}

__attribute__((used)) static void second(void)
{
	for (;;) {
		wait_for(1);
		hand_over(0);
	}
}

__attribute__((naked)) void _start(void)
{
	__asm__("mov $56, %%eax\n\tmov %0, %%edi\n\tlea stack+4096(%%rip), %%rsi\n\t"
		"xor %%edx, %%edx\n\txor %%r10d, %%r10d\n\txor %%r8d, %%r8d\n\tsyscall\n\t"
		"test %%eax, %%eax\n\tjnz first\n\tcall second\n\t" : : "i"(CLONE_THREAD_OF_OURS));
}

__attribute__((used)) void first(void)
{
	const long pause[2] = { 0, 2000000 };

	for (;;) {
		hand_over(1);
		wait_for(0);
		syscall6(35, (long)pause, 0, 0, 0);
	}
}

/* longjmp out of depth, calls deeper than the return stack, returns to where no call came from. */
#include "program.h"

#include <setjmp.h>

static volatile unsigned sum;

static __attribute__((noinline)) unsigned descend(jmp_buf out, unsigned depth, unsigned leave_at)
{
    if (depth == leave_at)
        longjmp(out, (int)depth + 1);
    if (depth == 200)
        return 1;
    return descend(out, depth + 1, leave_at) + depth;
}

/* Reads its own address with a call that is never returned from, and goes to an address that it pushed. */
static __attribute__((noinline)) unsigned odd_returns(unsigned n)
{
    unsigned result = n;
    __asm__ volatile("call 1f\n"
                     "1: pop %%rax\n"
                     "lea 2f(%%rip), %%rax\n"
                     "push %%rax\n"
                     "testl $1, %0\n"
                     "jz 3f\n"
                     "addl $5, %0\n"
                     "3: ret\n"
                     "int3\n"
                     "2: addl $3, %0\n"
                     : "+r"(result)
                     :
                     : "rax", "cc", "memory");
    return result;
}

void jump_out(void)
{
    for (volatile unsigned n = 0; n < 50; n++) {
        jmp_buf out;
        int from = setjmp(out);
        sum += from ? (unsigned)from : descend(out, 0, n * 5);
        sum += odd_returns(n);
    }
}

/* Signals that an instruction raises in its own thread: repaired, skipped, jumped out of, with siginfo and without. */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static __thread sigjmp_buf out;
static volatile unsigned sum;
static char *page;
static volatile unsigned *volatile nowhere;
static void (*volatile no_code)(void) = (void (*)(void))0x123456000;

static void jump(int number)
{
    sum += compute((unsigned)number, 3);
    siglongjmp(out, number);
}

static void repair(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

static void skip_two(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void count(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    sum++;
}

static void on(int number, void (*plain)(int), void (*full)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_flags = SA_NODEFER | (full ? SA_SIGINFO : 0)};
    if (full)
        action.sa_sigaction = full;
    else
        action.sa_handler = plain;
    sigaction(number, &action, NULL);
}

static void memory_faults(void)
{
    on(SIGSEGV, jump, NULL);
    if (!sigsetjmp(out, 1))
        sum += *nowhere;
    if (!sigsetjmp(out, 1))
        no_code();
    if (!sigsetjmp(out, 1))
        for (volatile char *at = page; *at != 2; at++) /* the fault is in a loop's first block */
            *at = 1;
    on(SIGSEGV, NULL, repair);
    mprotect(page, 4096, PROT_NONE);
    page[17] = 1;
    page[18] = 2;
    mprotect(page, 4096, PROT_NONE);
    memset(page + 4096, 1, 1);
    mprotect(page, 4096, PROT_READ);
    __asm__ volatile("rep stosb" : : "D"(page), "c"(4096l), "a"(7) : "memory");
}

static void arithmetic_faults(void)
{
    volatile int zero = 0;
    on(SIGFPE, jump, NULL);
    if (!sigsetjmp(out, 1))
        sum += (unsigned)(1 / zero);
}

static void instruction_faults(void)
{
    on(SIGILL, NULL, skip_two);
    __asm__ volatile("ud2");
    on(SIGTRAP, NULL, count);
    __asm__ volatile("int3");
    raise(SIGTRAP);
}

void catch_faults(void)
{
    if (!page) {
        page = mmap(NULL, 12288, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(page, 8192, PROT_READ | PROT_WRITE);
    }
    memory_faults();
    arithmetic_faults();
    instruction_faults();
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    sum += compute(sum, 100);
}

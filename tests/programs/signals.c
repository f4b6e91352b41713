/* Signals from elsewhere: into computing loops, into handlers, two at once, on another stack, out of which one jumps. */
#include "program.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile unsigned sum;
static sigjmp_buf out;
static volatile sig_atomic_t may_jump;

static void plain(int number)
{
    sum += compute((unsigned)number, 20);
}

static void nested(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    sum += compute((unsigned)number, 10);
    raise(SIGUSR1);
    sum += compute((unsigned)number, 10);
}

static void two_at_once(int number)
{
    sigset_t both, old;
    (void)number;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    sigprocmask(SIG_BLOCK, &both, &old);
    raise(SIGUSR1);
    raise(SIGUSR2);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void leap(int number)
{
    (void)number;
    if (!may_jump)
        return;
    may_jump = 0;
    siglongjmp(out, 1);
}

static void on(int number, void *handler, int flags)
{
    struct sigaction action = {.sa_flags = flags};
    action.sa_handler = (void (*)(int))handler;
    sigaction(number, &action, NULL);
}

static void timer(int number, long ns)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    timer_t created;
    timer_create(CLOCK_MONOTONIC, &event, &created);
    timer_settime(created, 0, &(struct itimerspec){{0, ns}, {0, ns}}, NULL);
}

static void prepare(void)
{
    stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&other, NULL);
    on(SIGUSR1, plain, 0);
    on(SIGUSR2, nested, SA_SIGINFO | SA_ONSTACK);
    on(SIGALRM, two_at_once, SA_ONSTACK);
    on(SIGPROF, nested, SA_SIGINFO);
    /* Not SA_NODEFER: on a slow machine the next one is here before this one is out, until there is no stack left. */
    on(SIGVTALRM, leap, 0);
    timer(SIGALRM, 1100000);
    timer(SIGPROF, 1300000);
    timer(SIGUSR1, 700000);
    timer(SIGVTALRM, 1700000);
}

void meet_signals(void)
{
    static int prepared;
    if (!prepared++)
        prepare();
    sigsetjmp(out, 1);
    may_jump = 1;
    sum += compute(sum, 20000);
    char from[512], to[512];
    memset(from, (int)sum, sizeof from);
    for (int i = 0; i < 100; i++) {
        void *source = from, *target = to;
        long size = sizeof from;
        __asm__ volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(size) : : "memory");
    }
    may_jump = 0;
}

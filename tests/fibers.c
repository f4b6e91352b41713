/* Fibers of the same functions: each request waits once, and nothing that returns tells one fiber from another. */
#include <stdlib.h>
#include <ucontext.h>

#define FIBERS 4

static ucontext_t fibers[FIBERS], begun;
static int running;
static volatile long sum;

__attribute__((noinline)) void spin(int turns)
{
    for (int i = 0; i < turns; i++)
        sum += i;
}

__attribute__((noinline)) void wait_for_others(void)
{
    int from = running;
    running = (from + 1) % FIBERS;
    swapcontext(&fibers[from], &fibers[running]);
    sum++;
}

__attribute__((noinline)) void request(int fiber)
{
    spin(1000 * (fiber + 1));
    wait_for_others();
    spin(500);
}

static void serve(int fiber)
{
    for (;;)
        request(fiber);
}

int main(void)
{
    for (int fiber = 0; fiber < FIBERS; fiber++) {
        getcontext(&fibers[fiber]);
        fibers[fiber].uc_stack.ss_sp = malloc(1 << 16);
        fibers[fiber].uc_stack.ss_size = 1 << 16;
        makecontext(&fibers[fiber], (void (*)(void))serve, 1, fiber);
    }
    swapcontext(&begun, &fibers[0]);
}

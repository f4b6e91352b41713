/* blocks THREADS: threads that run the same functions without a system call, each on ways of its own; main waits.
   Linked without shared libraries at fixed addresses, so that an address is the one in the file. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned sum;

__attribute__((noinline)) static unsigned chosen(unsigned which, unsigned value)
{
    switch (which % 8) {
    case 0: return value + 1;
    case 1: return value * 3;
    case 2: return value ^ value >> 3;
    case 3: return value & 1 ? value - 7 : value << 1;
    case 4: return value % 11;
    case 5: return ~value;
    case 6: return value > 1000 ? value / 5 : 17;
    default: return 42;
    }
}

__attribute__((noinline)) static unsigned again(unsigned times, unsigned value)
{
    return times ? again(times - 1, chosen(times, value)) + 1 : value;
}

static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

__attribute__((noinline)) static unsigned sorted(unsigned value)
{
    int numbers[24];
    for (int i = 0; i < 24; i++)
        numbers[i] = (int)((value = value * 1664525 + 1013904223) >> 8);
    qsort(numbers, 24, sizeof *numbers, order);
    return (unsigned)numbers[12];
}

static unsigned (*const ways[])(unsigned, unsigned) = {chosen, again};

static void *work(void *argument)
{
    unsigned thread = (unsigned)(size_t)argument, value = thread;
    for (unsigned turn = 0;; turn++) {
        value += ways[thread & 1](2 * thread + turn % 2, turn);
        if (thread == 2)
            value += sorted(value);
        sum += value;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 1); i++)
        pthread_create(&thread, NULL, work, (void *)(size_t)i);
    for (;;)
        pause();
}

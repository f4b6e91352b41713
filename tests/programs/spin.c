/* spin THREADS: threads that compute and make no system call, with all signals blocked; main waits. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned sum;

static void *spin(void *argument)
{
    for (unsigned seed = (unsigned)(size_t)argument;; seed = seed * 1664525 + 1013904223)
        if (seed >> 31)
            sum += seed;
    return NULL;
}

int main(int argc, char **argv)
{
    sigset_t all;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 1); i++)
        pthread_create(&thread, NULL, spin, (void *)(size_t)i);
    for (;;)
        pause();
}

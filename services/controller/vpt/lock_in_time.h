/* The recorder's own thread waits for no thread of the program longer than this: a debugger may have stopped it. */
#ifndef LOCK_IN_TIME_H
#define LOCK_IN_TIME_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define PATIENCE_NS 20000000

static inline bool lock_in_time(pthread_mutex_t *lock)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return !pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until);
}

#endif

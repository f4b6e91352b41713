/* A program to record: `busy PACE [SECONDS]` does the same small work in two threads, with long pauses ("paced") or
 * hardly any ("spinning"), until it is killed, its input ends, or the seconds are over. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int spinning;
static volatile uint64_t result;

__attribute__((noinline)) uint64_t step_of_work(uint64_t value)
{
    return value & 1 ? 3 * value + 1 : value / 2;
}

__attribute__((noinline)) uint64_t piece_of_work(uint64_t seed)
{
    uint64_t value = seed;
    for (int i = 0; i < 200; i++)
        value = step_of_work(value);
    return value;
}

__attribute__((noinline)) uint64_t branches_without_calls(uint64_t seed)
{
    uint64_t value = seed;
    for (int i = 0; i < 100000; i++) {
        value ^= value << 13, value ^= value >> 7, value ^= value << 17;
        if (value & 1)
            result = value;
    }
    return value;
}

static void *worker(void *unused)
{
    (void)unused;
    /* Beside threads that never sleep, Linux 6.18 was seen to leave everyone else next to nothing for minutes. */
    const struct timespec pause = {.tv_nsec = spinning ? 10000 : 1000000};
    for (uint64_t seed = 1;; seed++) {
        result += piece_of_work(seed);
        if (spinning)
            result += branches_without_calls(seed);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void *ends(void *seconds)
{
    sleep(atoi(seconds));
    _exit(0);
}

int main(int count, char **words)
{
    spinning = count > 1 && strcmp(words[1], "spinning") == 0;
    pthread_t thread;
    pthread_create(&thread, NULL, worker, NULL);
    if (count > 2)
        pthread_create(&thread, NULL, ends, words[2]);
    puts("ready");
    fflush(stdout);
    worker(NULL);
    return 0;
}

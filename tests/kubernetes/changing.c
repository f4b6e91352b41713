/* A program that has never been seen enough: every 20 ms it calls one of 40 functions by turns, and one of 60 that it
 * leaves for the next one each half second. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define TICK_NS 20000000
#define TICKS_OF_ONE 25

static volatile uint64_t result;

#define FUNCTION(kind, number) \
    __attribute__((noinline)) static void kind##_##number(void) { result += number + 1; }
#define TEN(kind, tens) \
    FUNCTION(kind, tens##0) FUNCTION(kind, tens##1) FUNCTION(kind, tens##2) FUNCTION(kind, tens##3) \
    FUNCTION(kind, tens##4) FUNCTION(kind, tens##5) FUNCTION(kind, tens##6) FUNCTION(kind, tens##7) \
    FUNCTION(kind, tens##8) FUNCTION(kind, tens##9)
#define NAMES(kind, tens) \
    kind##_##tens##0, kind##_##tens##1, kind##_##tens##2, kind##_##tens##3, kind##_##tens##4, \
    kind##_##tens##5, kind##_##tens##6, kind##_##tens##7, kind##_##tens##8, kind##_##tens##9

TEN(by_turns, 1) TEN(by_turns, 2) TEN(by_turns, 3) TEN(by_turns, 4)
TEN(for_now, 1) TEN(for_now, 2) TEN(for_now, 3) TEN(for_now, 4) TEN(for_now, 5) TEN(for_now, 6)

static void (*const by_turns[])(void) = {
    NAMES(by_turns, 1), NAMES(by_turns, 2), NAMES(by_turns, 3), NAMES(by_turns, 4),
};
static void (*const for_now[])(void) = {
    NAMES(for_now, 1), NAMES(for_now, 2), NAMES(for_now, 3),
    NAMES(for_now, 4), NAMES(for_now, 5), NAMES(for_now, 6),
};

int main(int count, char **words)
{
    /* Its own name, also on an emulator: only its own recordings are its past. */
    prctl(PR_SET_NAME, count > 0 && strrchr(words[0], '/') ? strrchr(words[0], '/') + 1 : "changing");
    const struct timespec pause = {.tv_nsec = TICK_NS};
    puts("ready");
    fflush(stdout);
    for (unsigned tick = 0;; tick++) {
        by_turns[tick % 40]();
        for_now[tick / TICKS_OF_ONE % 60]();
        nanosleep(&pause, NULL);
    }
}

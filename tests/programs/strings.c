/* Instructions that repeat, and those that QEMU executes alone: 16 byte and misaligned atomics. */
#include "program.h"

#include <stdint.h>
#include <string.h>

static volatile unsigned sum;
static char from[9000], to[9000];
static _Alignas(64) unsigned char line[128];

static void copy(long size)
{
    void *source = from, *target = to;
    __asm__ volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(size) : : "memory");
}

static long find(char byte)
{
    void *at = to;
    long left = sizeof to;
    __asm__ volatile("repne scasb" : "+D"(at), "+c"(left) : "a"(byte) : "cc", "memory");
    return (long)sizeof to - left;
}

static void exchange(void *at)
{
    uint64_t low = 0, high = 0;
    __asm__ volatile("1: lock cmpxchg16b (%2)\njnz 1b" : "+a"(low), "+d"(high) : "r"(at), "b"(low + 1), "c"(high) : "cc", "memory");
}

static void add_over_the_line(void)
{
    __asm__ volatile("lock addl $1, (%0)" : : "r"(line + 62) : "cc", "memory");
}

void repeat_strings(void)
{
    memset(from, 'a', sizeof from);
    from[8000] = 'b';
    for (long size = 0; size < 9000; size += 500) {
        copy(size);
        sum += (unsigned)find('b');
    }
    exchange(line);
    add_over_the_line();
    sum += compute(sum, 10000);
}

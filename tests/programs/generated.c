/* Code made at run time: written and executed in turns, anew at the same place, calling each other, changing itself. */
#include "program.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE 8192

static volatile unsigned sum;

/* mov $value, %eax; ret */
static size_t put_constant(uint8_t *at, uint32_t value)
{
    at[0] = 0xb8;
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
    return 6;
}

/* call target; add $value, %eax; ret */
static size_t put_caller(uint8_t *at, const uint8_t *target, uint8_t value)
{
    int32_t distance = (int32_t)(target - (at + 5));
    at[0] = 0xe8;
    memcpy(at + 1, &distance, 4);
    memcpy(at + 5, (uint8_t[]){0x83, 0xc0, value, 0xc3}, 4);
    return 9;
}

static void protect(uint8_t *code, int how) { mprotect(code, SIZE, PROT_READ | how); }

static unsigned run(const uint8_t *code) { return ((unsigned (*)(void))(uintptr_t)code)(); }

/* A chain of functions, each calling the one before, in memory that is never writable and executable at once. */
static void write_then_execute(uint8_t *code)
{
    size_t last = 0, end = put_constant(code, 1);
    for (unsigned n = 0; n < 40; n++) {
        protect(code, PROT_WRITE);
        size_t start = end;
        end += put_caller(code + start, code + last, (uint8_t)n);
        if (n % 8 == 3)
            put_constant(code, n);
        protect(code, PROT_EXEC);
        last = start;
        sum += run(code + last);
    }
}

/* The loop changes the constant that it adds: the instruction behind the store, in its own block. */
static void change_itself(uint8_t *code)
{
    static const uint8_t loop[] = {
        0xb9, 20, 0, 0, 0,       /*    mov $20, %ecx */
        0x31, 0xc0,              /*    xor %eax, %eax */
        0x88, 0x0d, 2, 0, 0, 0,  /* 1: mov %cl, 2(%rip) */
        0x83, 0xc0, 0,           /*    add $0, %eax */
        0xff, 0xc9,              /*    dec %ecx */
        0x75, 0xf3,              /*    jnz 1b */
        0xc3,                    /*    ret */
    };
    protect(code, PROT_WRITE | PROT_EXEC);
    memcpy(code + 4096 - 10, loop, sizeof loop); /* over the border of two pages */
    sum += run(code + 4096 - 10);
}

void generate_code(void)
{
    uint8_t *code = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    write_then_execute(code);
    change_itself(code);
    munmap(code, SIZE);
    sum += compute(sum, 50000);
}

/* A program that writes code at run time and tells of it: `jitting map|dump FOLDER [FILE]`, until it is killed or the file is
 * there. Two functions are in one place by turns. The perf map is /tmp/perf-PID.map, the jitdump FOLDER/jit-PID.dump
 * (Linux: tools/perf/Documentation/jit-interface.txt and jitdump-specification.txt). */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 100

/* Counts down, 1 + 2 * (ROUNDS + 1) instructions: mov $ROUNDS, %ecx; 1: dec %ecx; jns 1b; ret */
static const uint8_t counting[] = {0xb9, ROUNDS, 0, 0, 0, 0xff, 0xc9, 0x79, 0xfc, 0xc3};
/* Five instructions. */
static const uint8_t straight[] = {0x90, 0x90, 0x90, 0x90, 0xc3};

static int dump = -1;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void begin_dump(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/jit-%d.dump", folder, getpid());
    struct { uint32_t magic, version, size, machine, pad, pid; uint64_t time, flags; } head = {
        0x4a695444, 1, 40, 62, 0, (uint32_t)getpid(), now(), 0,
    };
    dump = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(dump, &head, sizeof head) != sizeof head)
        exit(2);
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0);
}

static void tell_dump(const char *name, const void *at, const uint8_t *code, uint32_t size)
{
    static uint64_t index;
    uint8_t record[256] = {0};
    struct { uint32_t kind, size; uint64_t time; uint32_t pid, tid; uint64_t vma, address, size_of_code, index; } head = {
        0, (uint32_t)(sizeof head + strlen(name) + 1 + size), now(), (uint32_t)getpid(), (uint32_t)getpid(),
        (uintptr_t)at, (uintptr_t)at, size, index++,
    };
    memcpy(record, &head, sizeof head);
    strcpy((char *)record + sizeof head, name);
    memcpy(record + sizeof head + strlen(name) + 1, code, size);
    if (write(dump, record, head.size) != head.size)
        exit(2);
}

static void tell_map(const char *name, const void *at, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx %zx %s\n", (unsigned long)(uintptr_t)at, size, name);
    fclose(map);
}

int main(int count, char **words)
{
    uint8_t *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct timespec pause = {.tv_nsec = 1000000};
    int dumps = strcmp(words[1], "dump") == 0;

    if (dumps)
        begin_dump(words[2]);
    memcpy(at, counting, sizeof counting);
    if (!dumps)
        tell_map("jit:counting a.js", at, sizeof counting);
    for (unsigned turn = 0; count <= 3 || access(words[3], F_OK); turn++) {
        if (dumps && turn % 16 == 0) {
            const uint8_t *code = turn % 32 ? straight : counting;
            uint32_t size = turn % 32 ? sizeof straight : sizeof counting;
            memcpy(at, code, size);
            tell_dump(turn % 32 ? "jit:straight" : "jit:counting", at, code, size);
        }
        ((void (*)(void))(uintptr_t)at)();
        nanosleep(&pause, NULL);
    }
    return 0;
}

/*
 * What system calls do to the image: after those that succeed, what was mapped where is asked anew. mprotect is not among
 * them: the bytes stay, and if others are written QEMU translates again.
 */
#include "recorder.h"

#include <sys/shm.h>
#include <sys/syscall.h>

static __thread struct {
    int64_t number;
    uint64_t arguments[3];
    uint32_t epoch;
} begun;

static _Atomic uint64_t break_before;

void address_space_call(int64_t number, const uint64_t arguments[3])
{
    begun.number = number;
    begun.epoch = recorder.control->epoch;
    for (unsigned i = 0; i < 3; i++)
        begun.arguments[i] = arguments[i];
}

static uint64_t segment_size(int id)
{
    struct shmid_ds about;
    return shmctl(id, IPC_STAT, &about) ? 0 : about.shm_segsz;
}

static void break_is(uint64_t now)
{
    uint64_t before = atomic_exchange(&break_before, now);
    if (now < before)
        image_unmapped(now, before - now, begun.epoch);
}

void address_space_return(int64_t number, int64_t result)
{
    const uint64_t *arguments = begun.arguments;
    uint64_t address = (uint64_t)result;
    if (number != begun.number || address > -4096ull)
        return;
    switch (number) {
    case SYS_mmap:
        image_unmapped(address, arguments[1], begun.epoch);
        break;
    case SYS_munmap:
        image_unmapped(arguments[0], arguments[1], begun.epoch);
        break;
    case SYS_mremap:
        image_unmapped(arguments[0], arguments[1], begun.epoch);
        image_unmapped(address, arguments[2], begun.epoch);
        break;
    case SYS_shmat:
        image_unmapped(address, segment_size((int)arguments[0]), begun.epoch);
        break;
    case SYS_shmdt:
        image_unmapped(arguments[0], 1, begun.epoch);
        break;
    case SYS_brk:
        break_is(address);
        break;
    default:
        break;
    }
}

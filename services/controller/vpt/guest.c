/* The guest's addresses in the host's memory: one constant apart. */
#include "recorder.h"

static _Atomic uint64_t base;

void guest_saw(uint64_t address, const void *host)
{
    if (host)
        atomic_store_explicit(&base, (uint64_t)(uintptr_t)host - address, memory_order_relaxed);
}

void *guest_memory(uint64_t address)
{
    return (void *)(uintptr_t)(address + atomic_load_explicit(&base, memory_order_relaxed));
}

uint64_t guest_address(uint64_t host) { return host - atomic_load_explicit(&base, memory_order_relaxed); }

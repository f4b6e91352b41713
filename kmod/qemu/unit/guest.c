// SPDX-License-Identifier: GPL-2.0
#include <string.h>

#include "guest.h"
#include "unit.h"

/* Of the emulator's binary; weak, so that a plugin in another one can say what is missing. */
extern int cpu_memory_rw_debug(void *cpu, uint64_t address, void *buffer, size_t size, bool write)
	__attribute__((weak));
extern void cpu_physical_memory_rw(uint64_t address, void *buffer, uint64_t size, bool write)
	__attribute__((weak));
extern void *qemu_get_cpu(int index) __attribute__((weak));
extern uint64_t cpu_get_tsc(void *state) __attribute__((weak));
extern void cpu_loop_exit_noexc(void *cpu) __attribute__((weak));
/* Blocks that are translated, or looked for, have one instruction. */
extern int singlestep __attribute__((weak));

#define GATES 256

struct gate {
	uint16_t low, selector, type, middle;
	uint32_t high, reserved;
};

bool guest_functions_found(void)
{
	return cpu_memory_rw_debug && cpu_physical_memory_rw && qemu_get_cpu && cpu_get_tsc &&
	       cpu_loop_exit_noexc && &singlestep;
}

void guest_step_from_here(unsigned int cpu)
{
	singlestep = 1;
	cpu_loop_exit_noexc(qemu_get_cpu(cpu));
}

void guest_step_no_more(void)
{
	singlestep = 0;
}

bool guest_read(unsigned int cpu, uint64_t address, void *to, size_t size)
{
	return !cpu_memory_rw_debug(qemu_get_cpu(cpu), address, to, size, false);
}

void guest_read_physical(uint64_t address, void *to, size_t size)
{
	cpu_physical_memory_rw(address, to, size, false);
}

void guest_write_physical(uint64_t address, const void *from, size_t size)
{
	cpu_physical_memory_rw(address, (void *)from, size, true);
}

uint64_t guest_tsc(struct guest *guest)
{
	return cpu_get_tsc(guest);
}

/*
 * One level of a page table after the other, from CR3 on: what is found must be the code that runs.
 */
static bool walks_to(uint64_t cr3, unsigned int levels, uint64_t address, const uint8_t *code,
		     size_t size)
{
	uint64_t entry = cr3, at;
	uint8_t found[16];

	for (unsigned int level = levels; level-- > 0;) {
		unsigned int shift = 12 + 9 * level;

		at = (entry & 0x000ffffffffff000ull) + (address >> shift & 511) * 8;
		guest_read_physical(at, &entry, sizeof(entry));
		if (!(entry & 1))
			return false;
		if (!level || (level < 3 && entry & 1 << 7)) {
			uint64_t inside = (1ull << shift) - 1;

			at = (entry & 0x000ffffffffff000ull & ~inside) | (address & inside);
			guest_read_physical(at, found, size);
			return !memcmp(found, code, size);
		}
	}
	return false;
}

bool guest_is_known(const struct guest *guest, uint64_t address, const uint8_t *code, size_t size)
{
	const uint64_t protected_and_paged = 1ull << 31 | 1;
	unsigned int levels = guest->control[4] & 1 << 12 ? 5 : 4;

	if (size > 16)
		size = 16;
	return (guest->segments[CS].selector & 3) == (guest->hidden_flags & 3) &&
	       (guest->control[0] & protected_and_paged) == protected_and_paged &&
	       guest->registers[RIP] == address &&
	       guest->idt.limit == GATES * sizeof(struct gate) - 1 &&
	       walks_to(guest->control[3], levels, address, code, size);
}

/* Read once: the kernel's table does not change. Each CPU looks at its own. */
static struct handlers {
	uint64_t table, first, last, addresses[GATES];
} handlers[MAX_CPUS];

static bool read_handlers(const struct guest *guest, unsigned int cpu, struct handlers *all)
{
	struct gate gates[GATES];

	if (!guest_read(cpu, guest->idt.base, gates, sizeof(gates)))
		return false;
	all->table = guest->idt.base;
	all->first = UINT64_MAX;
	all->last = 0;
	for (int vector = 0; vector < GATES; vector++) {
		const struct gate *gate = &gates[vector];
		uint64_t address = (uint64_t)gate->high << 32 | (uint32_t)gate->middle << 16 |
				   gate->low;

		all->addresses[vector] = address;
		all->first = address && address < all->first ? address : all->first;
		all->last = address > all->last ? address : all->last;
	}
	return true;
}

int guest_vector(const struct guest *guest, unsigned int cpu, uint64_t handler)
{
	struct handlers *all = &handlers[cpu];

	if (all->table != guest->idt.base && !read_handlers(guest, cpu, all))
		return -1;
	if (handler < all->first || handler > all->last)
		return -1;
	for (int vector = 0; vector < GATES; vector++)
		if (all->addresses[vector] == handler)
			return vector;
	return -1;
}

/*
 * SDM volume 3, "64-Bit Mode Stack Frame": the stack is aligned to 16 bytes, then SS, RSP, RFLAGS,
 * CS and RIP are pushed, and an error code where there is one.
 */
bool guest_interrupted(const struct guest *guest, unsigned int cpu, uint64_t *ip)
{
	uint64_t at = guest->registers[RSP];

	if (!(at & 8))
		at += 8;
	return guest_read(cpu, at, ip, sizeof(*ip));
}

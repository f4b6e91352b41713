/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a virtual CPU holds, and its memory. QEMU 7.2's plugin interface gives neither: generated
 * code keeps CPUX86State in a register that callbacks are entered with (as vpt uses it), and the
 * emulator exports its functions.
 */
#ifndef GUEST_H
#define GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum guest_register { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, RIP = 16 };

struct guest_segment {
	uint32_t selector;
	uint64_t base;
	uint32_t limit, flags;
};

enum guest_segment_number { ES, CS, SS, DS, FS, GS };

/*
 * The beginning of QEMU 7.2's CPUX86State; guest_is_known checks it against what a running kernel
 * must have there.
 */
struct guest {
	uint64_t registers[17];
	uint64_t flags;
	uint64_t flag_results[3];
	uint32_t flag_operation;
	int32_t direction;
	uint32_t hidden_flags, hidden_flags2;
	struct guest_segment segments[6], ldt, tr, gdt, idt;
	uint64_t control[5];
};

_Static_assert(offsetof(struct guest, hidden_flags) == 176 &&
	       offsetof(struct guest, segments) == 184 &&
	       offsetof(struct guest, control) == 424, "as in target/i386/cpu.h");

static inline bool guest_in_user_mode(const struct guest *guest)
{
	return (guest->hidden_flags & 3) == 3;
}

bool guest_functions_found(void);
/* False where the state is laid out otherwise. Kernel mode, 64 bits. */
bool guest_is_known(const struct guest *guest, uint64_t address, const uint8_t *code, size_t size);

bool guest_read(unsigned int cpu, uint64_t address, void *to, size_t size);
void guest_read_physical(uint64_t address, void *to, size_t size);
void guest_write_physical(uint64_t address, const void *from, size_t size);
uint64_t guest_tsc(struct guest *guest);
/*
 * Where a block begins: comes back to it, and to each instruction from there on as a block of its
 * own. Does not return.
 */
void guest_step_from_here(unsigned int cpu);
void guest_step_no_more(void);

/* How the kernel was entered, when `handler` is about to run: a vector of its IDT, or -1. */
int guest_vector(const struct guest *guest, unsigned int cpu, uint64_t handler);
/* The instruction that an interrupt or exception came at */
bool guest_interrupted(const struct guest *guest, unsigned int cpu, uint64_t *ip);

#endif

// SPDX-License-Identifier: GPL-2.0
/* One block after the other: which packets tell a decoder that the CPU's user code went this way. */
#include "guest.h"
#include "unit.h"

#define CTL_CR3		(1ull << 7)
#define CTL_DISRETC	(1ull << 11)
#define CODE_64		(1u << 15)	/* of the hidden flags */

/* Exceptions that point at the instruction that raised them, which has not retired (SDM volume 3, table "Exceptions") */
#define FAULTS (1u << 0 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 13 | 1u << 14 | \
		1u << 16 | 1u << 17 | 1u << 19 | 1u << 21)

/* ContextEn: user code of the wanted address space */
static bool in_context(const struct unit *unit, const struct guest *guest)
{
	bool match = !(unit->ctl & CTL_CR3) || !((guest->control[3] ^ unit->match) >> 5);

	return match && (guest->hidden_flags & CODE_64);
}

static void enter(struct unit *unit, uint64_t ip, struct guest *guest)
{
	uint64_t tsc = guest_tsc(guest);

	unit->truth = truth_of(guest->control[3], guest->segments[FS].base);
	if (pt_psb_due(&unit->writer))
		pt_psb(&unit->writer, tsc, false, 0);
	pt_mode_exec64(&unit->writer, tsc);
	pt_tip_pge(&unit->writer, tsc, ip);
	returns_forget(&unit->returns);
	unit->inside = true;
}

/* The last instruction went to the kernel. */
static void leave(struct unit *unit, struct guest *guest)
{
	pt_tip_pgd(&unit->writer, guest_tsc(guest));
	unit->inside = false;
}

/* The kernel came between two instructions. */
static void leave_at(struct unit *unit, uint64_t ip, struct guest *guest)
{
	uint64_t tsc = guest_tsc(guest);

	pt_flush_tnt(&unit->writer, tsc);
	pt_fup(&unit->writer, tsc, ip);
	pt_tip_pgd(&unit->writer, tsc);
	unit->inside = false;
}

/* Nobody knows how the CPU came here. */
static void lose_track(struct unit *unit, struct guest *guest)
{
	unit->unexplained++;
	truth_gap(unit);
	pt_overflow(&unit->writer, guest_tsc(guest));
	unit->inside = false;
}

static void branch(struct unit *unit, unsigned int taken, struct guest *guest)
{
	if (pt_tnt(&unit->writer, taken))
		pt_flush_tnt(&unit->writer, guest_tsc(guest));
}

/* Writes how `previous` went on to `to`; false when it cannot have by itself. */
static bool follow(struct unit *unit, uint64_t to, struct guest *guest)
{
	switch (way_to(&unit->returns, !(unit->ctl & CTL_DISRETC), &unit->previous, to)) {
	case WAY_SILENT:
		return true;
	case WAY_NOT_TAKEN:
		branch(unit, 0, guest);
		return true;
	case WAY_TAKEN:
		branch(unit, 1, guest);
		return true;
	case WAY_TARGET:
		pt_tip(&unit->writer, guest_tsc(guest), to);
		return true;
	case WAY_AGAIN:
		truth_trim(unit, to);
		return true;
	default:
		return false;
	}
}

static void go_on(struct unit *unit, const struct block *block, struct guest *guest)
{
	if (begins_again(&unit->previous, block->start, block->count)) {
		truth_trim(unit, block->start);
	} else if (!follow(unit, block->start, guest)) {
		lose_track(unit, guest);
		enter(unit, block->start, guest);
	}
	if (pt_psb_due(&unit->writer)) {
		pt_psb(&unit->writer, guest_tsc(guest), true, block->start);
		returns_forget(&unit->returns);
	}
}

bool flow_user(struct unit *unit, const struct block *block, struct guest *guest)
{
	if (unit->inside)
		go_on(unit, block, guest);
	else if (in_context(unit, guest))
		enter(unit, block->start, guest);
	else
		return false;
	unit->previous = *block;
	unit->blocks++;
	output_make_room(unit);
	return unit->traces;
}

static void interrupted(struct unit *unit, uint64_t ip, bool fault, struct guest *guest)
{
	const struct block *previous = &unit->previous;

	if (fault && ip >= previous->start && ip < previous->end) {
		truth_trim(unit, ip);
		leave_at(unit, ip, guest);
		return;
	}
	if (previous->class == INSN_SYSTEM && ip == previous->end) { /* int3 */
		leave(unit, guest);
		return;
	}
	/* The instruction that repeats has not retired. */
	if (previous->class == INSN_REPEAT && ip == previous->last)
		truth_trim(unit, ip);
	if (follow(unit, ip, guest))
		leave_at(unit, ip, guest);
	else
		lose_track(unit, guest);
}

/* The first block of the kernel behind user code that was traced */
void flow_kernel(struct unit *unit, uint64_t entry, struct guest *guest)
{
	uint64_t ip;
	int vector;

	if (entry == unit->lstar) {
		if (unit->previous.class == INSN_SYSTEM && guest->registers[RCX] == unit->previous.end)
			leave(unit, guest);
		else
			lose_track(unit, guest);
	} else {
		vector = guest_vector(guest, unit->cpu, entry);
		if (vector >= 0 && guest_interrupted(guest, unit->cpu, &ip))
			interrupted(unit, ip, vector < 32 && (FAULTS >> vector & 1), guest);
		else
			lose_track(unit, guest);
	}
	output_make_room(unit);
}

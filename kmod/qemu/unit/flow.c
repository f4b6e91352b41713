// SPDX-License-Identifier: GPL-2.0
/*
 * One block after the other: which packets tell a decoder that the CPU went this way (SDM volume 3,
 * table "Packet Generation under Different Enable Conditions").
 */
#include "guest.h"
#include "unit.h"

/* Of the hidden flags; code of 16 bits has neither. */
#define CODE_32		(1u << 4)
#define CODE_64		(1u << 15)

/*
 * Exceptions that point at the instruction that raised them, which has not retired (SDM volume 3,
 * table "Exceptions")
 */
#define FAULTS (1u << 0 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 10 | 1u << 11 | 1u << 12 | \
		1u << 13 | 1u << 14 | 1u << 16 | 1u << 17 | 1u << 19 | 1u << 21)

/* ContextEn: a ring and an address space that are wanted */
static bool in_context(const struct unit *unit, const struct guest *guest)
{
	bool ring = unit->ctl & (guest_in_user_mode(guest) ? CTL_USER : CTL_KERNEL);
	bool match = !(unit->ctl & CTL_CR3) || !((guest->control[3] ^ unit->match) >> 5);

	return ring && match && (guest->hidden_flags & (CODE_32 | CODE_64));
}

static bool in_code32(const struct guest *guest)
{
	return !(guest->hidden_flags & CODE_64);
}

static void enter(struct unit *unit, uint64_t ip, struct guest *guest)
{
	uint64_t tsc = guest_tsc(guest);

	/* In the kernel the thread changes between two instructions that nothing tells. */
	if (unit->ctl & CTL_KERNEL)
		unit->truth = truth_of(0, unit->cpu);
	else
		unit->truth = truth_of(guest->control[3], guest->segments[in_code32(guest) ? GS : FS].base);
	if ((unit->ctl & CTL_KERNEL) && unit->moved)
		pt_pip(&unit->writer, tsc, guest->control[3]);
	if (pt_psb_due(&unit->writer))
		pt_psb(&unit->writer, tsc, false, 0);
	pt_mode_exec(&unit->writer, tsc, in_code32(guest));
	pt_tip_pge(&unit->writer, tsc, ip);
	returns_forget(&unit->returns);
	unit->inside = true;
}

static void leave(struct unit *unit, struct guest *guest)
{
	pt_tip_pgd(&unit->writer, guest_tsc(guest));
	unit->inside = false;
}

/* To what the code before does not tell, maybe in another mode */
static void target(struct unit *unit, uint64_t to, struct guest *guest)
{
	uint64_t tsc = guest_tsc(guest);

	if (unit->writer.code32 != in_code32(guest))
		pt_mode_exec(&unit->writer, tsc, in_code32(guest));
	pt_tip(&unit->writer, tsc, to);
}

/* A branch to another ring: to where the tracing goes on, or does not. */
static void far_branch(struct unit *unit, uint64_t to, bool context, struct guest *guest)
{
	if (context)
		target(unit, to, guest);
	else
		leave(unit, guest);
	returns_forget(&unit->returns);
}

/* The kernel came between two instructions, the second of which is at `ip`. */
static void interrupt(struct unit *unit, uint64_t ip, uint64_t to, bool context,
		      struct guest *guest)
{
	uint64_t tsc = guest_tsc(guest);

	pt_flush_tnt(&unit->writer, tsc);
	pt_fup(&unit->writer, tsc, ip);
	far_branch(unit, to, context, guest);
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
		target(unit, to, guest);
		if (unit->previous.class == INSN_FAR)
			returns_forget(&unit->returns);
		return true;
	case WAY_AGAIN:
		truth_trim(unit, to);
		return true;
	default:
		return false;
	}
}

static void interrupted(struct unit *unit, int vector, uint64_t to, bool context,
			struct guest *guest)
{
	const struct block *previous = &unit->previous;
	bool fault = vector < 32 && (FAULTS >> vector & 1);
	uint64_t ip;

	if (!guest_interrupted(guest, unit->cpu, &ip)) {
		lose_track(unit, guest);
		return;
	}
	if (previous->class == INSN_SYSTEM && ip == previous->end) {
		if (vector >= 32) { /* INT n */
			far_branch(unit, to, context, guest);
			return;
		}
		fault = true; /* int3 */
		ip = previous->last;
	}
	if (fault && ip >= previous->start && ip < previous->end) {
		truth_trim(unit, ip);
		interrupt(unit, ip, to, context, guest);
		return;
	}
	/* The instruction that repeats has not retired. */
	if (previous->class == INSN_REPEAT && ip == previous->last)
		truth_trim(unit, ip);
	if (follow(unit, ip, guest))
		interrupt(unit, ip, to, context, guest);
	else
		lose_track(unit, guest);
}

/* From the block before to this one, by whatever led here */
static void come(struct unit *unit, const struct block *block, bool context, struct guest *guest)
{
	int vector = guest_in_user_mode(guest) ? -1 : guest_vector(guest, unit->cpu, block->start);

	if (vector >= 0) {
		interrupted(unit, vector, block->start, context, guest);
	} else if (unit->previous.class == INSN_SYSTEM && !guest_in_user_mode(guest)) {
		far_branch(unit, block->start, context, guest);
	} else if (unit->moved && block->start == unit->previous.end) {
		if (context)
			pt_pip(&unit->writer, guest_tsc(guest), guest->control[3]);
		else
			leave(unit, guest);
	} else if (!context && unit->previous.class == INSN_FAR) {
		leave(unit, guest);
	} else if (begins_again(&unit->previous, block->start, block->count)) {
		truth_trim(unit, block->start);
	} else if (!context || !follow(unit, block->start, guest)) {
		lose_track(unit, guest);
	}
}

bool flow_block(struct unit *unit, const struct block *block, struct guest *guest)
{
	bool context = in_context(unit, guest), was = unit->inside;

	if (was)
		come(unit, block, context, guest);
	if (!unit->inside && context)
		enter(unit, block->start, guest);
	else if (unit->inside && pt_psb_due(&unit->writer)) {
		pt_psb(&unit->writer, guest_tsc(guest), true, block->start);
		returns_forget(&unit->returns);
	}
	if (was || unit->inside)
		output_make_room(unit);
	if (!unit->inside)
		return false;
	unit->previous = *block;
	unit->blocks++;
	return true;
}

void flow_end(struct unit *unit, struct guest *guest)
{
	truth_trim(unit, unit->previous.last);
	interrupt(unit, unit->previous.last, 0, false, guest);
}

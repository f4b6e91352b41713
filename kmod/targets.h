/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The processes of a session: open addressing, looked up by every switch of its cores without a lock,
 * changed by compare-and-exchange where processes are forked and end.
 */
#ifndef PERMILLE_TARGETS_H
#define PERMILLE_TARGETS_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/hash.h>
#include <linux/types.h>

#define TARGETS_BITS	10
#define TARGETS_SLOTS	BIT(TARGETS_BITS)
#define TARGETS_MAX	(TARGETS_SLOTS / 2)
#define TARGETS_GONE	(~0u)		/* a slot that had one */

struct targets {
	u32 slots[TARGETS_SLOTS];	/* tgid; 0: never used */
	atomic_t count;
	atomic_t missed;
};

bool targets_add(struct targets *targets, u32 tgid);
void targets_remove(struct targets *targets, u32 tgid);

static inline bool targets_have(const struct targets *targets, u32 tgid)
{
	u32 at = hash_32(tgid, TARGETS_BITS), steps, slot;

	for (steps = 0; steps < TARGETS_SLOTS; steps++) {
		slot = READ_ONCE(targets->slots[(at + steps) & (TARGETS_SLOTS - 1)]);
		if (slot == tgid)
			return true;
		if (!slot)
			return false;
	}
	return false;
}

#endif

// SPDX-License-Identifier: GPL-2.0
#include "targets.h"

/* False, and counted, when there are too many. Slots are used once: half of them stay empty. */
bool targets_add(struct targets *targets, u32 tgid)
{
	u32 at = hash_32(tgid, TARGETS_BITS), steps;

	if (targets_have(targets, tgid))
		return true;
	for (steps = 0; steps < TARGETS_MAX; steps++) {
		u32 *slot = &targets->slots[(at + steps) & (TARGETS_SLOTS - 1)];

		if (!READ_ONCE(*slot) && !cmpxchg(slot, 0, tgid)) {
			atomic_inc(&targets->count);
			return true;
		}
	}
	atomic_inc(&targets->missed);
	return false;
}

void targets_remove(struct targets *targets, u32 tgid)
{
	u32 at = hash_32(tgid, TARGETS_BITS), steps;

	for (steps = 0; steps < TARGETS_SLOTS; steps++) {
		u32 *slot = &targets->slots[(at + steps) & (TARGETS_SLOTS - 1)];

		if (!READ_ONCE(*slot))
			return;
		if (READ_ONCE(*slot) == tgid) {
			WRITE_ONCE(*slot, TARGETS_GONE);
			atomic_dec(&targets->count);
			return;
		}
	}
}

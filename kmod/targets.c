// SPDX-License-Identifier: GPL-2.0
#include "targets.h"

void targets_init(struct targets *targets)
{
	raw_spin_lock_init(&targets->lock);
}

/* The place of a tgid, or of none: 0 */
static u32 *find(struct targets *targets, u32 line, u32 tgid)
{
	u32 i;

	for (i = 0; i < TARGETS_LINE; i++)
		if (targets->lines[line][i] == tgid)
			return &targets->lines[line][i];
	return NULL;
}

bool targets_add(struct targets *targets, u32 tgid)
{
	u32 line = hash_32(tgid, TARGETS_BITS);
	bool is;
	u32 *place;

	raw_spin_lock(&targets->lock);
	is = find(targets, line, tgid);
	place = is ? NULL : find(targets, line, 0);
	if (place) {
		WRITE_ONCE(*place, tgid);
		WRITE_ONCE(targets->count, targets->count + 1);
	} else if (!is) {
		WRITE_ONCE(targets->missed, targets->missed + 1);
	}
	raw_spin_unlock(&targets->lock);
	return is || place;
}

/* Any number of times: the last two threads of a process may both find that they are the last. */
void targets_remove(struct targets *targets, u32 tgid)
{
	u32 *place;

	if (!targets_have(targets, tgid))
		return;
	raw_spin_lock(&targets->lock);
	place = find(targets, hash_32(tgid, TARGETS_BITS), tgid);
	if (place) {
		WRITE_ONCE(*place, 0);
		WRITE_ONCE(targets->count, targets->count - 1);
	}
	raw_spin_unlock(&targets->lock);
}

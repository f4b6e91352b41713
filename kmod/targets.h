/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The processes of a session. A process can be in one line of the table only, and stays where it
 * is, so that a switch of the session's cores looks through one cache line without a lock, whatever
 * has come and gone before.
 */
#ifndef PERMILLE_TARGETS_H
#define PERMILLE_TARGETS_H

#include <linux/cache.h>
#include <linux/hash.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#define TARGETS_BITS	8
#define TARGETS_LINES	BIT(TARGETS_BITS)
#define TARGETS_LINE	16

struct targets {
	u32 lines[TARGETS_LINES][TARGETS_LINE] ____cacheline_aligned;	/* tgid; 0: free */
	raw_spinlock_t lock;	/* of who changes it: process context */
	u32 count;
	u32 missed;
};

void targets_init(struct targets *targets);
/* Whether it is one now; false, and counted, when its line is full. */
bool targets_add(struct targets *targets, u32 tgid);
void targets_remove(struct targets *targets, u32 tgid);

static inline bool targets_have(const struct targets *targets, u32 tgid)
{
	const u32 *line = targets->lines[hash_32(tgid, TARGETS_BITS)];
	u32 i;

	for (i = 0; i < TARGETS_LINE; i++)
		if (READ_ONCE(line[i]) == tgid)
			return true;
	return false;
}

#endif

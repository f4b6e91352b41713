/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Switch records of one core. One writer: that core with interrupts off. One reader: the owner, by
 * mmap.
 */
#ifndef PERMILLE_RING_H
#define PERMILLE_RING_H

#include <linux/types.h>

#include <permille.h>

struct vm_area_struct;

struct switch_ring {
	struct page **pages;
	u32 page_count;
	u32 capacity;			/* a power of two */
	struct permille_ring *shared;
	struct permille_switch *records;
	u64 head, dropped;		/* the owner could write to the shared ones */
};

u64 ring_bytes(u32 capacity);
int ring_allocate(struct switch_ring *ring, u32 capacity, int node);
void ring_free(struct switch_ring *ring);
int ring_mmap(const struct switch_ring *ring, struct vm_area_struct *vma);

/* The reader's tail is not trusted: whatever it says, only this ring is written to. */
static inline void ring_write(struct switch_ring *ring, const struct permille_switch *record)
{
	u64 unread = ring->head - READ_ONCE(ring->shared->tail);

	if (unread >= ring->capacity) {
		WRITE_ONCE(ring->shared->dropped, ++ring->dropped);
		return;
	}
	ring->records[ring->head & (ring->capacity - 1)] = *record;
	smp_store_release(&ring->shared->head, ++ring->head);	/* after the record */
}

#endif

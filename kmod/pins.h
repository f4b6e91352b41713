/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The memory that a filter names. A CR3 is the place of page tables, and the next process may get
 * the place of those that were freed; as long as the memory is pinned, its page tables stay,
 * whether its process lives or not.
 */
#ifndef PERMILLE_PINS_H
#define PERMILLE_PINS_H

struct mm_struct;

/* Any context. The memory is in use. */
void pin(struct mm_struct *mm);
/* Any context: what is freed thereby is freed later, by a kernel thread. */
void unpin(struct mm_struct *mm);
/* Nobody unpins any more; afterwards nothing is to be freed. */
void pins_flush(void);

#endif

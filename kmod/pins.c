// SPDX-License-Identifier: GPL-2.0
#include <linux/irq_work.h>
#include <linux/llist.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "pins.h"

/*
 * Memories whose only holder was a pin: nobody else looks at them, so that they are chained by
 * their own mmlist.
 */
static LLIST_HEAD(dead);

static struct llist_node *node_of(struct mm_struct *mm)
{
	return (struct llist_node *)&mm->mmlist;
}

static struct mm_struct *memory_of(struct llist_node *node)
{
	return container_of((struct list_head *)node, struct mm_struct, mmlist);
}

/* The page tables' lists are under a lock that a hook and an interrupt may not take. */
static void drop_dead(struct work_struct *work)
{
	struct llist_node *node = llist_del_all(&dead);

	while (node) {
		struct mm_struct *mm = memory_of(node);

		node = node->next;
		mmdrop(mm);
	}
}

static DECLARE_WORK(drop, drop_dead);

/* The hook holds the run queue's lock, which waking a worker takes. */
static void call_worker(struct irq_work *call)
{
	queue_work(system_unbound_wq, &drop);
}

static DEFINE_IRQ_WORK(call, call_worker);

void pin(struct mm_struct *mm)
{
	mmgrab(mm);
}

void unpin(struct mm_struct *mm)
{
	/* Others hold it: nothing is freed */
	if (atomic_add_unless(&mm->mm_count, -1, 1))
		return;
	if (llist_add(node_of(mm), &dead))
		irq_work_queue(&call);
}

void pins_flush(void)
{
	irq_work_sync(&call);
	flush_work(&drop);
}

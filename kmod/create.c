// SPDX-License-Identifier: GPL-2.0
/* How a session comes to be: validated, cores claimed, memory taken; and how it gives all back. */
#include <linux/cpu.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "claims.h"
#include "memory.h"
#include "rtit.h"
#include "session.h"
#include "validate.h"

static atomic_t count;

u32 session_count(void)
{
	return atomic_read(&count);
}

static void wake(struct irq_work *work)
{
	wake_up_all(&container_of(work, struct permille_session, ended_work)->ended);
}

static struct permille_session *allocate(const struct permille_setup *setup)
{
	struct permille_session *session;

	session = kvzalloc(struct_size(session, cores, setup->core_count), GFP_KERNEL_ACCOUNT);
	if (!session)
		return NULL;
	session->flags = setup->flags;
	session->core_count = setup->core_count;
	session->period_ns = setup->period_ns;
	targets_init(&session->targets);
	init_waitqueue_head(&session->ended);
	init_irq_work(&session->ended_work, wake);
	INIT_LIST_HEAD(&session->list);
	atomic_inc(&count);
	return session;
}

void session_destroy(struct permille_session *session)
{
	u32 i;

	session_stop(session, PERMILLE_END_STOPPED);
	session_delist(session);
	for (i = 0; i < session->core_count; i++) {
		struct permille_core *core = &session->cores[i];

		topa_free(&core->topa);
		ring_free(&core->ring);
		if (core->claimed)
			unclaim_core(core->cpu);
	}
	memory_give(session->memory);
	kvfree(session);
	atomic_dec(&count);
}

static int enlist(struct permille_session *session, struct permille_setup *setup)
{
	int failed = session_enlist(session);

	return failed == -EBUSY ? refuse(setup, PERMILLE_REFUSED_SLEEPING, 0, failed) : failed;
}

static int add_processes(struct permille_session *session, struct permille_setup *setup)
{
	const u32 __user *pids = u64_to_user_ptr(setup->processes);
	u32 i, pid;
	int failed;

	for (i = 0; i < setup->process_count; i++) {
		if (get_user(pid, pids + i))
			return -EFAULT;
		failed = session_add_process(session, pid);
		if (failed)
			return refuse(setup, refusal_of_process(failed), pid, failed);
	}
	return 0;
}

static int take_memory(struct permille_session *session, struct permille_setup *setup,
		       const struct permille_core_plan *plans)
{
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < session->core_count; i++)
		bytes += plans[i].buffer_bytes + ring_bytes(plans[i].switch_records);
	if (!memory_take(bytes))
		return refuse(setup, PERMILLE_REFUSED_MEMORY, bytes >> 20, -ENOMEM);
	session->memory = bytes;
	return 0;
}

static int fill_core(struct permille_session *session, struct permille_setup *setup,
		     const struct permille_core_plan *plan, struct permille_core *core)
{
	int node = cpu_to_node(plan->cpu), failed;

	failed = topa_allocate(&core->topa, plan->buffer_bytes, node,
			       setup->flags & PERMILLE_WRITE_COMBINING);
	if (!failed)
		failed = ring_allocate(&core->ring, plan->switch_records, node);
	if (failed)
		return refuse(setup, PERMILLE_REFUSED_MEMORY, session->memory >> 20, failed);
	/* A processor with a single region takes less than it was offered. */
	memory_give(plan->buffer_bytes - core->topa.size);
	session->memory -= plan->buffer_bytes - core->topa.size;
	core->status.buffer_bytes = core->topa.size;
	core->status.regions = core->topa.region_count;
	core->ctl = rtit_ctl(setup->flags, setup->psb_freq, setup->mtc_freq, setup->cyc_threshold);
	return 0;
}

static int add_core(struct permille_session *session, struct permille_setup *setup,
		    const struct permille_core_plan *plan, u32 index)
{
	struct permille_core *core = &session->cores[index];
	int failed;

	core_init(core, session, index, plan->cpu);
	failed = claim_core(setup, session, plan->cpu);
	if (failed)
		return failed;
	core->claimed = true;
	return fill_core(session, setup, plan, core);
}

static int build(struct permille_session *session, struct permille_setup *setup,
		 const struct permille_core_plan *plans)
{
	u32 i;
	int failed = 0;

	for (i = 0; i < setup->core_count && !failed; i++)
		failed = validate_core(setup, &plans[i]);
	if (!failed)
		failed = enlist(session, setup);
	if (!failed)
		failed = add_processes(session, setup);
	if (!failed)
		failed = take_memory(session, setup, plans);
	for (i = 0; i < setup->core_count && !failed; i++)
		failed = add_core(session, setup, &plans[i], i);
	return failed;
}

/* Fails with setup->refusal telling why. */
struct permille_session *session_create(struct permille_setup *setup)
{
	struct permille_core_plan *plans;
	struct permille_session *session;
	int failed = validate_setup(setup);

	if (failed)
		return ERR_PTR(failed);
	plans = vmemdup_user(u64_to_user_ptr(setup->cores),
			     array_size(setup->core_count, sizeof(*plans)));
	if (IS_ERR(plans))
		return ERR_CAST(plans);
	session = allocate(setup);
	failed = session ? build(session, setup, plans) : -ENOMEM;
	kvfree(plans);
	if (!failed)
		return session;
	if (session)
		session_destroy(session);
	return ERR_PTR(failed);
}

// SPDX-License-Identifier: GPL-2.0
#include <linux/cpu.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/timekeeping.h>
#include <asm/tsc.h>

#include "memory.h"
#include "probes.h"
#include "session.h"

static DEFINE_MUTEX(sessions_lock);
static LIST_HEAD(sessions);		/* from setup to close; readers by RCU */
static bool paused;

struct end_call {
	struct permille_core *core;
	u32 reason;
};

static void end_here(void *data)
{
	struct end_call *call = data;

	core_end(call->core, call->reason);
}

/*
 * Ends each core that has not, on that core. Afterwards no hook and no timer of the session runs
 * anywhere.
 */
static void end_cores(struct permille_session *session, u32 reason)
{
	u32 i;

	cpus_read_lock();
	for (i = 0; i < session->core_count; i++) {
		struct end_call call = { .core = &session->cores[i], .reason = reason };

		/* One that went offline has ended there */
		smp_call_function_single(session->cores[i].cpu, end_here, &call, 1);
		hrtimer_cancel(&session->cores[i].timer);
	}
	cpus_read_unlock();
}

/*
 * A core that went offline is not claimed any more when it is back: perf may have taken it since.
 */
static bool cores_stayed_online(const struct permille_session *session)
{
	u32 i;

	for (i = 0; i < session->core_count; i++) {
		const struct permille_core *core = &session->cores[i];

		if (!cpu_online(core->cpu) ||
		    core->departures != per_cpu(permille_departures, core->cpu))
			return false;
	}
	return true;
}

static int begin_cores(struct permille_session *session)
{
	u32 i;

	cpus_read_lock();
	if (!cores_stayed_online(session)) {
		cpus_read_unlock();
		return -ENODEV;
	}
	session->start_tsc = rdtsc_ordered();
	session->start_ns = ktime_get_real_ns();
	session->end = ktime_add_ns(ktime_get(), session->period_ns);
	/* Held until all have begun: a core that ends early must not look like the last */
	atomic_set(&session->active_cores, 1);
	WRITE_ONCE(session->started, true);
	for (i = 0; i < session->core_count; i++)
		smp_call_function_single(session->cores[i].cpu, core_begin, &session->cores[i], 1);
	cpus_read_unlock();
	session_core_ended(session);
	return 0;
}

/* -EBUSY while the machine is about to sleep or to stop */
int session_enlist(struct permille_session *session)
{
	int failed;

	mutex_lock(&sessions_lock);
	failed = paused ? -EBUSY : probes_attach();
	if (!failed)
		list_add_tail_rcu(&session->list, &sessions);
	mutex_unlock(&sessions_lock);
	return failed;
}

/* Afterwards no tracepoint looks at it. */
void session_delist(struct permille_session *session)
{
	mutex_lock(&sessions_lock);
	if (!list_empty(&session->list)) {
		list_del_rcu(&session->list);
		synchronize_rcu();
	}
	mutex_unlock(&sessions_lock);
}

static int start_locked(struct permille_session *session)
{
	if (session->started)
		return -EALREADY;
	if (paused)
		return -EBUSY;
	return begin_cores(session);
}

int session_start(struct permille_session *session)
{
	int failed;

	mutex_lock(&sessions_lock);
	failed = start_locked(session);
	mutex_unlock(&sessions_lock);
	return failed;
}

/* Any number of times, started or not. */
void session_stop(struct permille_session *session, u32 reason)
{
	mutex_lock(&sessions_lock);
	if (session->started)
		end_cores(session, reason);
	mutex_unlock(&sessions_lock);
	irq_work_sync(&session->ended_work);
}

void sessions_pause(u32 reason)
{
	struct permille_session *session;

	mutex_lock(&sessions_lock);
	paused = true;
	list_for_each_entry(session, &sessions, list)
		if (session->started)
			end_cores(session, reason);
	mutex_unlock(&sessions_lock);
}

void sessions_resume(void)
{
	mutex_lock(&sessions_lock);
	paused = false;
	mutex_unlock(&sessions_lock);
}

void session_core_ended(struct permille_session *session)
{
	if (atomic_dec_and_test(&session->active_cores))
		irq_work_queue(&session->ended_work);
}

u32 session_state(const struct permille_session *session)
{
	if (!READ_ONCE(session->started))
		return PERMILLE_READY;
	return atomic_read(&session->active_cores) ? PERMILLE_ACTIVE : PERMILLE_ENDED;
}

void session_status(const struct permille_session *session, struct permille_session_status *status)
{
	status->state = session_state(session);
	status->core_count = session->core_count;
	status->processes = READ_ONCE(session->targets.count);
	status->processes_missed = READ_ONCE(session->targets.missed);
	status->start_tsc = session->start_tsc;
	status->start_ns = session->start_ns;
	status->now_tsc = rdtsc_ordered();
	status->now_ns = ktime_get_real_ns();
	status->end_ns = ktime_to_ns(session->end);
}

/* Whether it has a thread that is not about to be gone */
static bool is_alive(u32 pid)
{
	const struct task_struct *task;
	bool is;

	rcu_read_lock();
	task = pid && pid <= INT_MAX ? pid_task(find_vpid(pid), PIDTYPE_TGID) : NULL;
	is = task && atomic_read(&task->signal->live);
	rcu_read_unlock();
	return is;
}

/*
 * A process that ends is taken out by sessions_exit when it has no live thread any more. It is put
 * in first and looked at then, so that one that ends meanwhile is taken out here or there.
 */
int session_add_process(struct permille_session *session, u32 pid)
{
	u32 i;

	if (!is_alive(pid))
		return -ESRCH;
	if (targets_have(&session->targets, pid))
		return 0;
	if (!targets_add(&session->targets, pid))
		return -ENOSPC;
	smp_mb();	/* before the look at its threads; with the count of them in do_exit */
	if (!is_alive(pid)) {
		targets_remove(&session->targets, pid);
		return -ESRCH;
	}
	/* It may be on a core already, and stay there for long. */
	for (i = 0; session->started && i < session->core_count; i++)
		smp_call_function_single(session->cores[i].cpu, core_look, &session->cores[i], 1);
	return 0;
}

struct status_call {
	struct permille_core *core;
	struct permille_core_status *status;
};

static void measure_here(void *data)
{
	struct status_call *call = data;

	if (call->core->armed && !call->core->ended)
		core_measure(call->core);
	*call->status = call->core->status;
}

int session_core_status(struct permille_session *session, u32 index,
			struct permille_core_status *status)
{
	struct status_call call = { .status = status };
	struct permille_core *core;

	if (index >= session->core_count)
		return -EINVAL;
	core = &session->cores[index];
	call.core = core;
	/* Where it is offline its part has ended, and nobody writes that any more. */
	if (smp_call_function_single(core->cpu, measure_here, &call, 1))
		*status = core->status;
	status->tracing = READ_ONCE(core->tracing);
	status->records = READ_ONCE(core->ring.head);
	status->records_dropped = READ_ONCE(core->ring.dropped);
	return 0;
}

/* A followed child is known before it first runs. */
void sessions_fork(u32 parent, u32 child)
{
	struct permille_session *session;

	rcu_read_lock();
	list_for_each_entry_rcu(session, &sessions, list)
		if ((session->flags & PERMILLE_FOLLOW_FORK) &&
		    targets_have(&session->targets, parent))
			targets_add(&session->targets, child);
	rcu_read_unlock();
}

void sessions_exit(u32 tgid)
{
	struct permille_session *session;

	rcu_read_lock();
	list_for_each_entry_rcu(session, &sessions, list)
		targets_remove(&session->targets, tgid);
	rcu_read_unlock();
}

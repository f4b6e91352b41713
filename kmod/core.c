// SPDX-License-Identifier: GPL-2.0
/*
 * Operation-aware control: TraceEn is set when a target first arrives and cleared when the period
 * ends. When a target leaves, nothing is done: the CR3 filter silences the core until the target is
 * back.
 */
#include <linux/sched.h>
#include <asm/msr-index.h>
#include <asm/tsc.h>

#include "core.h"
#include "pins.h"
#include "rtit.h"
#include "session.h"

DEFINE_PER_CPU(struct permille_core *, permille_active_core);
DEFINE_PER_CPU(u32, permille_departures);

bool permille_per_switch;

static void fault(struct permille_core *core)
{
	core_end(core, PERMILLE_END_FAULT);
}

static void turn_on(struct permille_core *core, u64 cr3)
{
	core->status.operations_on++;
	if (!rtit_on(core, cr3)) {
		fault(core);
		return;
	}
	core->tracing = true;
	if (!core->status.first_tsc)
		core->status.first_tsc = rdtsc_ordered();
}

static void turn_off(struct permille_core *core)
{
	core->status.operations_off++;
	core->tracing = false;
	core->status.last_tsc = rdtsc_ordered();
	if (!rtit_off(core))
		core->status.faults++;
}

static void retarget(struct permille_core *core, u64 cr3)
{
	core->status.retargets++;
	if (!rtit_off(core) || !rtit_on(core, cr3))
		fault(core);
}

static void record(struct permille_core *core, u64 tsc, u32 operation)
{
	const struct permille_switch one = {
		.tsc = tsc,
		.cpu = core->cpu,
		.pid = core->pid,
		.tid = core->tid,
		.operation = operation,
	};

	ring_write(&core->ring, &one);
}

static void leave(struct permille_core *core, u64 tsc)
{
	record(core, tsc, 0);
	core->pid = 0;
	core->tid = 0;
}

/* What the filter names now is pinned, and no longer than that. */
static void aim(struct permille_core *core, struct mm_struct *mm)
{
	struct mm_struct *former = core->mm;
	bool moves = (core->ctl & RTIT_CTL_CR3EN) && mm != former;
	u64 cr3 = rtit_cr3(mm);

	if (moves) {
		pin(mm);
		core->mm = mm;
	}
	if (!core->tracing)
		turn_on(core, cr3);
	else if ((core->ctl & RTIT_CTL_CR3EN) && cr3 != core->cr3)
		retarget(core, cr3);
	if (moves && former)
		unpin(former);
}

static void arrive(struct permille_core *core, struct task_struct *task, u64 tsc)
{
	core->pid = task->tgid;
	core->tid = task->pid;
	core->status.arrivals++;
	record(core, tsc, 1);
	/* A thread that exits has no memory any more, and runs no user code */
	if (task->mm)
		aim(core, task->mm);
}

static void count_hook(struct permille_core *core, u64 begin)
{
	u64 ticks = rdtsc_ordered() - begin;

	core->status.hook_calls++;
	core->status.hook_ticks += ticks;
	core->status.hook_ticks_max = max(core->status.hook_ticks_max, ticks);
}

static bool is_target(const struct permille_core *core, const struct task_struct *task)
{
	return !(task->flags & PF_KTHREAD) && targets_have(&core->session->targets, task->tgid);
}

/* Another task than a target costs the look into one line of a table. */
void core_switch(struct permille_core *core, struct task_struct *next)
{
	bool target = is_target(core, next);
	u64 begin;

	if (!target && !core->tid)
		return;
	begin = rdtsc_ordered();
	if (core->tid) {
		leave(core, begin);
		if (permille_per_switch && core->tracing)
			turn_off(core);
	}
	if (target)
		arrive(core, next, begin);
	count_hook(core, begin);
}

/*
 * The task has a new memory, and with it a new CR3. A thread that was not the first of its process
 * has that one's number now, too.
 */
void core_exec(struct permille_core *core, struct task_struct *task)
{
	u64 tsc;

	if (!core->tid || core->pid != task->tgid || !task->mm)
		return;
	if (core->tid != task->pid) {
		tsc = rdtsc_ordered();
		record(core, tsc, 0);
		core->tid = task->pid;
		record(core, tsc, 1);
	}
	aim(core, task->mm);
}

static enum hrtimer_restart period_over(struct hrtimer *timer)
{
	core_end(container_of(timer, struct permille_core, timer), PERMILLE_END_PERIOD);
	return HRTIMER_NORESTART;
}

void core_init(struct permille_core *core, struct permille_session *session, u32 index, u32 cpu)
{
	core->session = session;
	core->cpu = cpu;
	core->departures = READ_ONCE(per_cpu(permille_departures, cpu));
	core->status.index = index;
	core->status.cpu = cpu;
	hrtimer_init(&core->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED_HARD);
	core->timer.function = period_over;
}

/*
 * Who is on the core came without a switch that would tell: before the session, or before it was a
 * target.
 */
void core_look(void *data)
{
	struct permille_core *core = data;

	if (this_cpu_read(permille_active_core) == core && !core->tid && is_target(core, current))
		arrive(core, current, rdtsc_ordered());
}

void core_begin(void *data)
{
	struct permille_core *core = data;

	core->armed = true;
	atomic_inc(&core->session->active_cores);
	if (rtit->context)
		rtit->context(current->flags & PF_KTHREAD ? NULL : current->mm);
	if (!rtit_arm(core)) {
		fault(core);
		return;
	}
	hrtimer_start(&core->timer, core->session->end, HRTIMER_MODE_ABS_PINNED_HARD);
	this_cpu_write(permille_active_core, core);
	core_look(core);
}

void core_measure(struct permille_core *core)
{
	bool error = false;
	u64 table;
	u32 entry, offset;

	if (!core->status.first_tsc)
		return;
	core->status.full = rtit_stopped(core, &error);
	core->status.error = error;
	if (core->status.full)
		core->status.trace_bytes = core->topa.size;
	else if (rtit_position(core, &table, &entry, &offset))
		core->status.trace_bytes = topa_bytes(&core->topa, table, entry, offset);
}

void core_end(struct permille_core *core, u32 reason)
{
	if (!core->armed || core->ended)
		return;
	core->ended = true;
	core->status.end = reason;
	if (core->tracing)
		turn_off(core);
	if (core->mm)
		unpin(core->mm);
	core->mm = NULL;
	core_measure(core);
	if (core->status.error)
		core->status.end = PERMILLE_END_FAULT;
	rtit_disarm(core);
	if (core->tid)
		leave(core, rdtsc_ordered());
	if (this_cpu_read(permille_active_core) == core)
		this_cpu_write(permille_active_core, NULL);
	session_core_ended(core->session);
}

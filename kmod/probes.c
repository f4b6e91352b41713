// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/binfmts.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>

#include "core.h"
#include "probes.h"
#include "rtit.h"
#include "session.h"

/* Interrupts are off: the run queue is locked. */
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int prev_state)
{
	struct permille_core *core = this_cpu_read(permille_active_core);

	if (core)
		core_switch(core, next);
	if (rtit->context)
		rtit->context(next->flags & PF_KTHREAD ? NULL : next->mm);
}

static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	if (child->tgid != parent->tgid)
		sessions_fork(parent->tgid, child->tgid);
}

static void on_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	struct permille_core *core;
	unsigned long flags;

	local_irq_save(flags);
	core = this_cpu_read(permille_active_core);
	if (core)
		core_exec(core, task);
	if (rtit->context)
		rtit->context(task->mm);
	local_irq_restore(flags);
}

static void on_exit(void *data, struct task_struct *task)
{
	if (!atomic_read(&task->signal->live))
		sessions_exit(task->tgid);
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} probes[] = {
	{ "sched_switch", on_switch },
	{ "sched_process_fork", on_fork },
	{ "sched_process_exec", on_exec },
	{ "sched_process_exit", on_exit },
};

static bool attached;

static void match(struct tracepoint *tracepoint, void *data)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(tracepoint->name, probes[i].name))
			probes[i].tracepoint = tracepoint;
}

/* The kernel does not export these tracepoints by name, but it lists them. */
int probes_find(void)
{
	u32 i;

	for_each_kernel_tracepoint(match, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (!probes[i].tracepoint) {
			pr_err("the kernel has no tracepoint %s\n", probes[i].name);
			return -ENOENT;
		}
	}
	return 0;
}

static void unregister(u32 count)
{
	while (count--)
		tracepoint_probe_unregister(probes[count].tracepoint, probes[count].probe, NULL);
}

int probes_attach(void)
{
	u32 i;
	int failed;

	if (attached)
		return 0;
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		failed = tracepoint_probe_register(probes[i].tracepoint, probes[i].probe, NULL);
		if (failed) {
			unregister(i);
			return failed;
		}
	}
	attached = true;
	return 0;
}

/* Afterwards no probe runs any more. */
void probes_detach(void)
{
	if (!attached)
		return;
	unregister(ARRAY_SIZE(probes));
	tracepoint_synchronize_unregister();
}

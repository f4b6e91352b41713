/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One core of a session. Its state changes only on that core with interrupts off (switch hook,
 * timer, inter-processor call, hotplug), so that it needs no lock.
 */
#ifndef PERMILLE_CORE_H
#define PERMILLE_CORE_H

#include <linux/hrtimer.h>
#include <linux/percpu.h>
#include <linux/types.h>

#include <permille.h>
#include "ring.h"
#include "rtit.h"
#include "topa.h"

struct mm_struct;
struct permille_session;
struct task_struct;

struct permille_core {
	struct permille_session *session;
	u32 cpu;
	bool claimed, armed, tracing, ended;
	u32 departures;		/* of the core, when it was claimed */
	bool borrowed;		/* the registers, from whoever used them before */
	u64 former[RTIT_BORROWED];
	u64 ctl;		/* RTIT_CTL but TraceEn */
	u64 cr3;		/* in RTIT_CR3_MATCH */
	struct mm_struct *mm;	/* whose CR3 that is, pinned; NULL: none, or no filter */
	u32 pid, tid;		/* the target's thread that is on the core; 0: none */
	struct hrtimer timer;
	struct topa topa;
	struct switch_ring ring;
	struct permille_core_status status;
};

/*
 * The core's part in an active session, or NULL: all that a switch of a machine without sessions
 * looks at
 */
DECLARE_PER_CPU(struct permille_core *, permille_active_core);

/* How often the core went offline, and perf's event that kept others away from it with it */
DECLARE_PER_CPU(u32, permille_departures);

extern bool permille_per_switch;

void core_init(struct permille_core *core, struct permille_session *session, u32 index, u32 cpu);

/* On the core, interrupts off. The first two are for smp_call_function_single. */
void core_begin(void *core);
void core_look(void *core);
void core_end(struct permille_core *core, u32 reason);
void core_switch(struct permille_core *core, struct task_struct *next);
void core_exec(struct permille_core *core, struct task_struct *task);
void core_measure(struct permille_core *core);

#endif

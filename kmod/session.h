/* SPDX-License-Identifier: GPL-2.0 */
/* One recording: processes, cores, a period. One open file has one. */
#ifndef PERMILLE_SESSION_H
#define PERMILLE_SESSION_H

#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/wait.h>

#include <permille.h>
#include "core.h"
#include "targets.h"

struct permille_session {
	u32 flags;
	u32 core_count;
	u64 period_ns;
	u64 memory;
	bool started;
	ktime_t end;
	u64 start_tsc, start_ns;
	struct targets targets;
	atomic_t active_cores;
	struct irq_work ended_work;	/* wakes who polls: the hook and the timer may not */
	wait_queue_head_t ended;
	struct list_head list;		/* in sessions, from setup to close */
	struct rcu_head rcu;
	struct permille_core cores[];
};

struct permille_session *session_create(struct permille_setup *setup);
/* From here on forks and ends of its processes are followed. */
int session_enlist(struct permille_session *session);
void session_delist(struct permille_session *session);
/* 0, also for one that it has; -ESRCH, -ENOSPC */
int session_add_process(struct permille_session *session, u32 pid);
/* Fails with process->refusal telling why. */
int session_join(struct permille_session *session, struct permille_process *process);
int session_start(struct permille_session *session);
void session_stop(struct permille_session *session, u32 reason);
void session_destroy(struct permille_session *session);
u32 session_state(const struct permille_session *session);
void session_status(const struct permille_session *session, struct permille_session_status *status);
int session_core_status(struct permille_session *session, u32 index,
			struct permille_core_status *status);
u32 session_count(void);

/* From a core, interrupts off */
void session_core_ended(struct permille_session *session);

/* Nothing starts while the machine is about to sleep or stop. */
void sessions_pause(u32 reason);
void sessions_resume(void);

/* From tracepoints */
void sessions_fork(u32 parent, u32 child);
void sessions_exit(u32 tgid);

#endif

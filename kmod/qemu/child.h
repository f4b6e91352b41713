/* SPDX-License-Identifier: GPL-2.0 */
/* Processes that do one thing when they are told to. */
#ifndef CHILD_H
#define CHILD_H

#include <sys/types.h>

void go_to_core(unsigned int cpu);

/* Waits for SIGUSR1, then does what it is told on core 1, and stops: wait_done waits for that. */
pid_t waiting_child(void (*what)(void));
void wait_done(pid_t pid);
struct recording;
/* Ends both. */
void end_child(struct recording *r, pid_t pid);

/* One after the other, which end at once */
void fork_short(int count);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* Processes that switch: rings of threads that hand a token on. */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <sys/types.h>

struct load {
	pid_t pid;
	unsigned int threads;
	int go, done;		/* pipes */
	bool going;
};

/* Threads wait; cpu -1: wherever the scheduler likes. */
struct load load_begin(unsigned int threads, int cpu);
/* The same, and the token goes round for ever. */
struct load load_endless(unsigned int threads, int cpu);
/* Each thread computes so many steps before it hands on, so that switches are rarer. */
struct load load_begin_working(unsigned int threads, int cpu, unsigned int steps);
/*
 * Lets the token go round; load_finish waits until it has, any number of times. With rounds 0 it
 * goes on for ever.
 */
void load_go(struct load *load, unsigned int rounds);
void load_finish(struct load *load);
void load_kill(struct load *load);

struct recording;
/* Begins the session, in which the load does so much, and no more until it is told to. */
void record_rounds(struct recording *r, struct load *load, unsigned int rounds);
/* Ends both, and with them the test */
void conclude(struct recording *r, struct load *load, const char *what);

/* Voluntary and involuntary switches away from all threads, or of one, as the kernel counts them */
long switches_of(pid_t pid, pid_t tid);

/* Returns how many. */
unsigned int threads_of(pid_t pid, pid_t *tids, unsigned int most);

#endif

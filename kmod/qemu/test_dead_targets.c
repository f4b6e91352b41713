// SPDX-License-Identifier: GPL-2.0
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

/* From core 0, so that a child which has ended on core 1 is the last target there. */
static void leave_a_dead_child_on_core_1(void)
{
	go_to_core(0);
	for (;;) {
		pid_t pid = fork();

		if (!pid) {
			go_to_core(1);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		raise(SIGSTOP);
	}
}

/*
 * In a process that is no target: each of its children has page tables of its own, out of what this
 * core has got back last.
 */
static void run_others_on_core_1(void)
{
	pid_t others = fork();

	if (!others) {
		go_to_core(1);
		fork_short(20);
		_exit(0);
	}
	waitpid(others, NULL, 0);
}

static void records_nobody_in_the_place_of_the_dead(void)
{
	pid_t pid = waiting_child(leave_a_dead_child_on_core_1);
	unsigned long long others = 0;
	struct recording r;

	propose(&r, pid, 1, 1);
	r.setup.flags |= PERMILLE_FOLLOW_FORK;
	record(&r);
	kill(pid, SIGUSR1);
	for (int turn = 0; turn < 20; turn++) {
		struct permille_core_status core;

		wait_done(pid);
		core = core_status(&r, 0);
		check(core.retargets > (unsigned int)turn,
		      "the filter is not at a child: %llu retargets", core.retargets);
		run_others_on_core_1();
		others += core_status(&r, 0).trace_bytes - core.trace_bytes;
		kill(pid, SIGCONT);
	}
	check(!others, "%llu bytes of processes that are no targets", others);
	end_child(&r, pid);
	result("a process that gets the page tables' place after a target's end is not recorded");
}

/* mm_structs that the kernel has */
static long memories(void)
{
	FILE *file = fopen("/proc/slabinfo", "re");
	char line[256];
	long count = -1;

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "mm_struct %ld", &count);
	if (file)
		fclose(file);
	return count;
}

#define CHILDREN 500

static void fork_children(void)
{
	fork_short(CHILDREN);
}

static void keeps_no_memory_of_the_dead(void)
{
	pid_t pid = waiting_child(fork_children);
	struct recording r;
	long before;

	propose(&r, pid, 1, 1);
	r.setup.flags |= PERMILLE_FOLLOW_FORK;
	record(&r);
	before = memories();
	kill(pid, SIGUSR1);
	wait_done(pid);
	check(core_status(&r, 0).retargets >= CHILDREN, "%llu retargets",
	      core_status(&r, 0).retargets);
	while (memories() > before + CHILDREN / 5 && session_status(&r).state == PERMILLE_ACTIVE)
		usleep(10000);
	check(before > 0 && memories() <= before + CHILDREN / 5, "%ld memories before, %ld after",
	      before, memories());
	end_child(&r, pid);
	result("of the children that have ended a session keeps one memory a core, not all");
}

static void target_that_ends(void)
{
	struct load load = load_endless(2, -1);
	struct recording r;

	propose(&r, load.pid, 0, 2);
	record(&r);
	load_kill(&load);
	check(!session_status(&r).processes, "%u processes", session_status(&r).processes);
	stop(&r);
	for (unsigned int i = 0; i < 2; i++) {
		uint64_t head = r.rings[i]->head;

		check(!core_status(&r, i).faults, "faults");
		check(!head || !switch_at(&r, i, head - 1)->operation,
		      "the last record of core %u is no departure", i);
	}
	close_recording(&r);
	result("a target that ends is seen to leave");
}

void test_dead_targets(void)
{
	records_nobody_in_the_place_of_the_dead();
	keeps_no_memory_of_the_dead();
	target_that_ends();
}

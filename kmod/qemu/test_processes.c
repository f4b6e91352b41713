// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

/* Waits for a signal, then does what it is told on core 1. */
static pid_t waiting_child(void (*what)(void))
{
	sigset_t set;
	pid_t pid;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	pid = fork();
	if (!pid) {
		cpu_set_t core;

		CPU_ZERO(&core);
		CPU_SET(1, &core);
		sched_setaffinity(0, sizeof(core), &core);
		sigwait(&set, &signal);
		what();
		for (;;)
			pause();
	}
	return pid;
}

static void fork_five(void)
{
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();

		if (!pid) {
			usleep(1000);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

static void exec_itself(void)
{
	execl("/init", "sleeper", NULL);
}

static unsigned int pids_in(struct recording *r)
{
	uint32_t seen[16];
	unsigned int count = 0, i;

	for (uint64_t at = 0; at < r->rings[0]->head && count < 16; at++) {
		for (i = 0; i < count && seen[i] != switch_at(r, 0, at)->pid; i++)
			;
		if (i == count)
			seen[count++] = switch_at(r, 0, at)->pid;
	}
	return count;
}

static bool forks_are_over(struct recording *r, unsigned int pids)
{
	return pids_in(r) >= pids && session_status(r).processes == 1;
}

static void follows_forks(void)
{
	for (unsigned int follow = 0; follow < 2; follow++) {
		pid_t pid = waiting_child(fork_five);
		struct permille_core_status core;
		struct recording r;

		propose(&r, pid, 1, 1);
		r.setup.flags |= follow ? PERMILLE_FOLLOW_FORK : 0;
		record(&r);
		kill(pid, SIGUSR1);
		for (int turn = 0; turn < 3 || (turn < 90 && !forks_are_over(&r, follow ? 6 : 1)); turn++)
			usleep(100000);
		check(session_status(&r).processes == 1, "%u processes are alive", session_status(&r).processes);
		stop(&r);
		core = core_status(&r, 0);
		check(pids_in(&r) == (follow ? 6 : 1), "%u processes recorded", pids_in(&r));
		check(follow ? core.retargets >= 5 : !core.retargets, "%llu retargets", core.retargets);
		check(core.operations_on == 1 && core.operations_off == 1 && !core.faults, "%llu on, %llu off, %u faults",
		      core.operations_on, core.operations_off, core.faults);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close_recording(&r);
	}
	result("forked processes are followed where asked for, and forgotten when they end");
}

static void follows_exec(void)
{
	pid_t pid = waiting_child(exec_itself);
	struct permille_core_status core;
	struct recording r;

	propose(&r, pid, 1, 1);
	record(&r);
	kill(pid, SIGUSR1);
	for (int turn = 0; turn < 90 && (!core_status(&r, 0).retargets || core_status(&r, 0).arrivals <= 10); turn++)
		usleep(100000);
	stop(&r);
	core = core_status(&r, 0);
	check(core.retargets == 1, "%llu retargets", core.retargets);
	check(core.arrivals > 5, "%llu arrivals", core.arrivals);
	check(core.trace_bytes == 32 * (core.arrivals + 1), "%llu bytes of %llu arrivals and an exec", core.trace_bytes,
	      core.arrivals);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close_recording(&r);
	result("after exec the filter follows to the new memory, and recording goes on");
}

static void later_threads_belong_to_it(void)
{
	struct load load = load_begin(10, 1);
	struct recording r;

	propose(&r, load.pid, 1, 1);
	record(&r);
	load_go(&load, 100);
	load_finish(&load);
	check(core_status(&r, 0).arrivals >= 1000, "%llu arrivals", core_status(&r, 0).arrivals);
	check(pids_in(&r) == 1, "%u processes", pids_in(&r));
	close_recording(&r);
	load_kill(&load);
	result("all threads of a process are its target");
}

static void several_processes(void)
{
	struct load loads[2] = { load_begin(2, 1), load_begin(2, 1) };
	struct permille_core_status core;
	struct recording r;

	propose(&r, loads[0].pid, 1, 1);
	r.pids[1] = loads[1].pid;
	r.setup.process_count = 2;
	record(&r);
	for (int i = 0; i < 2; i++)
		load_go(&loads[i], 300);
	for (int i = 0; i < 2; i++)
		load_finish(&loads[i]);
	stop(&r);
	core = core_status(&r, 0);
	check(pids_in(&r) == 2, "%u processes", pids_in(&r));
	check(core.operations_on == 1 && core.operations_off == 1, "%llu on, %llu off", core.operations_on,
	      core.operations_off);
	check(core.trace_bytes >= 32 * core.arrivals, "%llu bytes of %llu arrivals", core.trace_bytes, core.arrivals);
	note("two processes on one core: %llu arrivals, %llu retargets", core.arrivals, core.retargets);
	close_recording(&r);
	for (int i = 0; i < 2; i++)
		load_kill(&loads[i]);
	result("several processes are one session, the filter moves between them");
}

static void target_that_ends(void)
{
	struct load load = load_begin(2, 1);
	struct recording r;

	propose(&r, load.pid, 0, 2);
	r.setup.period_ns = 200000000;
	load_go(&load, 0);
	record(&r);
	usleep(20000);
	load_kill(&load);
	check(!session_status(&r).processes, "%u processes", session_status(&r).processes);
	wait_end(&r);
	for (unsigned int i = 0; i < 2; i++) {
		uint64_t head = r.rings[i]->head;

		check(!core_status(&r, i).faults, "faults");
		check(!head || !switch_at(&r, i, head - 1)->operation, "the last record of core %u is no departure", i);
	}
	close_recording(&r);
	result("a target that ends is seen to leave, and the session ends by its period");
}

void test_processes(void)
{
	later_threads_belong_to_it();
	several_processes();
	follows_forks();
	follows_exec();
	target_that_ends();
}

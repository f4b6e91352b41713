// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

/* Waits for a signal, then does what it is told on core 1, and stops: wait_done waits for that. */
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
		raise(SIGSTOP);
	}
	return pid;
}

static void wait_done(pid_t pid)
{
	int status = 0;

	check(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "process %d ended with %#x", pid, status);
}

static void end_child(struct recording *r, pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close_recording(r);
}

static void fork_five(void)
{
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

static void exec_itself(void)
{
	execl("/init", "sleeper", NULL);
}

static void *nothing(void *unused)
{
	return NULL;
}

static void run_five_threads(void)
{
	pthread_t thread;

	for (int i = 0; i < 5; i++) {
		pthread_create(&thread, NULL, nothing, NULL);
		pthread_join(thread, NULL);
	}
}

/* How many processes, or threads, the records of the first core tell of */
static unsigned int different(const struct recording *r, bool threads)
{
	uint32_t seen[16];
	unsigned int count = 0, i;

	for (uint64_t at = 0; at < r->rings[0]->head && count < 16; at++) {
		const struct permille_switch *one = switch_at(r, 0, at);
		uint32_t number = threads ? one->tid : one->pid;

		for (i = 0; i < count && seen[i] != number; i++)
			;
		if (i == count)
			seen[count++] = number;
	}
	return count;
}

static unsigned int pids_in(const struct recording *r)
{
	return different(r, false);
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
		wait_done(pid);
		check(session_status(&r).processes == 1, "%u processes are alive", session_status(&r).processes);
		stop(&r);
		core = core_status(&r, 0);
		check(pids_in(&r) == (follow ? 6 : 1), "%u processes recorded", pids_in(&r));
		check(follow ? core.retargets >= 5 : !core.retargets, "%llu retargets", core.retargets);
		check(core.operations_on == 1 && core.operations_off == 1 && !core.faults, "%llu on, %llu off, %u faults",
		      core.operations_on, core.operations_off, core.faults);
		end_child(&r, pid);
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
	while (!core_status(&r, 0).retargets || core_status(&r, 0).arrivals <= 10)
		usleep(10000);
	stop(&r);
	core = core_status(&r, 0);
	check(core.retargets == 1, "%llu retargets", core.retargets);
	check(core.trace_bytes == 32 * (core.arrivals + 1), "%llu bytes of %llu arrivals and an exec", core.trace_bytes,
	      core.arrivals);
	end_child(&r, pid);
	result("after exec the filter follows to the new memory, and recording goes on");
}

static void all_threads_belong_to_it(void)
{
	struct load load = load_begin(10, 1);
	struct recording r;

	propose(&r, load.pid, 1, 1);
	record_rounds(&r, &load, 100);
	check(core_status(&r, 0).arrivals >= 1000, "%llu arrivals", core_status(&r, 0).arrivals);
	check(pids_in(&r) == 1, "%u processes", pids_in(&r));
	conclude(&r, &load, "all threads of a process are its target");
}

static void later_threads_belong_to_it(void)
{
	pid_t pid = waiting_child(run_five_threads);
	struct recording r;

	propose(&r, pid, 1, 1);
	record(&r);
	kill(pid, SIGUSR1);
	wait_done(pid);
	stop(&r);
	check(different(&r, true) == 6 && pids_in(&r) == 1, "%u threads of %u processes", different(&r, true), pids_in(&r));
	end_child(&r, pid);
	result("threads that begin during a session are its target too");
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
	check(core.retargets && core.trace_bytes >= 32 * core.arrivals, "%llu bytes of %llu arrivals, %llu retargets",
	      core.trace_bytes, core.arrivals, core.retargets);
	note("two processes on one core: %llu arrivals, %llu retargets", core.arrivals, core.retargets);
	close_recording(&r);
	for (int i = 0; i < 2; i++)
		load_kill(&loads[i]);
	result("several processes are one session, the filter moves between them");
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
		check(!head || !switch_at(&r, i, head - 1)->operation, "the last record of core %u is no departure", i);
	}
	close_recording(&r);
	result("a target that ends is seen to leave");
}

void test_processes(void)
{
	all_threads_belong_to_it();
	later_threads_belong_to_it();
	several_processes();
	follows_forks();
	follows_exec();
	target_that_ends();
}

// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

static void fork_five(void)
{
	fork_short(5);
}

static void exec_itself(void)
{
	execl("/init", "sleeper", NULL);
}

static void *exec_in_thread(void *unused)
{
	exec_itself();
	return NULL;
}

/* The process goes on under its own number, which is that of its first thread. */
static void exec_in_another_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, exec_in_thread, NULL);
	pthread_join(thread, NULL);
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
	static bool seen[1 << 22];	/* by the largest number that a process can have */
	unsigned int count = 0;

	memset(seen, 0, sizeof(seen));
	for (uint64_t at = 0; at < r->rings[0]->head; at++) {
		const struct permille_switch *one = switch_at(r, 0, at);
		uint32_t number = threads ? one->tid : one->pid;

		count += !seen[number];
		seen[number] = true;
	}
	return count;
}

static unsigned int pids_in(const struct recording *r)
{
	return different(r, false);
}

/* The process whose children are born while it is recorded. */
static pid_t record_while_born(struct recording *r, void (*children)(void), bool follow)
{
	pid_t pid = waiting_child(children);

	propose(r, pid, 1, 1);
	r->setup.flags |= follow ? PERMILLE_FOLLOW_FORK : 0;
	record(r);
	kill(pid, SIGUSR1);
	wait_done(pid);
	return pid;
}

static void follows_forks(void)
{
	for (unsigned int follow = 0; follow < 2; follow++) {
		struct permille_core_status core;
		struct recording r;
		pid_t pid = record_while_born(&r, fork_five, follow);

		check(session_status(&r).processes == 1, "%u processes are alive",
		      session_status(&r).processes);
		stop(&r);
		core = core_status(&r, 0);
		check(pids_in(&r) == (follow ? 6 : 1), "%u processes recorded", pids_in(&r));
		check(follow ? core.retargets >= 5 : !core.retargets, "%llu retargets",
		      core.retargets);
		check(core.operations_on == 1 && core.operations_off == 1 && !core.faults,
		      "%llu on, %llu off, %u faults", core.operations_on, core.operations_off,
		      core.faults);
		end_child(&r, pid);
	}
	result("forked processes are followed where asked for, and forgotten when they end");
}

/* A child that shares this program's memory leaves the core twice, and comes back. */
static void vfork_five(void)
{
	for (int i = 0; i < 5; i++) {
		pid_t pid = vfork();

		if (!pid) {
			usleep(10000);
			usleep(10000);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

/* The filter knows memory, not processes: it matches this child, whether a target or not. */
static void tells_who_shares_the_memory(void)
{
	for (unsigned int follow = 0; follow < 2; follow++) {
		struct permille_core_status core;
		struct recording r;
		pid_t pid = record_while_born(&r, vfork_five, follow);

		stop(&r);
		core = core_status(&r, 0);
		check(pids_in(&r) == (follow ? 6 : 1), "%u processes recorded", pids_in(&r));
		check(different(&r, true) == (follow ? 6 : 1), "%u threads recorded",
		      different(&r, true));
		check(!core.retargets && !core.faults, "%llu retargets, %u faults", core.retargets,
		      core.faults);
		check(follow ? core.trace_bytes <= 32 * core.arrivals :
		      core.trace_bytes > 32 * core.arrivals, "%llu bytes of %llu arrivals",
		      core.trace_bytes, core.arrivals);
		end_child(&r, pid);
	}
	result("a child of vfork is recorded, with records of its own where forks are followed");
}

#define MANY 3000

static void fork_many(void)
{
	fork_short(MANY);
	raise(SIGSTOP);
	fork_five();
}

/*
 * The many come before the start: a period is too short for them where a machine has no time for
 * this one.
 */
static void follows_however_many_came_before(void)
{
	pid_t pid = waiting_child(fork_many);
	struct recording r;

	propose(&r, pid, 1, 1);
	r.setup.flags |= PERMILLE_FOLLOW_FORK;
	check(!set_up(&r), "setup");
	map(&r);
	kill(pid, SIGUSR1);
	wait_done(pid);
	check(!start(&r), "start");
	kill(pid, SIGCONT);
	wait_done(pid);
	stop(&r);
	check(pids_in(&r) == 6, "%u processes recorded", pids_in(&r));
	check(session_status(&r).processes == 1 && !session_status(&r).processes_missed,
	      "%u processes, %u missed", session_status(&r).processes,
	      session_status(&r).processes_missed);
	end_child(&r, pid);
	result("thousands of short children leave room for later ones");
}

/* A child with that number, which must be free. What it does there it does for ever. */
static pid_t child_numbered(pid_t number, void (*what)(void))
{
	struct clone_args arguments = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number,
					.set_tid_size = 1 };
	pid_t pid = syscall(SYS_clone3, &arguments, sizeof(arguments));

	if (!pid)
		for (;;)
			what();
	check(pid == number, "no process %d: %s", number, strerror(errno));
	return pid;
}

static void rest(void)
{
	pause();
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/*
 * The line of the module's table that a process can be in: hash_32(pid, TARGETS_BITS) of targets.h
 */
static unsigned int line_of(uint32_t pid)
{
	return pid * 0x61c88647u >> 24;
}

#define LINE 16

/*
 * This program forks one process more than a line has room for, and then another when one of them
 * has ended.
 */
static void counts_who_finds_no_room(void)
{
	struct permille_process beyond = {};
	struct recording r;
	pid_t pids[LINE + 2], pid = 20000;
	int failed;

	for (int i = 0; i < LINE + 2; pids[i++] = pid++)
		while (line_of(pid) != line_of(20000))
			pid++;
	propose(&r, getpid(), 0, 1);
	r.setup.flags |= PERMILLE_FOLLOW_FORK;
	check(!set_up(&r) && !start(&r), "no session");
	for (int i = 0; i <= LINE; i++)
		child_numbered(pids[i], rest);
	check(session_status(&r).processes == LINE + 1 && session_status(&r).processes_missed == 1,
	      "%u processes, %u missed", session_status(&r).processes,
	      session_status(&r).processes_missed);
	beyond.pid = pids[LINE];
	failed = add_process(&r, &beyond);
	check(failed == ENOSPC && beyond.refusal == PERMILLE_REFUSED_ROOM &&
	      beyond.refused_value == beyond.pid,
	      "%s, refusal %u for %u", strerror(failed), beyond.refusal, beyond.refused_value);
	end_process(pids[0]);
	child_numbered(pids[LINE + 1], rest);
	check(session_status(&r).processes == LINE + 1 && session_status(&r).processes_missed == 2,
	      "%u processes, %u missed", session_status(&r).processes,
	      session_status(&r).processes_missed);
	for (int i = 1; i < LINE + 2; i++)
		end_process(pids[i]);
	check(session_status(&r).processes == 1, "%u processes are alive",
	      session_status(&r).processes);
	close_recording(&r);
	result("a process that finds no room is counted, and the place of one that ended is used again");
}

static void run_on_core_1(void)
{
	go_to_core(1);
	for (volatile unsigned int step = 0; ; step++)
		;
}

/* Waits until a process is on the core of the session, as what its records tell of it last. */
static bool comes(const struct recording *r, pid_t pid)
{
	for (uint64_t at = 0; ; at++) {
		while (at >= __atomic_load_n(&r->rings[0]->head, __ATOMIC_ACQUIRE)) {
			if (session_status(r).state != PERMILLE_ACTIVE)
				return false;
			usleep(1000);
		}
		if (switch_at(r, 0, at)->pid == (uint32_t)pid)
			return true;
	}
}

static bool is_recorded(const struct recording *r, pid_t pid)
{
	for (uint64_t at = 0; at < r->rings[0]->head; at++)
		if (switch_at(r, 0, at)->pid == (uint32_t)pid)
			return true;
	return false;
}

static void follows_from_setup_on(void)
{
	pid_t pid = waiting_child(fork_five), gone = child_numbered(21000, rest), again;
	struct recording r;

	propose(&r, pid, 1, 1);
	r.pids[1] = gone;
	r.setup.process_count = 2;
	r.setup.flags |= PERMILLE_FOLLOW_FORK;
	check(!set_up(&r), "setup");
	map(&r);
	check(session_status(&r).processes == 2, "%u processes", session_status(&r).processes);
	end_process(gone);
	check(session_status(&r).processes == 1, "%u processes after one ended",
	      session_status(&r).processes);
	/* Another process comes to its number, and runs on the core of the session. */
	again = child_numbered(gone, run_on_core_1);
	check(!start(&r), "start");
	kill(pid, SIGUSR1);
	wait_done(pid);
	stop(&r);
	check(pids_in(&r) == 6 && !is_recorded(&r, again), "%u processes recorded", pids_in(&r));
	end_process(again);
	end_child(&r, pid);
	result("from setup on a target that ends is none, whoever comes to its number");
}

static void forks_before_start(void)
{
	static int begun[2], go[2];
	struct recording r;
	pid_t pid, forked;
	char byte = 0;

	check(!pipe(begun) && !pipe(go), "no pipe");
	pid = fork();
	if (!pid) {
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		forked = fork();
		if (!forked)
			run_on_core_1();
		if (write(begun[1], &forked, sizeof(forked)) == sizeof(forked))
			pause();
	}
	propose(&r, pid, 1, 1);
	r.setup.flags |= PERMILLE_FOLLOW_FORK;
	check(!set_up(&r), "setup");
	map(&r);
	check(write(go[1], &byte, 1) == 1 &&
	      read(begun[0], &forked, sizeof(forked)) == sizeof(forked), "it does not fork");
	check(session_status(&r).processes == 2, "%u processes", session_status(&r).processes);
	check(!start(&r), "start");
	for (int ms = 0; ms < 20000 && !is_recorded(&r, forked); ms++)
		usleep(1000);
	stop(&r);
	check(is_recorded(&r, forked), "what it forked is not recorded");
	/* The target itself may still be on its way to rest there. */
	check(pids_in(&r) == 1u + is_recorded(&r, pid), "%u processes recorded", pids_in(&r));
	for (int i = 0; i < 2; i++) {
		close(begun[i]);
		close(go[i]);
	}
	kill(forked, SIGKILL);
	end_child(&r, pid);
	result("what a target forks between setup and start is recorded");
}

/*
 * Nothing else wants core 1, so that a process that is added stays there: only the module can see
 * that it is there already.
 */
static void joins(void)
{
	struct load load = load_begin(2, 0);
	pid_t early = child_numbered(22000, run_on_core_1), late;
	struct permille_process one = { .pid = early };
	struct recording r;

	propose(&r, load.pid, 1, 1);
	check(!set_up(&r), "setup");
	map(&r);
	check(!add_process(&r, &one) && session_status(&r).processes == 2, "refusal %u",
	      one.refusal);
	check(!add_process(&r, &one) && session_status(&r).processes == 2,
	      "twice it is another one");
	check(!start(&r), "start");
	check(comes(&r, early), "what was added before the start is not recorded");
	end_process(early);
	late = child_numbered(22001, run_on_core_1);
	one.pid = late;
	check(!is_recorded(&r, late), "it is recorded before it is added");
	check(!add_process(&r, &one) && comes(&r, late), "what was added later is not recorded");
	check(core_status(&r, 0).trace_bytes > 0 && !core_status(&r, 0).faults, "%llu bytes",
	      core_status(&r, 0).trace_bytes);
	stop(&r);
	one.pid = load.pid;
	check(add_process(&r, &one) == EALREADY && one.refusal == PERMILLE_REFUSED_ENDED,
	      "refusal %u", one.refusal);
	end_process(late);
	conclude(&r, &load,
		 "a process that joins is recorded from then on, and no session that is over takes one");
}

/* The process that calls exec and then runs on, recorded from before until after that */
static pid_t record_over_exec(struct recording *r, void (*exec)(void))
{
	pid_t pid = waiting_child(exec);

	propose(r, pid, 1, 1);
	record(r);
	kill(pid, SIGUSR1);
	while (!core_status(r, 0).retargets || core_status(r, 0).arrivals <= 10)
		usleep(10000);
	stop(r);
	return pid;
}

static void follows_exec(void)
{
	struct permille_core_status core;
	struct recording r;
	pid_t pid = record_over_exec(&r, exec_itself);

	core = core_status(&r, 0);
	check(core.retargets == 1, "%llu retargets", core.retargets);
	check(core.trace_bytes == 32 * (core.arrivals + 1),
	      "%llu bytes of %llu arrivals and an exec", core.trace_bytes, core.arrivals);
	end_child(&r, pid);
	result("after exec the filter follows to the new memory, and recording goes on");
}

/* Whether a stay has ended, and another one begun, without a switch */
static bool renamed_by_exec(void)
{
	struct permille_core_status core;
	uint32_t on_core = 0;
	struct recording r;
	pid_t pid = record_over_exec(&r, exec_in_another_thread);

	core = core_status(&r, 0);
	check(different(&r, true) == 2, "%u threads recorded", different(&r, true));
	for (uint64_t at = 0; at < r.rings[0]->head; at++) {
		const struct permille_switch *one = switch_at(&r, 0, at);

		check(on_core == (one->operation ? 0 : one->tid), "record %llu: %u, on the core is %u",
		      (unsigned long long)at, one->tid, on_core);
		on_core = one->operation ? one->tid : 0;
	}
	check(core.records == 2 * core.arrivals || core.records == 2 * core.arrivals + 2,
	      "%llu records of %llu arrivals", core.records, core.arrivals);
	end_child(&r, pid);
	return core.records > 2 * core.arrivals;
}

static void tells_who_calls_exec(void)
{
	bool renamed = false;

	/* One that leaves the core between its new number and its new memory has come back with it. */
	for (unsigned int turn = 0; turn < 5 && !renamed; turn++)
		renamed = renamed_by_exec();
	check(renamed, "the thread that calls exec goes on under its former number");
	result("a thread that calls exec is its process's first thread from then on");
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
	check(different(&r, true) == 6 && pids_in(&r) == 1, "%u threads of %u processes",
	      different(&r, true), pids_in(&r));
	end_child(&r, pid);
	result("threads that begin during a session are its target too");
}

static void several_processes(void)
{
	static const char switched[] = "/sys/module/permille/parameters/model_switched";
	struct load loads[2] = { load_begin(2, 1), load_begin(2, 1) };
	struct permille_core_status core;
	struct recording r;
	unsigned long long before;

	propose(&r, loads[0].pid, 1, 1);
	r.pids[1] = loads[1].pid;
	r.setup.process_count = 2;
	before = read_number(switched);
	record(&r);
	for (int i = 0; i < 2; i++)
		load_go(&loads[i], 300);
	for (int i = 0; i < 2; i++)
		load_finish(&loads[i]);
	stop(&r);
	core = core_status(&r, 0);
	check(pids_in(&r) == 2, "%u processes", pids_in(&r));
	check(core.operations_on == 1 && core.operations_off == 1, "%llu on, %llu off",
	      core.operations_on, core.operations_off);
	check(core.retargets && core.trace_bytes >= 32 * core.arrivals,
	      "%llu bytes of %llu arrivals, %llu retargets", core.trace_bytes, core.arrivals,
	      core.retargets);
	check(read_number(switched) - before ==
	      core.operations_on + core.operations_off + 2 * core.retargets,
	      "TraceEn changed %llu times: %llu on, %llu off, %llu retargets",
	      read_number(switched) - before, core.operations_on, core.operations_off,
	      core.retargets);
	note("two processes on one core: %llu arrivals, %llu retargets", core.arrivals,
	     core.retargets);
	close_recording(&r);
	for (int i = 0; i < 2; i++)
		load_kill(&loads[i]);
	result("several processes are one session, the filter moves between them, at two control operations each time");
}

void test_processes(void)
{
	all_threads_belong_to_it();
	later_threads_belong_to_it();
	several_processes();
	follows_forks();
	tells_who_shares_the_memory();
	follows_however_many_came_before();
	counts_who_finds_no_room();
	follows_from_setup_on();
	forks_before_start();
	joins();
	follows_exec();
	tells_who_calls_exec();
}

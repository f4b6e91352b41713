// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

#define CORE1 "/sys/devices/system/cpu/cpu1/online"

/* A process that records the load for a minute, and tells when it has begun */
static pid_t owner_of(pid_t target)
{
	int begun[2];
	char byte = 0;
	pid_t pid;

	if (pipe(begun))
		abort();
	pid = fork();
	if (!pid) {
		struct recording r;

		propose(&r, target, 0, 2);
		if (!set_up(&r) && !start(&r))
			byte = 1;
		if (write(begun[1], &byte, 1) == 1)
			pause();
		_exit(1);
	}
	close(begun[1]);
	check(read(begun[0], &byte, 1) == 1 && byte, "the owner cannot record");
	close(begun[0]);
	return pid;
}

static void end_owner(pid_t owner)
{
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
}

static void owner_killed(void)
{
	struct load load = load_endless(4, -1);
	long times = parameter("kills", 50);

	for (long turn = 0; turn < times; turn++) {
		pid_t owner = owner_of(load.pid);

		usleep(rand() % 20000);
		end_owner(owner);
		check_all_off(load.pid);
	}
	load_kill(&load);
	note("%ld owners were killed during their session", times);
	result("an owner killed at random: tracing is off and everything given back");
}

/* A process that begins, maps and ends sessions all the time, whether a core is there or not */
static pid_t restless_owner(pid_t target)
{
	pid_t pid = fork();

	while (!pid) {
		struct recording r;

		propose(&r, target, 0, 2);
		r.setup.period_ns = PERMILLE_MIN_PERIOD_NS << rand() % 12;
		if (!set_up(&r)) {
			map(&r);
			start(&r);
			usleep(rand() % 2000);
		}
		close_recording(&r);
	}
	return pid;
}

static void owner_killed_anywhere(void)
{
	struct load load = load_endless(4, -1);
	long times = parameter("kills", 50);

	for (long turn = 0; turn < times; turn++) {
		pid_t owner = restless_owner(load.pid);

		usleep(rand() % 20000);
		end_owner(owner);
		check_all_off(load.pid);
	}
	load_kill(&load);
	note("%ld owners were killed at whatever they did", times);
	result("an owner killed anywhere in setup, start, stop and close: tracing is off and everything given back");
}

static void owner_stopped(void)
{
	struct load load = load_endless(2, -1);
	struct recording r;
	pid_t idle;

	propose(&r, load.pid, 0, 2);
	r.setup.period_ns = 100000000;
	record(&r);
	idle = fork();
	if (!idle) {
		/* It has the file too, so that nobody ends the session; and calls nothing. */
		usleep(500000);
		_exit(0);
	}
	waitpid(idle, NULL, 0);
	wait_end(&r);
	for (unsigned int i = 0; i < 2; i++)
		check(!core_status(&r, i).tracing && core_status(&r, i).end == PERMILLE_END_PERIOD,
		      "core %u is on", i);
	conclude(&r, &load, "a period ends whatever its owner does");
}

static void unload_while_tracing(void)
{
	struct load load = load_endless(2, -1);
	pid_t owner;

	for (int turn = 0; turn < 20; turn++) {
		owner = owner_of(load.pid);
		check(unload_module() == EWOULDBLOCK, "unload: %s", strerror(errno));
		end_owner(owner);
		check(!unload_module(), "unload after the owner: %s", strerror(errno));
		check(!load_module("model=1"), "load again");
	}
	load_kill(&load);
	result("unloading is refused while a session is open and works once its owner is gone, 20 times");
}

static void hotplug(void)
{
	struct load load = load_endless(4, -1);
	struct permille_core_status core;
	struct recording r, refused;
	long times = parameter("hotplugs", 10);

	for (long turn = 0; turn < times; turn++) {
		propose(&r, load.pid, 0, 2);
		record(&r);
		usleep(rand() % 20000);
		check(write_text(CORE1, "0"), "core 1 does not go offline");
		core = core_status(&r, 1);
		check(core.end == PERMILLE_END_OFFLINE && !core.tracing, "core 1 ended by %u",
		      core.end);
		check(session_status(&r).state == PERMILLE_ACTIVE, "core 0 ended too");
		propose(&refused, load.pid, 1, 1);
		check(set_up(&refused) == ENODEV && refused.setup.refusal == PERMILLE_REFUSED_CORE,
		      "refusal %u", refused.setup.refusal);
		close_recording(&refused);
		check(write_text(CORE1, "1"), "core 1 does not come back");
		usleep(rand() % 10000);
		check(core_status(&r, 1).records == core.records, "core 1 records again");
		stop(&r);
		check(core_status(&r, 0).end == PERMILLE_END_STOPPED, "core 0 ended by %u",
		      core_status(&r, 0).end);
		close_recording(&r);
	}
	check_all_off(load.pid);
	load_kill(&load);
	note("%ld times offline and back", times);
	result("a core that goes offline ends its part, the others go on");
}

static void hotplug_anywhere(void)
{
	struct load load = load_endless(4, -1);
	pid_t owner = restless_owner(load.pid);
	long times = parameter("hotplugs", 10);

	for (long turn = 0; turn < times; turn++) {
		usleep(rand() % 20000);
		check(write_text(CORE1, "0"), "core 1 does not go offline: %s", strerror(errno));
		usleep(rand() % 20000);
		check(write_text(CORE1, "1"), "core 1 does not come back: %s", strerror(errno));
	}
	end_owner(owner);
	check_all_off(load.pid);
	load_kill(&load);
	result("a core goes and comes while sessions begin and end: tracing is off and everything given back");
}

static void offline_before_start(void)
{
	struct recording r;

	propose(&r, getpid(), 0, 2);
	check(!set_up(&r), "setup");
	write_text(CORE1, "0");
	check(start(&r) == ENODEV, "it starts on a core that is offline");
	write_text(CORE1, "1");
	check(start(&r) == ENODEV,
	      "it starts when the core is back, which perf may have taken meanwhile");
	close_recording(&r);
	check(!set_up(&r) && !start(&r), "a new session does not start");
	close_recording(&r);
	result("a core that went offline after setup is refused at the start, and when it is back");
}

/* Suspend up to the freezer and back, which a kernel with CONFIG_PM_DEBUG does by itself */
static void suspend(void)
{
	struct load load = load_endless(2, -1);
	struct recording r;

	if (!write_text("/sys/power/pm_test", "freezer")) {
		note("not tested: suspend, this kernel has no /sys/power/pm_test");
		load_kill(&load);
		return;
	}
	propose(&r, load.pid, 0, 2);
	record(&r);
	if (check(write_text("/sys/power/state", "freeze"), "no suspend: %s", strerror(errno)))
		for (unsigned int i = 0; i < 2; i++)
			check(core_status(&r, i).end == PERMILLE_END_SLEEP, "core %u ended by %u",
			      i, core_status(&r, i).end);
	close_recording(&r);
	check_all_off(load.pid);
	result("suspend ends all sessions, and new ones work afterwards");
	load_kill(&load);
}

/*
 * The file of a program that writes the image itself: while it is open the machine is about to
 * sleep (PM_HIBERNATION_PREPARE).
 */
static void about_to_sleep(void)
{
	struct load load = load_endless(2, -1);
	struct recording r, ready, refused;
	int image;

	propose(&r, load.pid, 0, 1);
	record(&r);
	propose(&ready, load.pid, 1, 1);
	check(!set_up(&ready), "setup");
	image = open("/dev/snapshot", O_RDONLY | O_CLOEXEC);
	check(image >= 0, "no /dev/snapshot: %s", strerror(errno));
	check(core_status(&r, 0).end == PERMILLE_END_SLEEP, "core 0 ended by %u",
	      core_status(&r, 0).end);
	check(start(&ready) == EBUSY, "it starts");
	propose(&refused, load.pid, 0, 1);
	check(set_up(&refused) == EBUSY && refused.setup.refusal == PERMILLE_REFUSED_SLEEPING,
	      "refusal %u", refused.setup.refusal);
	close_recording(&refused);
	close(image);
	check(!start(&ready), "it does not start when the machine is awake");
	close_recording(&r);
	close_recording(&ready);
	check_all_off(load.pid);
	load_kill(&load);
	result("a machine that is about to sleep ends all sessions and refuses new ones until it is awake");
}

void test_lifecycle(void)
{
	about_to_sleep();
	owner_stopped();
	owner_killed();
	owner_killed_anywhere();
	unload_while_tracing();
	hotplug();
	hotplug_anywhere();
	offline_before_start();
	suspend();
}

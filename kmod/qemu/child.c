// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "recording.h"
#include "tap.h"

void go_to_core(unsigned int cpu)
{
	cpu_set_t core;

	CPU_ZERO(&core);
	CPU_SET(cpu, &core);
	sched_setaffinity(0, sizeof(core), &core);
}

pid_t waiting_child(void (*what)(void))
{
	sigset_t set;
	pid_t pid;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	pid = fork();
	if (!pid) {
		go_to_core(1);
		sigwait(&set, &signal);
		what();
		raise(SIGSTOP);
	}
	return pid;
}

void wait_done(pid_t pid)
{
	int status = 0;

	check(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status),
	      "process %d ended with %#x", pid, status);
}

void end_child(struct recording *r, pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close_recording(r);
}

void fork_short(int count)
{
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

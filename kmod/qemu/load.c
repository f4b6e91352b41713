// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"

struct place {
	int from, to, done;
	unsigned int steps;
};

static void *hand_on(void *data)
{
	struct place *place = data;
	unsigned int left;

	while (read(place->from, &left, sizeof(left)) == sizeof(left)) {
		for (volatile unsigned int step = 0; step < place->steps; step++)
			;
		if (left != ~0u && !--left) {
			if (write(place->done, "d", 1) != 1)
				break;
			continue;
		}
		if (write(place->to, &left, sizeof(left)) != sizeof(left))
			break;
	}
	return NULL;
}

/*
 * The first thread of the process reads orders; the token's rounds are handed through all the
 * others.
 */
static void run(unsigned int count, unsigned int steps, int go, int done)
{
	struct place *places = calloc(count, sizeof(*places));
	int (*pipes)[2] = calloc(count + 1, sizeof(*pipes));
	pthread_attr_t attributes;
	unsigned int rounds, i;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 1 << 15);
	for (i = 0; i <= count; i++)
		if (pipe(pipes[i]))
			_exit(1);
	for (i = 0; i < count; i++) {
		places[i] = (struct place) { pipes[i][0], pipes[(i + 1) % count][1], done, steps };
		if (pthread_create(&thread, &attributes, hand_on, &places[i]))
			_exit(1);
	}
	if (write(done, "r", 1) != 1)
		_exit(1);
	while (read(go, &rounds, sizeof(rounds)) == sizeof(rounds)) {
		rounds = rounds ? rounds * count : ~0u;
		if (write(pipes[0][1], &rounds, sizeof(rounds)) != sizeof(rounds))
			break;
	}
	_exit(1);
}

struct load load_begin(unsigned int threads, int cpu)
{
	return load_begin_working(threads, cpu, 0);
}

struct load load_begin_working(unsigned int threads, int cpu, unsigned int steps)
{
	int go[2], done[2];
	struct load load = { .threads = threads };
	char ready;

	if (pipe(go) || pipe(done))
		abort();
	load.pid = fork();
	if (!load.pid) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (cpu >= 0)
			sched_setaffinity(0, sizeof(set), &set);
		close(go[1]);
		close(done[0]);
		run(threads, steps, go[0], done[1]);
	}
	close(go[0]);
	close(done[1]);
	load.go = go[1];
	load.done = done[0];
	check(read(load.done, &ready, 1) == 1, "the load does not come up");
	return load;
}

void load_go(struct load *load, unsigned int rounds)
{
	check(write(load->go, &rounds, sizeof(rounds)) == sizeof(rounds),
	      "the load takes no orders");
	load->going = rounds;
}

struct load load_endless(unsigned int threads, int cpu)
{
	struct load load = load_begin(threads, cpu);

	load_go(&load, 0);
	return load;
}

/*
 * Whether all threads wait for something and are off their cores, which the kernel makes sure of
 * before it tells (/proc/PID/task/TID/syscall).
 */
static bool at_rest(pid_t pid)
{
	static pid_t tids[4096];
	unsigned int count = threads_of(pid, tids, 4096);
	char path[64], told[16];
	bool rests = true;

	for (unsigned int i = 0; i < count && rests; i++) {
		int fd;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tids[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		rests = read(fd, told, sizeof(told)) > 0 && strncmp(told, "running", 7);
		close(fd);
	}
	return rests;
}

/* The last thread keeps the token and tells; then each goes to rest. */
void load_finish(struct load *load)
{
	char done;

	if (load->going)
		check(read(load->done, &done, 1) == 1, "the load has ended");
	load->going = false;
	while (!at_rest(load->pid))
		usleep(1000);
}

void record_rounds(struct recording *r, struct load *load, unsigned int rounds)
{
	load_finish(load);
	record(r);
	load_go(load, rounds);
	load_finish(load);
}

void load_kill(struct load *load)
{
	kill(load->pid, SIGKILL);
	waitpid(load->pid, NULL, 0);
	close(load->go);
	close(load->done);
}

void conclude(struct recording *r, struct load *load, const char *what)
{
	close_recording(r);
	load_kill(load);
	result(what);
}

unsigned int threads_of(pid_t pid, pid_t *tids, unsigned int most)
{
	char path[64];
	struct dirent *entry;
	unsigned int count = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)) && count < most)
		if (atoi(entry->d_name))
			tids[count++] = atoi(entry->d_name);
	if (folder)
		closedir(folder);
	return count;
}

static long switches_of_thread(pid_t pid, pid_t tid)
{
	char path[64], line[128];
	long sum = 0, one;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &one) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %ld", &one) == 1)
			sum += one;
	if (file)
		fclose(file);
	return sum;
}

long switches_of(pid_t pid, pid_t tid)
{
	static pid_t tids[4096];
	unsigned int count, i;
	long sum = 0;

	if (tid)
		return switches_of_thread(pid, tid);
	count = threads_of(pid, tids, 4096);
	for (i = 0; i < count; i++)
		sum += switches_of_thread(pid, tids[i]);
	return sum;
}

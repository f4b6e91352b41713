// SPDX-License-Identifier: GPL-2.0
/* Whose memory the buffers are: the core's own node, and the owner's memory cgroup. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording.h"
#include "tap.h"
#include "tests.h"

#define BUFFER (32 << 20)
#define CGROUPS "/sys/fs/cgroup"
#define OWNER CGROUPS "/owner"

static void propose_large(struct recording *r, unsigned int cpu)
{
	propose(r, 1, cpu, 1);
	r->plans[0].buffer_bytes = BUFFER;
}

/* Bytes; -1 where there is no such node */
static long free_of_node(unsigned int node)
{
	char path[64], line[128];
	long kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "Node %*u MemFree: %ld", &kib);
	if (file)
		fclose(file);
	return kib < 0 ? -1 : kib << 10;
}

/* What else comes and goes meanwhile is little against the buffer. */
static void from_the_cores_node(void)
{
	struct recording r;

	if (free_of_node(1) < 0) {
		note("not tested: nodes of memory, this machine has one");
		return;
	}
	for (unsigned int cpu = 0; cpu < CORES; cpu++) {
		long before[] = { free_of_node(0), free_of_node(1) }, taken[2];

		propose_large(&r, cpu);
		check(!set_up(&r), "core %u: refusal %u", cpu, r.setup.refusal);
		for (unsigned int node = 0; node < 2; node++)
			taken[node] = before[node] - free_of_node(node);
		check(taken[cpu] > BUFFER / 2 && taken[!cpu] < BUFFER / 2,
		      "core %u: %ld bytes of node 0, %ld of node 1", cpu, taken[0], taken[1]);
		close_recording(&r);
	}
	result("a core's buffer is memory of the core's own node");
}

static bool enter_cgroup(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	return write_text(OWNER "/cgroup.procs", pid);
}

/* In a child: the owner's group has what its session takes, for as long as it has it. */
static int charged(void)
{
	long before, during, after;
	struct recording r;

	if (!check(enter_cgroup(), "no way into the group: %s", strerror(errno)))
		return 1;
	before = read_number(OWNER "/memory.current");
	propose_large(&r, 0);
	if (!check(!set_up(&r), "refusal %u", r.setup.refusal))
		return 1;
	during = read_number(OWNER "/memory.current");
	close_recording(&r);
	after = read_number(OWNER "/memory.current");
	if (!check(during - before >= BUFFER, "%ld bytes are charged for %d", during - before,
		   BUFFER))
		return 1;
	return !check(after - before < BUFFER / 8, "%ld bytes remain charged", after - before);
}

/* In a child: never comes to an end, as the group may not have so much. */
static int beyond_the_limit(void)
{
	struct recording r;

	enter_cgroup();
	propose_large(&r, 0);
	return set_up(&r) == ENOMEM ? 2 : 1;
}

static int in_child(int (*what)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(what());
	waitpid(pid, &status, 0);
	return status;
}

/*
 * The kernel tells of the group's lack of memory with a call trace, which is no complaint about the
 * module.
 */
static void forget_kernel_log(void)
{
	klogctl(5, NULL, 0);
}

static void of_the_owners_cgroup(void)
{
	int status;

	mount("cgroup2", CGROUPS, "cgroup2", 0, NULL);
	if (!write_text(CGROUPS "/cgroup.subtree_control", "+memory")) {
		note("not tested: memory cgroups, this kernel has none");
		return;
	}
	mkdir(OWNER, 0755);
	check(!in_child(charged), "see above");
	result("the owner's memory cgroup is charged for the buffers, until they are given back");
	check_kernel_log();
	write_text(OWNER "/memory.max", "16777216");
	status = in_child(beyond_the_limit);
	check((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || WEXITSTATUS(status) == 2,
	      "the owner ended with %#x", status);
	forget_kernel_log();
	check(!module_info().sessions && !module_info().memory_used_bytes,
	      "%u sessions, %llu bytes", module_info().sessions, module_info().memory_used_bytes);
	write_text(OWNER "/memory.max", "max");
	check(!in_child(charged), "see above");
	result("an owner gets no more than its memory cgroup may have, and all of that is given back");
}

void test_memory(void)
{
	of_the_owners_cgroup();
	from_the_cores_node();
}

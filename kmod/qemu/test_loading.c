// SPDX-License-Identifier: GPL-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

/* Each cache of kernel objects gives back the pages of which it uses nothing. */
static void shrink_slabs(void)
{
	char path[NAME_MAX + 32];
	DIR *caches = opendir("/sys/kernel/slab");

	for (struct dirent *cache; caches && (cache = readdir(caches));) {
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", cache->d_name);
		write_text(path, "1");
	}
	if (caches)
		closedir(caches);
}

/*
 * Pages that are free or that the kernel can take back at once. Those that each core keeps for
 * itself are free too: they come and go by megabytes, which MemFree and MemAvailable take for
 * memory that is used. The cores' counts are added up first.
 */
static long pages_free(void)
{
	static const char *const names[] = { "nr_free_pages", "count:", "nr_slab_reclaimable" };
	long sum = 0, value;
	char line[128], name[32];
	FILE *file;

	shrink_slabs();
	write_text("/proc/sys/vm/stat_refresh", "1");
	file = fopen("/proc/zoneinfo", "re");
	while (file && fgets(line, sizeof(line), file))
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (sscanf(line, " %31s %ld", name, &value) == 2 && !strcmp(name, names[i]))
				sum += value;
	if (file)
		fclose(file);
	return sum;
}

static void no_processor_trace_here(void)
{
	check(!unload_module(), "unload");
	check(load_module("") == ENODEV, "it loads on a processor without Intel PT");
	check(!load_module("model=1"), "load");
	result("without Intel PT the module says so and does not load");
}

#define KMEMLEAK "/sys/kernel/debug/kmemleak"

/*
 * What a kernel that looks for it finds after two looks: at first whatever has just been taken
 * looks lost.
 */
static bool find_leaks(void)
{
	char text[4096];
	ssize_t size;
	int fd;

	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (access(KMEMLEAK, R_OK))
		return false;
	for (int turn = 0; turn < 2; turn++) {
		sleep(6);
		check(write_text(KMEMLEAK, "scan"), "no scan: %s", strerror(errno));
	}
	fd = open(KMEMLEAK, O_RDONLY | O_CLOEXEC);
	while ((size = read(fd, text, sizeof(text) - 1)) > 0) {
		text[size] = 0;
		for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			check(false, "%s", line);
	}
	close(fd);
	return true;
}

static void load_times(long times, pid_t target, bool lose_one)
{
	for (long turn = 0; turn < times; turn++) {
		struct recording r;

		if (turn % 10 == 0) {
			propose(&r, target, 0, 2);
			check(!set_up(&r) && !start(&r), "turn %ld: refusal %u", turn,
			      r.setup.refusal);
			close_recording(&r);
		}
		if (!check(!unload_module() && !load_module("model=1"), "turn %ld: %s", turn,
			   strerror(errno)))
			break;
		if (lose_one)
			mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	}
}

#define POINTS 12
#define PAIRS (POINTS * (POINTS - 1) / 2)

static int by_size(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;

	return (difference > 0) - (difference < 0);
}

/*
 * Pages that a turn costs: the median over all pairs of points in time (Theil and Sen). What caches
 * take once, and what is given back later, is in few of the pairs; a leak is in each.
 */
static double pages_lost(const long *free, long turns)
{
	double slopes[PAIRS];
	int pairs = 0;

	for (int i = 0; i < POINTS; i++)
		for (int j = 0; j < i; j++)
			slopes[pairs++] = (double)(free[j] - free[i]) / ((i - j) * turns);
	qsort(slopes, PAIRS, sizeof(slopes[0]), by_size);
	return slopes[PAIRS / 2];
}

static double pages_lost_a_turn(long times, pid_t target, bool lose_one)
{
	long turns = times / POINTS > 10 ? times / POINTS : 10, free[POINTS];

	for (int point = 0; point < POINTS; point++) {
		load_times(turns, target, lose_one);
		free[point] = pages_free();
	}
	return pages_lost(free, turns);
}

/* A kernel that watches its memory needs some for that, and tells of the smallest leak itself. */
static void many_times(void)
{
	struct load load = load_begin(2, -1);
	long times = parameter("loads", 120);
	double lost;

	/* What the kernel takes once for a first time is no loss. */
	load_times(30, load.pid, false);
	lost = pages_lost_a_turn(times, load.pid, false);
	note("loaded and unloaded %ld times", times);
	if (!find_leaks()) {
		check(lost < 0.5, "%.2f pages are lost in each turn", lost);
		note("pages lost in each turn: %.2f", lost);
		lost = pages_lost_a_turn(times / 3, load.pid, true);
		check(lost >= 0.5, "a page that is lost in each turn is not seen: %.2f", lost);
		note("with one that is: %.2f", lost);
	}
	load_kill(&load);
	result("loaded and unloaded many times, every tenth with a session: no memory is lost");
}

void test_loading(void)
{
	no_processor_trace_here();
	many_times();
}

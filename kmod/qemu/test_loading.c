// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

/*
 * Once caches are dropped and each core has given back the pages that it keeps for itself. Where a module's pages are made
 * read-only, the kernel maps 2 MiB of its own memory page by page from then on: a table of 4 KiB each, which are not lost.
 */
static long memory_available(void)
{
	char line[128];
	long kib = -1, by_pages = 0;
	FILE *file;

	write_text("/proc/sys/vm/drop_caches", "3");
	write_text("/proc/sys/vm/compact_memory", "1");
	file = fopen("/proc/meminfo", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %ld", &kib) != 1)
			sscanf(line, "DirectMap4k: %ld", &by_pages);
	if (file)
		fclose(file);
	return kib + by_pages / 2048 * 4;
}

static void no_processor_trace_here(void)
{
	check(!unload_module(), "unload");
	check(load_module("") == ENODEV, "it loads on a processor without Intel PT");
	check(!load_module("model=1"), "load");
	result("without Intel PT the module says so and does not load");
}

#define KMEMLEAK "/sys/kernel/debug/kmemleak"

/* What a kernel that looks for it finds after two looks: at first whatever has just been taken looks lost. */
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

static void load_times(long times, pid_t target)
{
	for (long turn = 0; turn < times; turn++) {
		struct recording r;

		if (turn % 10 == 0) {
			propose(&r, target, 0, 2);
			check(!set_up(&r) && !start(&r), "turn %ld: refusal %u", turn, r.setup.refusal);
			close_recording(&r);
		}
		if (!check(!unload_module() && !load_module("model=1"), "turn %ld: %s", turn, strerror(errno)))
			break;
	}
}

/* What workers of the kernel give back later, on a busy machine much later, is not lost: one has to wait for it. */
static long memory_lost(long before, long bearable)
{
	long lost = before - memory_available();

	for (int turn = 0; turn < 300 && lost >= bearable; turn++) {
		sleep(1);
		lost = before - memory_available();
	}
	return lost;
}

/*
 * What the kernel keeps for itself comes and goes by some hundreds of KiB; two pages a turn would be more in a thousand. A
 * kernel that watches its memory needs some for that, and tells of the smallest leak itself.
 */
#define BEARABLE 4096
static void many_times(void)
{
	struct load load = load_begin(2, -1);
	long times = parameter("loads", 300), before, lost;

	load_times(times / 2, load.pid);
	before = memory_available();
	load_times(times / 2, load.pid);
	load_kill(&load);
	note("loaded and unloaded %ld times", times);
	if (!find_leaks()) {
		lost = memory_lost(before, BEARABLE);
		check(lost < BEARABLE, "%ld KiB are lost in half of the turns", lost);
		note("lost in half of the turns: %ld KiB", lost);
	}
	result("loaded and unloaded many times, every tenth with a session: no memory is lost");
}

void test_loading(void)
{
	no_processor_trace_here();
	many_times();
}

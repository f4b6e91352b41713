// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

static long memory_available(void)
{
	char line[128];
	long kib = -1;
	FILE *file = fopen("/proc/meminfo", "re");

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "MemAvailable: %ld", &kib);
	if (file)
		fclose(file);
	return kib;
}

static void no_processor_trace_here(void)
{
	check(!unload_module(), "unload");
	check(load_module("") == ENODEV, "it loads on a processor without Intel PT");
	check(!load_module("model=1"), "load");
	result("without Intel PT the module says so and does not load");
}

static void a_thousand_times(void)
{
	struct load load = load_begin(2, -1);
	long before = 0;

	for (int turn = 0; turn < 1000; turn++) {
		struct recording r;

		if (turn == 100)
			before = memory_available();
		if (turn % 250 == 249)
			note("turn %d", turn + 1);
		if (turn % 10 == 0) {
			propose(&r, load.pid, 0, 2);
			check(!set_up(&r) && !start(&r), "turn %d: refusal %u", turn, r.setup.refusal);
			close_recording(&r);
		}
		if (!check(!unload_module() && !load_module("model=1"), "turn %d: %s", turn, strerror(errno)))
			break;
	}
	note("memory available: %ld KiB after 100 turns, %ld KiB after 1000", before, memory_available());
	check(before - memory_available() < 4096, "%ld KiB are gone", before - memory_available());
	load_kill(&load);
	result("loaded and unloaded 1,000 times, every tenth with a session: no memory is lost");
}

void test_loading(void)
{
	no_processor_trace_here();
	a_thousand_times();
}

// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

#define MODEL_BYTES "/sys/module/permille/parameters/model_bytes"
#define MODEL_ERROR "/sys/module/permille/parameters/model_error"

/*
 * Records until the buffer is full; what is behind the last STOP is nobody's. Returns of how many
 * regions it is.
 */
static unsigned int fill(uint64_t size, unsigned int flags)
{
	struct load load = load_begin(2, 1);
	struct permille_core_status core;
	struct recording r;

	propose(&r, load.pid, 1, 1);
	r.plans[0].buffer_bytes = size;
	r.setup.flags |= flags;
	record_rounds(&r, &load, 200);
	size = r.plans[0].buffer_bytes;
	core = core_status(&r, 0);
	check(core.full && core.trace_bytes == size, "%lu: full %u, %llu bytes", size, core.full,
	      core.trace_bytes);
	check(core.arrivals > 200 && core.records > 200, "%llu arrivals", core.arrivals);
	for (uint64_t at = 0; at < size; at += 32)
		if (!check(r.trace[0][at] == 0x02 && r.trace[0][at + 1] == 0x82, "%lu: %#x at %lu",
			   size, r.trace[0][at], at))
			break;
	stop(&r);
	core = core_status(&r, 0);
	check(core.full && core.trace_bytes == size && core.end == PERMILLE_END_STOPPED,
	      "%lu: %llu bytes, end %u", size, core.trace_bytes, core.end);
	check(core.operations_on == 1 && core.operations_off == 1, "%llu on, %llu off",
	      core.operations_on, core.operations_off);
	close_recording(&r);
	load_kill(&load);
	return core.regions;
}

static void stops_when_full(void)
{
	write_text(MODEL_BYTES, "65536");
	fill(4096, 0);
	fill(12288, 0);
	fill(1 << 20, 0);
	fill((1 << 20) + 20480, 0);
	fill(9 << 20, 0);
	write_text(MODEL_BYTES, "32");
	result("a full buffer stops the core: every byte is used, none is written twice, records go on");
}

static void tells_of_an_error(void)
{
	struct load load = load_begin(2, 1);
	struct permille_core_status core;
	struct recording r;

	propose(&r, load.pid, 1, 1);
	record_rounds(&r, &load, 100);
	core = core_status(&r, 0);
	check(core.trace_bytes && !core.error, "%llu bytes, error %u", core.trace_bytes,
	      core.error);
	write_text(MODEL_ERROR, "1");
	load_go(&load, 100);
	load_finish(&load);
	write_text(MODEL_ERROR, "0");
	check(core_status(&r, 0).error == 1, "no error is told of while it records");
	stop(&r);
	check(core_status(&r, 0).error == 1 && core_status(&r, 0).end == PERMILLE_END_FAULT,
	      "error %u, end %u", core_status(&r, 0).error, core_status(&r, 0).end);
	check(core_status(&r, 0).trace_bytes == core.trace_bytes && !core_status(&r, 0).full,
	      "%llu bytes after %llu", core_status(&r, 0).trace_bytes, core.trace_bytes);
	conclude(&r, &load,
		 "a trace unit that meets an error is told from one that has written all");
}

/* The largest that a core can have is filled to its last byte across the ends of its regions. */
static void largest(void)
{
	write_text(MODEL_BYTES, "1048576");
	note("128 MiB are %u regions", fill(PERMILLE_MAX_BUFFER, 0));
	reload_module("model=1 region_order=10 model_bytes=1048576");
	check(fill(PERMILLE_MAX_BUFFER, 0) >= 32, "a region is larger than 4 MiB");
	reload_module("model=1");
	result("128 MiB a core are filled across the ends of their regions");
}

/* A power of two is all that such a processor has; the rest of the wish is not charged. */
static void one_region(void)
{
	struct recording r;

	reload_module("model=1 model_one_region=1 model_bytes=65536");
	check(module_info().regions == 1, "%u regions", module_info().regions);
	check(fill(20 << 10, 0) == 1, "more than one region");
	check(fill(9 << 20, 0) == 1, "more than one region");
	propose(&r, 1, 1, 1);
	r.plans[0].buffer_bytes = 20 << 10;
	check(!set_up(&r), "setup");
	check(r.plans[0].buffer_bytes == 16 << 10, "%llu bytes of 20 KiB", r.plans[0].buffer_bytes);
	check(module_info().memory_used_bytes ==
	      (16 << 10) + PERMILLE_RING_RECORDS + (1 << 16) * sizeof(struct permille_switch),
	      "%llu bytes are charged", module_info().memory_used_bytes);
	check(mmap(NULL, 20 << 10, PROT_READ, MAP_SHARED, r.fd, 0) == MAP_FAILED,
	      "more is mapped than there is");
	close_recording(&r);
	reload_module("model=1");
	result("a processor with a single region gets one, and says how large");
}

/*
 * That the kernel maps these pages as their owner does, past the caches or not, the kernel's log
 * tells (check_kernel_log).
 */
static void write_combining(void)
{
	write_text(MODEL_BYTES, "65536");
	fill(4 << 20, PERMILLE_WRITE_COMBINING);
	write_text(MODEL_BYTES, "32");
	result("buffers can bypass the caches");
}

static void many_tables(void)
{
	reload_module("model=1 region_order=0 model_bytes=65536");
	check(fill(5 << 20, 0) == 5 << 8, "regions are larger than a page");
	fill(511 * 4096, 0);
	fill(512 * 4096, 0);
	fill(510 * 4096, PERMILLE_WRITE_COMBINING);
	reload_module("model=1");
	result("more regions than a table has: tables are chained");
}

static void zeroed_and_given_back(void)
{
	long before = read_number("/proc/sys/vm/min_free_kbytes"), dirty = 0;
	struct recording r;

	check(before > 0, "no /proc");
	for (int turn = 0; turn < 20; turn++) {
		propose(&r, 1, 0, 2);
		r.plans[0].buffer_bytes = 16 << 20;
		check(!set_up(&r), "turn %d", turn);
		map(&r);
		check(module_info().memory_used_bytes >= 17 << 20, "%llu bytes",
		      module_info().memory_used_bytes);
		for (size_t at = 0; at < 16 << 20; at += 64)
			dirty += r.trace[0][at] != 0;
		close_recording(&r);
		check(!module_info().memory_used_bytes, "%llu bytes are left",
		      module_info().memory_used_bytes);
	}
	check(!dirty, "%ld bytes of others", dirty);
	result("buffers are zero at first and given back");
}

/* This program itself, on core 0 */
static void stay_on_core(bool stay)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(0, &cores);
	if (!stay)
		CPU_SET(1, &cores);
	check(!sched_setaffinity(0, sizeof(cores), &cores), "no affinity");
}

static void mapping_outlives_the_file(void)
{
	struct recording r;
	const uint8_t *trace;

	stay_on_core(true);
	propose(&r, 1, 0, 1);
	record(&r);
	trace = r.trace[0];
	r.trace[0] = NULL;
	close_recording(&r);
	check(module_info().sessions == 1, "%u sessions", module_info().sessions);
	check(trace[0] == 0x02 && !trace[(1 << 20) - 1], "the mapping is not there");
	r.trace[0] = trace;
	close_recording(&r);
	stay_on_core(false);
	check(!module_info().sessions, "%u sessions", module_info().sessions);
	result("a mapping keeps the session's memory until it is gone");
}

void test_buffers(void)
{
	stops_when_full();
	tells_of_an_error();
	write_combining();
	many_tables();
	largest();
	one_region();
	zeroed_and_given_back();
	mapping_outlives_the_file();
}

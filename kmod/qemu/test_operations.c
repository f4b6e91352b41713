// SPDX-License-Identifier: GPL-2.0
/* What control costs: TraceEn once per period, against once per switch. */
#include <string.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

struct cost {
	unsigned long long arrivals, operations, hook_calls, hook_ticks, ticks;
};

static struct cost measure(unsigned int threads)
{
	struct load load = load_begin(threads, -1);
	struct cost cost = {};
	struct recording r;

	propose(&r, load.pid, 0, 2);
	r.setup.period_ns = 500000000;
	load_go(&load, 0);
	record(&r);
	wait_end(&r);
	for (unsigned int i = 0; i < 2; i++) {
		struct permille_core_status core = core_status(&r, i);

		check(!core.faults, "%u faults", core.faults);
		cost.arrivals += core.arrivals;
		cost.operations += core.operations_on + core.operations_off;
		cost.hook_calls += core.hook_calls;
		cost.hook_ticks += core.hook_ticks;
		cost.ticks += core.last_tsc - core.first_tsc;
	}
	close_recording(&r);
	load_kill(&load);
	return cost;
}

static void table_line(const char *variant, unsigned int threads, const struct cost *cost)
{
	note("%-12s %7u %9llu %11llu %8.3f %% %9.0f", variant, threads, cost->arrivals, cost->operations,
	     100.0 * cost->hook_ticks / cost->ticks, (double)cost->hook_ticks / cost->hook_calls);
}

void test_operations(void)
{
	static const unsigned int threads[] = { 2, 50, 500, 2000 };
	struct cost flat, every;

	note("%-12s %7s %9s %11s %10s %9s", "control", "threads", "arrivals", "operations", "hook time", "ticks/call");
	for (unsigned int i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
		check(!unload_module() && !load_module("model=1"), "reload");
		flat = measure(threads[i]);
		table_line("operation", threads[i], &flat);
		check(!unload_module() && !load_module("model=1 per_switch=1"), "reload");
		every = measure(threads[i]);
		table_line("per switch", threads[i], &every);
		check(flat.operations <= 4, "%llu operations", flat.operations);
		check(every.operations >= every.arrivals, "%llu operations of %llu arrivals", every.operations, every.arrivals);
	}
	check(!unload_module() && !load_module("model=1"), "reload");
	result("control operations: at most 2 per core at every switch rate, against one and more per switch");
}

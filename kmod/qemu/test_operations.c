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

/* As many threads on each of two cores, which hand on as often as the steps between let them */
struct rate {
	unsigned int threads, steps;
};

static struct cost measure(const struct rate *rate)
{
	struct load loads[CORES];
	struct cost cost = {};
	struct recording r;

	for (unsigned int i = 0; i < CORES; i++)
		loads[i] = load_begin_working(rate->threads / CORES, i, rate->steps);
	propose(&r, loads[0].pid, 0, CORES);
	r.setup.process_count = CORES;
	for (unsigned int i = 0; i < CORES; i++) {
		r.pids[i] = loads[i].pid;
		load_go(&loads[i], 0);
	}
	r.setup.period_ns = 500000000;
	record(&r);
	wait_end(&r);
	for (unsigned int i = 0; i < CORES; i++) {
		struct permille_core_status core = core_status(&r, i);

		check(!core.faults && !core.retargets, "%u faults, %llu retargets", core.faults, core.retargets);
		cost.arrivals += core.arrivals;
		cost.operations += core.operations_on + core.operations_off;
		cost.hook_calls += core.hook_calls;
		cost.hook_ticks += core.hook_ticks;
		cost.ticks += core.last_tsc - core.first_tsc;
	}
	close_recording(&r);
	for (unsigned int i = 0; i < CORES; i++)
		load_kill(&loads[i]);
	return cost;
}

static void table_line(const char *variant, unsigned int threads, const struct cost *cost)
{
	note("%-12s %7u %9llu %11llu %8.3f %% %9.0f", variant, threads, cost->arrivals, cost->operations,
	     100.0 * cost->hook_ticks / cost->ticks, (double)cost->hook_ticks / cost->hook_calls);
}

void test_operations(void)
{
	static const struct rate rates[] = { { 4, 500000 }, { 50, 50000 }, { 500, 5000 }, { 2000, 0 } };
	struct cost flat, every;

	note("%-12s %7s %9s %11s %10s %9s", "control", "threads", "arrivals", "operations", "hook time", "ticks/call");
	for (unsigned int i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		check(!unload_module() && !load_module("model=1"), "reload");
		flat = measure(&rates[i]);
		table_line("operation", rates[i].threads, &flat);
		check(!unload_module() && !load_module("model=1 per_switch=1"), "reload");
		every = measure(&rates[i]);
		table_line("per switch", rates[i].threads, &every);
		check(flat.operations == 2 * CORES, "%llu operations", flat.operations);
		check(every.operations >= every.arrivals, "%llu operations of %llu arrivals", every.operations, every.arrivals);
	}
	check(!unload_module() && !load_module("model=1"), "reload");
	result("control operations: at most 2 per core at every switch rate, against one and more per switch");
}

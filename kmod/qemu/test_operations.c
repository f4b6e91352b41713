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

/* As many threads on each of the cores, which hand on so often, with so much work in between */
struct rate {
	unsigned int cores, threads, switches, steps;
};

static struct cost cost_of(const struct recording *r)
{
	struct cost cost = {};

	for (unsigned int i = 0; i < CORES; i++) {
		struct permille_core_status core = core_status(r, i);

		check(!core.faults && !core.retargets, "%u faults, %llu retargets", core.faults, core.retargets);
		cost.arrivals += core.arrivals;
		cost.operations += core.operations_on + core.operations_off;
		cost.hook_calls += core.hook_calls;
		cost.hook_ticks += core.hook_ticks;
		cost.ticks += core.last_tsc - core.first_tsc;
	}
	return cost;
}

static struct cost measure(const struct rate *rate)
{
	unsigned int each = rate->threads / rate->cores;
	struct load loads[CORES];
	struct recording r;
	struct cost cost;

	for (unsigned int i = 0; i < rate->cores; i++)
		loads[i] = load_begin_working(each, i, rate->steps);
	propose(&r, loads[0].pid, 0, CORES);
	r.setup.process_count = rate->cores;
	for (unsigned int i = 0; i < rate->cores; i++)
		r.pids[i] = loads[i].pid;
	record(&r);
	for (unsigned int i = 0; i < rate->cores; i++)
		load_go(&loads[i], rate->switches / rate->threads);
	for (unsigned int i = 0; i < rate->cores; i++)
		load_finish(&loads[i]);
	stop(&r);
	cost = cost_of(&r);
	close_recording(&r);
	for (unsigned int i = 0; i < rate->cores; i++)
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
	static const struct rate rates[] = { { 1, 2, 400, 500000 }, { CORES, 64, 6400, 20000 }, { CORES, 2000, 20000, 0 } };
	struct cost flat, every;

	note("%-12s %7s %9s %11s %10s %9s", "control", "threads", "arrivals", "operations", "hook time", "ticks/call");
	for (unsigned int i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		reload_module("model=1");
		flat = measure(&rates[i]);
		table_line("operation", rates[i].threads, &flat);
		reload_module("model=1 per_switch=1");
		every = measure(&rates[i]);
		table_line("per switch", rates[i].threads, &every);
		check(flat.arrivals >= rates[i].switches && every.arrivals >= rates[i].switches, "%llu and %llu arrivals",
		      flat.arrivals, every.arrivals);
		check(flat.operations == 2 * rates[i].cores, "%llu operations", flat.operations);
		check(every.operations >= every.arrivals, "%llu operations of %llu arrivals", every.operations, every.arrivals);
	}
	reload_module("model=1");
	result("control operations: at most 2 per core at every switch rate, against one and more per switch");
}

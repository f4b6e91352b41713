// SPDX-License-Identifier: GPL-2.0
/* What control costs: TraceEn once per period, against once per switch. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

struct cost {
	unsigned long long arrivals, operations, hook_calls, hook_ticks, ticks;
};

/*
 * As many threads on each of the cores, of so many processes there, which hand on so often, with so
 * much work in between
 */
struct rate {
	unsigned int cores, processes, threads, switches, steps;
};

static struct cost cost_of(const struct recording *r, const struct rate *rate)
{
	struct cost cost = {};

	for (unsigned int i = 0; i < CORES; i++) {
		struct permille_core_status core = core_status(r, i);

		check(!core.faults && (!core.retargets || rate->processes > 1),
		      "%u faults, %llu retargets", core.faults, core.retargets);
		cost.arrivals += core.arrivals;
		cost.operations += core.operations_on + core.operations_off + 2 * core.retargets;
		cost.hook_calls += core.hook_calls;
		cost.hook_ticks += core.hook_ticks;
		cost.ticks += core.last_tsc - core.first_tsc;
	}
	return cost;
}

static struct cost measure(const struct rate *rate)
{
	unsigned int count = rate->cores * rate->processes, each = rate->threads / count;
	struct load loads[MOST_PROCESSES] = {};
	struct recording r;
	struct cost cost;

	for (unsigned int i = 0; i < count; i++)
		loads[i] = load_begin_working(each, i % rate->cores, rate->steps);
	propose(&r, loads[0].pid, 0, CORES);
	r.setup.process_count = count;
	for (unsigned int i = 0; i < count; i++)
		r.pids[i] = loads[i].pid;
	record(&r);
	for (unsigned int i = 0; i < count; i++)
		load_go(&loads[i], rate->switches / rate->threads);
	for (unsigned int i = 0; i < count; i++)
		load_finish(&loads[i]);
	stop(&r);
	cost = cost_of(&r, rate);
	close_recording(&r);
	for (unsigned int i = 0; i < count; i++)
		load_kill(&loads[i]);
	return cost;
}

static void table_line(const char *variant, const struct rate *rate, const struct cost *cost)
{
	note("%-12s %9u %7u %9llu %11llu %8.3f %% %9.0f", variant, rate->cores * rate->processes,
	     rate->threads, cost->arrivals, cost->operations, 100.0 * cost->hook_ticks / cost->ticks,
	     (double)cost->hook_ticks / cost->hook_calls);
}

#define TURNS 9
#define OTHERS_ROUNDS 10000

/* Of two threads that hand on to each other on one core */
static double ns_a_switch(struct load *load)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	load_go(load, OTHERS_ROUNDS);
	load_finish(load);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return ((end.tv_sec - begin.tv_sec) * 1e9 + end.tv_nsec - begin.tv_nsec) /
	       (2 * OTHERS_ROUNDS);
}

static int by_value(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static double median(double values[TURNS])
{
	qsort(values, TURNS, sizeof(*values), by_value);
	return values[TURNS / 2];
}

/*
 * A program that is no target, on a core where none is recorded and on one that waits for its
 * target, by turns
 */
static void cost_of_others(void)
{
	struct load target = load_begin(2, 1), other = load_begin(2, 1);
	double without[TURNS], with[TURNS];
	struct recording r;

	load_finish(&target);
	for (unsigned int turn = 0; turn < TURNS; turn++) {
		without[turn] = ns_a_switch(&other);
		propose(&r, target.pid, 1, 1);
		record(&r);
		with[turn] = ns_a_switch(&other);
		check(!core_status(&r, 0).hook_calls, "%llu calls of the hook",
		      core_status(&r, 0).hook_calls);
		close_recording(&r);
	}
	note("others: %.0f ns a switch without a session, %.0f ns with one", median(without),
	     median(with));
	load_kill(&target);
	load_kill(&other);
}

void test_operations(void)
{
	static const struct rate rates[] = {
		{ 1, 1, 2, 400, 500000 },      { CORES, 1, 64, 6400, 20000 },
		{ CORES, 1, 2000, 20000, 0 },  { CORES, 2, 64, 6400, 20000 },
		{ CORES, 8, 64, 6400, 20000 },
	};
	struct cost flat, every;

	note("%-12s %9s %7s %9s %11s %10s %9s", "control", "processes", "threads", "arrivals",
	     "operations", "hook time", "ticks/call");
	for (unsigned int i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		reload_module("model=1");
		flat = measure(&rates[i]);
		table_line("operation", &rates[i], &flat);
		reload_module("model=1 per_switch=1");
		every = measure(&rates[i]);
		table_line("per switch", &rates[i], &every);
		check(flat.arrivals >= rates[i].switches && every.arrivals >= rates[i].switches,
		      "%llu and %llu arrivals", flat.arrivals, every.arrivals);
		/* One register holds the CR3 of those whose code is recorded. */
		check(rates[i].processes > 1 ? flat.operations <= every.operations :
					       flat.operations == 2 * rates[i].cores,
		      "%llu operations, %llu at every switch", flat.operations,
		      every.operations);
		check(every.operations >= every.arrivals, "%llu operations of %llu arrivals",
		      every.operations, every.arrivals);
	}
	reload_module("model=1");
	cost_of_others();
	result("control operations: of a process at most 2 per core at every switch rate, against one and more per switch; of several no more than that");
}

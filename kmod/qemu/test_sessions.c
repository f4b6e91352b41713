// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <string.h>
#include <time.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

static void tells_what_it_offers(void)
{
	struct permille_info info = module_info();

	check(info.version == PERMILLE_UAPI_VERSION, "version %u", info.version);
	check(info.backend == PERMILLE_BACKEND_MODEL, "back end %u", info.backend);
	check(info.features & PERMILLE_CR3_FILTER && !(info.features & PERMILLE_KERNEL),
	      "features %#x", info.features);
	check(!info.sessions && !info.memory_used_bytes, "something is left over");
	result("info tells back end, features and an empty machine");
}

#define ROOM (16 << 20)	/* for whatever a core can do in a period */

static void check_core(const struct permille_core_status *core, uint32_t end)
{
	check(core->operations_on <= 1 && core->operations_off <= 1, "core %u: %llu on, %llu off",
	      core->cpu, core->operations_on, core->operations_off);
	check(core->end == end, "core %u ended by %u", core->cpu, core->end);
	check(!core->faults && !core->tracing && !core->retargets,
	      "core %u: %u faults, %llu retargets", core->cpu, core->faults, core->retargets);
}

/* Every arrival brings the filter to match once; the model writes 32 bytes each time. */
static void check_bytes(const struct permille_core_status *core, const uint8_t *trace)
{
	static const uint8_t psb[] = { 0x02, 0x82, 0x02, 0x82 };

	if (!check(core->trace_bytes == 32 * core->arrivals && core->trace_bytes < ROOM,
		   "core %u: %llu bytes of %llu arrivals", core->cpu, core->trace_bytes,
		   core->arrivals))
		return;
	for (uint64_t at = 0; at < core->trace_bytes; at += 32)
		if (!check(!memcmp(trace + at, psb, sizeof(psb)), "no PSB at %lu", at))
			return;
	check(!trace[core->trace_bytes], "something behind the end");
}

static bool is_over(const struct permille_session_status *status)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec >= status->end_ns;
}

/* How often the target arrived: on a machine that has no time for this one perhaps never. */
static uint64_t record_for(struct recording *r, const struct load *load, uint64_t period_ns)
{
	struct permille_session_status status;
	uint64_t arrivals = 0;

	propose(r, load->pid, 0, 2);
	r->plans[0].buffer_bytes = r->plans[1].buffer_bytes = ROOM;
	r->setup.period_ns = period_ns;
	record(r);
	status = session_status(r);
	check(status.state == PERMILLE_ACTIVE || is_over(&status), "it is not active");
	wait_end(r);
	status = session_status(r);
	check(status.state == PERMILLE_ENDED && is_over(&status),
	      "state %u before its period is over", status.state);
	for (unsigned int i = 0; i < 2; i++) {
		struct permille_core_status core = core_status(r, i);

		check_core(&core, PERMILLE_END_PERIOD);
		check_bytes(&core, r->trace[i]);
		arrivals += core.arrivals;
		note("%llu ms beside another load, core %u: %llu arrivals, %llu control operations",
		     (unsigned long long)period_ns / 1000000, i, core.arrivals,
		     core.operations_on + core.operations_off);
	}
	close_recording(r);
	return arrivals;
}

static void ends_by_its_period(void)
{
	struct load load = load_endless(4, -1), noise = load_endless(4, -1);
	uint64_t period_ns = 300000000;
	struct recording r;

	while (record_for(&r, &load, period_ns) <= 4)
		period_ns *= 2;
	load_kill(&load);
	load_kill(&noise);
	result("a session ends by its period, with at most two control operations per core, and records its target only");
}

static void without_filter_records_others_too(void)
{
	struct load load = load_begin(2, 1), noise = load_begin(2, 1);
	struct permille_core_status core;
	struct recording r;

	propose(&r, load.pid, 1, 1);
	r.setup.flags &= ~PERMILLE_CR3_FILTER;
	record_rounds(&r, &load, 100);
	load_go(&noise, 100);
	load_finish(&noise);
	stop(&r);
	core = core_status(&r, 0);
	check(core.arrivals >= 200 && core.trace_bytes >= 32 * (core.arrivals + 200),
	      "%llu bytes of %llu arrivals", core.trace_bytes, core.arrivals);
	close_recording(&r);
	load_kill(&load);
	load_kill(&noise);
	result("without the CR3 filter the core's other user code is recorded, with it it is not");
}

static void core_without_target_stays_off(void)
{
	struct load load = load_begin(2, 1);
	struct permille_core_status core;
	struct recording r;

	propose(&r, load.pid, 0, 2);
	record_rounds(&r, &load, 100);
	stop(&r);
	core = core_status(&r, 0);
	check(!core.operations_on && !core.operations_off && !core.trace_bytes && !core.records,
	      "core 0: %llu on, %llu bytes", core.operations_on, core.trace_bytes);
	check(core_status(&r, 1).operations_on == 1, "core 1 was not on");
	conclude(&r, &load, "a core that no target comes to is never switched on");
}

static void several_on_disjoint_cores(void)
{
	struct load loads[2] = { load_begin(2, 0), load_begin(2, 1) };
	struct recording r[2], third;

	for (unsigned int i = 0; i < 2; i++) {
		propose(&r[i], loads[i].pid, i, 1);
		record(&r[i]);
		load_go(&loads[i], 100);
	}
	propose(&third, loads[0].pid, 0, 2);
	check(set_up(&third) == EBUSY && third.setup.refusal == PERMILLE_REFUSED_CORE_BUSY &&
	      third.setup.refused_value == 0, "refusal %u for %u", third.setup.refusal,
	      third.setup.refused_value);
	close_recording(&third);
	check(module_info().sessions == 2, "%u sessions", module_info().sessions);
	for (unsigned int i = 0; i < 2; i++) {
		struct permille_core_status core;

		load_finish(&loads[i]);
		stop(&r[i]);
		core = core_status(&r[i], 0);
		check_core(&core, PERMILLE_END_STOPPED);
		check_bytes(&core, r[i].trace[0]);
		check(core.arrivals >= 200, "session %u saw %llu arrivals", i, core.arrivals);
		close_recording(&r[i]);
		load_kill(&loads[i]);
	}
	check(!module_info().sessions && !module_info().memory_used_bytes,
	      "something is left over");
	result("sessions on disjoint cores run side by side, one on a taken core is refused and names it");
}

static void stopped_by_hand(void)
{
	struct load load = load_endless(2, -1);
	struct recording r;

	propose(&r, load.pid, 0, 2);
	record(&r);
	check(start(&r) == EALREADY, "it starts twice");
	stop(&r);
	stop(&r);
	wait_end(&r);
	for (unsigned int i = 0; i < 2; i++)
		check(core_status(&r, i).end == PERMILLE_END_STOPPED, "core %u ended by %u", i,
		      core_status(&r, i).end);
	check(start(&r) == EALREADY, "it starts again");
	conclude(&r, &load, "a session can be stopped, any number of times, and is started once");
}

void test_sessions(void)
{
	tells_what_it_offers();
	ends_by_its_period();
	without_filter_records_others_too();
	core_without_target_stays_off();
	several_on_disjoint_cores();
	stopped_by_hand();
}

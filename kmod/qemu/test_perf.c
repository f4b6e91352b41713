// SPDX-License-Identifier: GPL-2.0
/* Beside the kernel's own driver of the trace unit, on a processor whose CPUID tells of one. */
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"
#include "unit/mark.h"

#define INTEL_PT_TYPE "/sys/bus/event_source/devices/intel_pt/type"

/* perf's event on a core, or minus an errno */
static int perf_takes(int cpu)
{
	struct perf_event_attr attr = {
		.type = read_number(INTEL_PT_TYPE),
		.size = sizeof(attr),
		.disabled = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static void finds_the_processors_own(void)
{
	struct permille_info info = module_info();

	check(read_number(INTEL_PT_TYPE) > 0, "the kernel has no intel_pt");
	check(info.backend == PERMILLE_BACKEND_MSR, "back end %u", info.backend);
	check((info.features & (PERMILLE_CR3_FILTER | PERMILLE_CYC | PERMILLE_MTC)) ==
	      (PERMILLE_CR3_FILTER | PERMILLE_CYC | PERMILLE_MTC), "features %#x", info.features);
	check(info.mtc_freqs == 0x249 && info.psb_freqs == 0x3f && info.cyc_thresholds == 1 &&
	      !info.regions,
	      "mtc %#x psb %#x cyc %#x regions %u", info.mtc_freqs, info.psb_freqs,
	      info.cyc_thresholds, info.regions);
	result("CPUID leaf 14H decides what the module offers");
}

static void perf_was_first(void)
{
	int perf = perf_takes(1);
	struct recording r;

	check(perf >= 0, "perf: %s", strerror(-perf));
	propose(&r, 1, 0, 2);
	check(set_up(&r) == EBUSY && r.setup.refusal == PERMILLE_REFUSED_PERF &&
	      r.setup.refused_value == 1,
	      "refusal %u for %u", r.setup.refusal, r.setup.refused_value);
	close_recording(&r);
	propose(&r, 1, 0, 1);
	check(!set_up(&r), "core 0: refusal %u for %u", r.setup.refusal, r.setup.refused_value);
	close_recording(&r);
	close(perf);
	result("a core that perf has is refused, another one is not");
}

static void perf_comes_later(void)
{
	struct load load = load_endless(2, 1);
	struct permille_core_status core;
	struct recording r;
	int perf;

	propose(&r, load.pid, 1, 1);
	record(&r);
	perf = perf_takes(1);
	check(perf == -EBUSY, "perf on a core that is recorded: %d", perf);
	perf = perf_takes(0);
	check(perf >= 0, "perf on another core: %s", strerror(-perf));
	close(perf);
	while (core_status(&r, 0).trace_bytes <= 1000)
		usleep(10000);
	stop(&r);
	core = core_status(&r, 0);
	check(core.operations_on == 1 && core.operations_off == 1 && !core.faults &&
	      core.end == PERMILLE_END_STOPPED,
	      "%llu on, %llu off, %u faults, end %u", core.operations_on, core.operations_off,
	      core.faults, core.end);
	check(r.trace[0][0] == 0x02 && r.trace[0][1] == 0x82, "no PSB");
	note("beside perf: %llu bytes of %llu arrivals", core.trace_bytes, core.arrivals);
	close_recording(&r);
	perf = perf_takes(1);
	check(perf >= 0, "perf after the session: %s", strerror(-perf));
	close(perf);
	load_kill(&load);
	result("perf is refused on a core that is recorded, before its end and not afterwards");
}

void test_perf(void)
{
	finds_the_processors_own();
	perf_was_first();
	perf_comes_later();
	mark(MARK_NEXT_RECORDING);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * What only a processor with Intel PT can tell of the module, one line a check: selftest-hardware
 * [MODULE.ko] [--suspend]. Needs root. With a module it is loaded for the time of the test;
 * --suspend sends the machine to sleep for ten seconds. Exit code 0: nothing has failed; 1:
 * something has; 2: nothing could be tested.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../qemu/recording.h"
#include "../qemu/tap.h"
#include "busy.h"
#include "packets.h"

#define BUFFER (8ull << 20)
#define FILLED (20ull << 10)	/* of a core, soon */
#define ENOUGH 100000		/* branches */

static struct permille_info about;
static bool failed_here, failed_ever;

bool check_that(bool holds, const char *file, int line, const char *format, ...)
{
	va_list arguments;

	if (holds)
		return true;
	failed_here = true;
	printf("        %s:%d: ", file, line);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	return false;
}

__attribute__((format(printf, 2, 3))) static void tell(const char *what, const char *format, ...)
{
	va_list arguments;

	printf("%-7s %s", failed_here ? "FAILED" : "ok", what);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	failed_ever |= failed_here;
	failed_here = false;
}

static void not_possible(const char *what, const char *why)
{
	printf("-       %s: not possible here, because %s\n", what, why);
}

/* What the known branch did, against what it must have done */
struct judged {
	struct walker walker;
	unsigned int told;		/* bits since it was enabled, up to 32 */
	bool inside;
	uint32_t state;
	uint64_t equal, different, strange, others;
	uint64_t turned;		/* this branch's outcome is turned round; 0: none is */
};

static void branch(struct walker *walker, int taken)
{
	struct judged *judged = (struct judged *)walker;

	if (!judged->inside)
		return;
	if (judged->turned && !--judged->turned)
		taken = !taken;
	if (judged->told == 32)
		*(busy_takes(judged->state) == taken ? &judged->equal : &judged->different) += 1;
	else
		judged->told++;
	judged->state = busy_next(judged->state, taken);
}

static void enabled(struct walker *walker, uint64_t address)
{
	struct judged *judged = (struct judged *)walker;

	judged->inside = busy_is_at(address, false);
	judged->strange += !judged->inside;
	judged->others += busy_is_at(address, true);
	judged->told = 0;
}

static void disabled(struct walker *walker)
{
	((struct judged *)walker)->inside = false;
}

static bool nothing_behind(const struct recording *r, unsigned int index,
			   const struct permille_core_status *core)
{
	const uint8_t *behind = r->trace[index] + core->trace_bytes;
	uint64_t size = r->plans[index].buffer_bytes - core->trace_bytes;

	return !size || (!*behind && !memcmp(behind, behind + 1, size - 1));
}

static void judge(const struct recording *r, struct judged *judged)
{
	for (unsigned int i = 0; i < r->setup.core_count; i++) {
		struct permille_core_status core = core_status(r, i);
		size_t got;

		judged->inside = false;
		got = packets_walk(&judged->walker, r->trace[i], core.trace_bytes);
		check(got == core.trace_bytes || (core.full && core.trace_bytes - got < 16),
		      "core %u: no packet at %zu of %llu: %02x", core.cpu, got, core.trace_bytes,
		      got < core.trace_bytes ? r->trace[i][got] : 0);
		check(nothing_behind(r, i, &core),
		      "core %u: something is behind the %llu bytes that it told", core.cpu,
		      core.trace_bytes);
		check(!core.faults && core.operations_on <= 1 &&
		      core.operations_off == core.operations_on && !core.retargets,
		      "core %u: %u refused registers, %llu on, %llu off, %llu retargets", core.cpu,
		      core.faults, core.operations_on, core.operations_off, core.retargets);
	}
	check(!judged->different && !judged->strange,
	      "%llu branches differ, %llu entries are elsewhere, %llu in another process",
	      (unsigned long long)judged->different, (unsigned long long)judged->strange,
	      (unsigned long long)judged->others);
}

static void plan_for(struct recording *r, pid_t pid, unsigned int flags, uint64_t period_ns,
		     uint64_t bytes)
{
	propose(r, pid, 0, CORES);
	r->setup.flags = about.features &
		(flags | PERMILLE_TSC | PERMILLE_CR3_FILTER | PERMILLE_NO_RET_COMPRESSION);
	r->setup.period_ns = period_ns;
	for (unsigned int i = 0; i < CORES; i++)
		r->plans[i].buffer_bytes = bytes;
}

/* As long as it takes until enough was compared: how fast a machine is is not asked here. */
static struct judged record_known(struct recording *r, pid_t pid, unsigned int flags)
{
	struct judged judged;

	for (uint64_t period_ns = 5000000; period_ns <= PERMILLE_MAX_PERIOD_NS; period_ns *= 2) {
		judged = (struct judged) { .walker = { branch, enabled, disabled, 0 } };
		plan_for(r, pid, flags, period_ns, BUFFER);
		record(r);
		wait_end(r);
		judge(r, &judged);
		if (judged.equal >= ENOUGH || failed_here)
			break;
		close_recording(r);
	}
	check(judged.equal >= ENOUGH, "only %llu branches were recorded",
	      (unsigned long long)judged.equal);
	return judged;
}

/* With one outcome turned round the comparison must fail. */
static void check_judge(const struct recording *r)
{
	struct judged judged = { .walker = { branch, enabled, disabled, 0 }, .turned = ENOUGH / 4 };

	for (unsigned int i = 0; i < CORES; i++)
		packets_walk(&judged.walker, r->trace[i], core_status(r, i).trace_bytes);
	check(judged.different, "a branch that goes the other way is no difference");
}

static void known_flow(const char *what, unsigned int flags)
{
	struct busy busy = busy_begin(2 * CORES, CORES, false);
	struct busy other = busy_begin(CORES, CORES, true);
	struct judged judged;
	struct recording r;

	if ((flags & about.features) != flags) {
		not_possible(what, "this processor does not offer it");
	} else {
		judged = record_known(&r, busy.pid, flags);
		check_judge(&r);
		tell(what, ": %llu outcomes equal the known ones, none of the other process",
		     (unsigned long long)judged.equal);
		close_recording(&r);
	}
	busy_end(&busy);
	busy_end(&other);
}

struct registers {
	bool known;
	unsigned long long base, pointers, ctl, status;
};

static struct registers read_registers(unsigned int cpu)
{
	static const unsigned int numbers[] = { 0x560, 0x561, 0x570, 0x571 };
	uint64_t values[4] = {};
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/cpu/%u/msr", cpu);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return (struct registers) {};
	for (unsigned int i = 0; i < 4; i++)
		check(pread(fd, &values[i], 8, numbers[i]) == 8, "MSR %#x: %s", numbers[i],
		      strerror(errno));
	close(fd);
	return (struct registers) { true, values[0], values[1], values[2], values[3] };
}

static void show_registers(const struct registers *first, const struct registers *full,
			   const struct registers *last)
{
	static const char given_back[] = "the output registers are given back as they were";

	if (!first->known) {
		not_possible("registers behind a STOP",
			     "there is no /dev/cpu/*/msr (modprobe msr)");
		not_possible(given_back, "there is no /dev/cpu/*/msr (modprobe msr)");
		return;
	}
	check(full->status & 1 << 5, "STATUS %#llx does not say Stopped", full->status);
	tell("registers behind a STOP",
	     ": OUTPUT_BASE %#llx OUTPUT_MASK_PTRS %#llx CTL %#llx STATUS %#llx", full->base,
	     full->pointers, full->ctl, full->status);
	check(first->base == last->base && first->pointers == last->pointers,
	      "OUTPUT_BASE %#llx and %#llx, OUTPUT_MASK_PTRS %#llx and %#llx", first->base,
	      last->base, first->pointers, last->pointers);
	tell(given_back, ": OUTPUT_BASE %#llx", last->base);
}

static void stops_when_full(void)
{
	struct busy busy = busy_begin(2 * CORES, CORES, false);
	struct judged judged = { .walker = { branch, enabled, disabled, 0 } };
	struct registers first = read_registers(0), full, last;
	struct permille_core_status core;
	struct recording r;
	uint64_t before;

	plan_for(&r, busy.pid, 0, PERMILLE_MAX_PERIOD_NS, FILLED);
	record(&r);
	/*
	 * Whether a processor says that it has stopped is what is asked here: no longer than until
	 * the buffers must be full.
	 */
	before = busy_rounds(&busy);
	while ((!core_status(&r, 0).full || !core_status(&r, 1).full) &&
	       session_status(&r).state == PERMILLE_ACTIVE &&
	       busy_rounds(&busy) - before < 20 * 8 * 2 * FILLED)
		usleep(1000);
	full = read_registers(0);
	stop(&r);
	last = read_registers(0);
	judge(&r, &judged);
	for (unsigned int i = 0; i < CORES; i++) {
		core = core_status(&r, i);
		if (!check(core.full, "core %u does not say that it has stopped; %llu bytes", i,
			   core.trace_bytes))
			continue;
		check(core.trace_bytes == core.buffer_bytes, "%llu of %llu bytes", core.trace_bytes,
		      core.buffer_bytes);
		/* The last packets of a buffer may be padding, not its last half KiB */
		check(memmem(r.trace[i] + core.trace_bytes - 512, 512, (char[512]){}, 512) == NULL,
		      "core %u: its end is empty", i);
	}
	tell("a full buffer stops the core", ": every byte of %llu is used",
	     r.plans[0].buffer_bytes);
	show_registers(&first, &full, &last);
	close_recording(&r);
	busy_end(&busy);
}

/* TSC ticks a nanosecond, by the module's own two clocks */
static double ticks_a_ns(const struct recording *r)
{
	struct permille_session_status status = session_status(r);

	return (double)(status.now_tsc - status.start_tsc) / (status.now_ns - status.start_ns);
}

static void hook_time(void)
{
	struct busy busy = busy_begin(8 * CORES, CORES, false);
	double ns = 0, calls = 0, longest = 0;
	struct recording r;

	plan_for(&r, busy.pid, 0, 500000000, BUFFER);
	record(&r);
	wait_end(&r);
	for (unsigned int i = 0; i < CORES; i++) {
		struct permille_core_status core = core_status(&r, i);

		ns += core.hook_ticks / ticks_a_ns(&r);
		calls += core.hook_calls;
		longest = core.hook_ticks_max > longest ? core.hook_ticks_max : longest;
	}
	if (about.backend == PERMILLE_BACKEND_MSR)
		check(ns / calls < 1000, "%.0f ns", ns / calls);
	if (calls)
		tell("the hook takes less than 1 us", ": %.0f ns, at most %.0f ns%s", ns / calls,
		     longest / ticks_a_ns(&r),
		     about.backend == PERMILLE_BACKEND_MSR ? "" : " (emulated: not judged)");
	else
		not_possible("the hook takes less than 1 us",
			     "nothing was switched in half a second");
	close_recording(&r);
	busy_end(&busy);
}

static double rounds_in(const struct busy *busy, uint64_t ns)
{
	struct timespec begin, end, wait = { ns / 1000000000, ns % 1000000000 };
	uint64_t rounds = busy_rounds(busy);

	clock_gettime(CLOCK_MONOTONIC, &begin);
	nanosleep(&wait, NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (busy_rounds(busy) - rounds) /
	       ((end.tv_sec - begin.tv_sec) * 1e9 + end.tv_nsec - begin.tv_nsec);
}

/*
 * The least favourable program there is: nothing but branches. Off and on take turns. An emulated
 * processor fills less in the time.
 */
static void overhead(void)
{
	uint64_t bytes = about.backend == PERMILLE_BACKEND_EMULATED ? BUFFER : PERMILLE_MAX_BUFFER;
	struct busy busy = busy_begin(CORES, CORES, false);
	double off = 0, on = 0;
	struct recording r;

	for (int turn = 0; turn < 5; turn++) {
		off += rounds_in(&busy, 100000000);
		plan_for(&r, busy.pid, 0, PERMILLE_MAX_PERIOD_NS, bytes);
		record(&r);
		on += rounds_in(&busy, 100000000);
		stop(&r);
		close_recording(&r);
	}
	tell("what tracing costs its target", ": %.2f %% of its speed (only branches)",
	     100 * (off - on) / off);
	busy_end(&busy);
}

static int perf_takes(long type, int cpu)
{
	struct perf_event_attr attr = { .type = type, .size = sizeof(attr), .disabled = 1 };

	return syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static void beside_perf(void)
{
	static const char what[] = "perf and the module refuse each other";
	long type = read_number("/sys/bus/event_source/devices/intel_pt/type");
	struct recording r;
	int perf;

	if (type <= 0) {
		not_possible(what, "the kernel has no intel_pt");
		return;
	}
	propose(&r, getpid(), 0, 1);
	record(&r);
	check(perf_takes(type, 0) < 0 && errno == EBUSY, "perf takes a core that is recorded");
	close_recording(&r);
	perf = perf_takes(type, 0);
	check(perf >= 0, "perf: %s", strerror(errno));
	propose(&r, getpid(), 0, 1);
	check(set_up(&r) == EBUSY && r.setup.refusal == PERMILLE_REFUSED_PERF, "refusal %u",
	      r.setup.refusal);
	close_recording(&r);
	close(perf);
	tell(what, "%s", "");
}

static void beside_kvm(void)
{
	static const char what[] = "KVM that uses PT is a refusal";
	struct recording r;

	if (read_number("/sys/module/kvm_intel/parameters/pt_mode") != 1) {
		not_possible(what,
			     "kvm_intel is not loaded with pt_mode=1 (modprobe kvm_intel pt_mode=1, and again)");
		return;
	}
	propose(&r, getpid(), 0, 1);
	check(set_up(&r) == EBUSY && r.setup.refusal == PERMILLE_REFUSED_KVM, "refusal %u",
	      r.setup.refusal);
	close_recording(&r);
	tell(what, "%s", "");
}

static void suspends(bool wanted)
{
	static const char what[] = "suspend ends a session";
	char until[32];
	struct recording r;

	if (!wanted) {
		not_possible(what,
			     "nobody asked for it: --suspend sends this machine to sleep for ten seconds");
		return;
	}
	snprintf(until, sizeof(until), "%ld", (long)time(NULL) + 10);
	if (!write_text("/sys/class/rtc/rtc0/wakealarm", until)) {
		not_possible(what,
			     "no clock of this machine would wake it (/sys/class/rtc/rtc0/wakealarm)");
		return;
	}
	propose(&r, getpid(), 0, CORES);
	record(&r);
	check(write_text("/sys/power/state", "mem"), "no sleep: %s", strerror(errno));
	check(core_status(&r, 0).end == PERMILLE_END_SLEEP, "core 0 ended by %u",
	      core_status(&r, 0).end);
	close_recording(&r);
	tell(what, "%s", "");
}

/* 0, or the exit code */
static int begin(const char *module)
{
	int failed = module ? load_module_from(module, "") : 0;

	if (failed) {
		printf("-       the module does not load from %s: %s%s\n", module, strerror(failed),
		       failed == ENODEV ? " (this processor has no Intel PT)" : "");
		return 2;
	}
	if (access(PERMILLE_DEVICE, R_OK | W_OK)) {
		printf("-       %s: %s; load the module, or name it: selftest-hardware permille.ko\n",
		       PERMILLE_DEVICE, strerror(errno));
		return 2;
	}
	about = module_info();
	if (about.backend == PERMILLE_BACKEND_MODEL || about.per_switch) {
		printf("-       the module is loaded with model=1 or per_switch=1: load it without parameters\n");
		return 2;
	}
	tell("the module", " drives %s: features %#x, PSB %#x, MTC %#x, CYC %#x, %s region a core",
	     about.backend == PERMILLE_BACKEND_MSR ? "this processor" : "an emulated processor",
	     about.features, about.psb_freqs, about.mtc_freqs, about.cyc_thresholds,
	     about.regions ? "one" : "any number of");
	return 0;
}

int main(int count, char **arguments)
{
	bool sleeps = count > 1 && !strcmp(arguments[count - 1], "--suspend");
	const char *module = count > 1 + sleeps ? arguments[1] : NULL;
	int code = begin(module);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (code)
		return code;
	known_flow("what is recorded is what ran", 0);
	known_flow("with cycle-accurate packets", PERMILLE_CYC | PERMILLE_MTC);
	known_flow("past the caches (write combining)", PERMILLE_WRITE_COMBINING);
	stops_when_full();
	hook_time();
	overhead();
	beside_perf();
	beside_kvm();
	suspends(sleeps);
	not_possible("kexec",
		     "it ends this test: `kexec -e` while a session runs, the next kernel must find IA32_RTIT_CTL (0x570) 0");
	if (module)
		check(!unload_module(), "unload: %s", strerror(errno));
	return failed_ever || failed_here;
}

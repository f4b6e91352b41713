// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording.h"
#include "tap.h"
#include "tests.h"

struct wrong {
	const char *what;
	/* The field of struct permille_setup, or of the first core's plan */
	size_t at, size;
	bool plan;
	uint64_t value;
	int error;
	uint32_t refusal, refused;
};

#define FIELD(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)
#define SETUP(field) FIELD(permille_setup, field), false
#define PLAN(field) FIELD(permille_core_plan, field), true

static const struct wrong wrongs[] = {
	{ "version 0", SETUP(version), 0, EINVAL, PERMILLE_REFUSED_VERSION, PERMILLE_UAPI_VERSION },
	{ "version 1", SETUP(version), 1, EINVAL, PERMILLE_REFUSED_VERSION, PERMILLE_UAPI_VERSION },
	{ "unknown flag", SETUP(flags), 1u << 31, EOPNOTSUPP, PERMILLE_REFUSED_FLAGS, 1u << 31 },
	{ "kernel code", SETUP(flags), PERMILLE_KERNEL, EOPNOTSUPP, PERMILLE_REFUSED_FLAGS,
	  PERMILLE_KERNEL },
	{ "reserved", SETUP(reserved), 1, EINVAL, PERMILLE_REFUSED_RESERVED, 1 },
	{ "no period", SETUP(period_ns), 0, EINVAL, PERMILLE_REFUSED_PERIOD, 0 },
	{ "endless period", SETUP(period_ns), ~0ull, EINVAL, PERMILLE_REFUSED_PERIOD, 0 },
	{ "PSB frequency", SETUP(psb_freq), 6, EOPNOTSUPP, PERMILLE_REFUSED_FREQUENCY, 6 },
	{ "MTC frequency without MTC", SETUP(mtc_freq), 3, EOPNOTSUPP, PERMILLE_REFUSED_FREQUENCY,
	  3 },
	{ "CYC threshold", SETUP(cyc_threshold), 40, EOPNOTSUPP, PERMILLE_REFUSED_FREQUENCY, 40 },
	{ "no core", SETUP(core_count), 0, EINVAL, PERMILLE_REFUSED_CORE_COUNT, 0 },
	{ "4 Gi cores", SETUP(core_count), ~0u, EINVAL, PERMILLE_REFUSED_CORE_COUNT, ~0u },
	{ "no process", SETUP(process_count), 0, EINVAL, PERMILLE_REFUSED_PROCESS_COUNT, 0 },
	{ "65 processes", SETUP(process_count), 65, EINVAL, PERMILLE_REFUSED_PROCESS_COUNT, 65 },
	{ "cores nowhere", SETUP(cores), 0xdead0000, EFAULT, 0, 0 },
	{ "cores in the kernel", SETUP(cores), 0xffffffff81000000ull, EFAULT, 0, 0 },
	{ "processes nowhere", SETUP(processes), 0x10, EFAULT, 0, 0 },
	{ "core 4000", PLAN(cpu), 4000, ENODEV, PERMILLE_REFUSED_CORE, 4000 },
	{ "core 4 Gi", PLAN(cpu), ~0u, ENODEV, PERMILLE_REFUSED_CORE, ~0u },
	{ "core twice", PLAN(cpu), 1, EINVAL, PERMILLE_REFUSED_CORE, 1 },
	{ "no buffer", PLAN(buffer_bytes), 0, EINVAL, PERMILLE_REFUSED_BUFFER, 0 },
	{ "odd buffer", PLAN(buffer_bytes), 5000, EINVAL, PERMILLE_REFUSED_BUFFER, 0 },
	{ "huge buffer", PLAN(buffer_bytes), 1ull << 62, EINVAL, PERMILLE_REFUSED_BUFFER, 0 },
	{ "odd records", PLAN(switch_records), 1000, EINVAL, PERMILLE_REFUSED_RECORDS, 0 },
	{ "4 Gi records", PLAN(switch_records), 1u << 31, EINVAL, PERMILLE_REFUSED_RECORDS, 0 },
};

static void refuses_each_wrong_field(void)
{
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		const struct wrong *wrong = &wrongs[i];
		struct recording r;
		char *base;
		int failed;

		propose(&r, getpid(), 0, 2);
		base = wrong->plan ? (char *)&r.plans[0] : (char *)&r.setup;
		memcpy(base + wrong->at, &wrong->value, wrong->size);
		failed = set_up(&r);
		check(failed == wrong->error, "%s: %s", wrong->what, strerror(failed));
		check(r.setup.refusal == wrong->refusal && r.setup.refused_value == wrong->refused,
		      "%s: refusal %u for %u", wrong->what, r.setup.refusal, r.setup.refused_value);
		r.setup.core_count = 0;
		close_recording(&r);
	}
	result("every wrong field is refused, and the refusal names it and its value");
}

static pid_t dead_process(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

static void refuses_dead_process(void)
{
	struct recording r;
	pid_t pid = dead_process();

	propose(&r, pid, 0, 1);
	check(set_up(&r) == ESRCH && r.setup.refusal == PERMILLE_REFUSED_PROCESS &&
	      r.setup.refused_value == (uint32_t)pid,
	      "refusal %u for %u", r.setup.refusal, r.setup.refused_value);
	close_recording(&r);
	result("a process that is gone is refused");
}

static int add_as_nobody(const struct recording *r)
{
	struct permille_process own = { .version = PERMILLE_UAPI_VERSION, .pid = getpid() };

	if (setgid(65534) || setuid(65534))
		return -1;
	return ioctl(r->fd, PERMILLE_IOC_ADD_PROCESS, &own) ? errno : 0;
}

static int add_in_pid_namespace(struct recording *r)
{
	struct permille_process first = { .pid = 1 };
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		return -1;
	pid = fork();
	if (!pid)
		_exit(add_process(r, &first) == EPERM ? first.refusal : 0);
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void refuses_to_add(void)
{
	const struct {
		struct permille_process process;
		int error;
		uint32_t refusal, refused;
	} wrongs[] = {
		{ { .version = 1, .pid = getpid() }, EINVAL, PERMILLE_REFUSED_VERSION,
		  PERMILLE_UAPI_VERSION },
		{ { .pid = getpid(), .reserved = 7 }, EINVAL, PERMILLE_REFUSED_RESERVED, 7 },
		{ { .pid = 0 }, ESRCH, PERMILLE_REFUSED_PROCESS, 0 },
		{ { .pid = ~0u }, ESRCH, PERMILLE_REFUSED_PROCESS, ~0u },
	};
	struct permille_process process = { .pid = getpid() };
	struct recording r = { .fd = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC) };
	int status;
	pid_t pid;

	check(add_process(&r, &process) == ENODATA, "before setup");
	close(r.fd);
	propose(&r, KTHREADD, 0, 1);
	check(!set_up(&r), "setup");
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		int failed;

		process = wrongs[i].process;
		failed = add_process(&r, &process);
		check(failed == wrongs[i].error && process.refusal == wrongs[i].refusal &&
		      process.refused_value == wrongs[i].refused, "%zu: %s, refusal %u for %u", i,
		      strerror(failed), process.refusal, process.refused_value);
	}
	process = (struct permille_process) { .pid = dead_process() };
	check(add_process(&r, &process) == ESRCH && process.refusal == PERMILLE_REFUSED_PROCESS,
	      "refusal %u", process.refusal);
	check(ioctl(r.fd, PERMILLE_IOC_ADD_PROCESS, 0x10) < 0 && errno == EFAULT,
	      "a process nowhere: %s", strerror(errno));
	for (int namespace = 0; namespace < 2; namespace++) {
		pid = fork();
		if (!pid)
			_exit(namespace ? add_in_pid_namespace(&r) : add_as_nobody(&r));
		waitpid(pid, &status, 0);
		check(WEXITSTATUS(status) == (namespace ? PERMILLE_REFUSED_NAMESPACE : EPERM),
		      "%s: %d", namespace ? "another pid namespace" : "no privilege",
		      WEXITSTATUS(status));
	}
	check(session_status(&r).processes == 1, "%u processes", session_status(&r).processes);
	close_recording(&r);
	result("whoever may not set up may not add either, and what is no process is not added");
}

static void refuses_beyond_the_budget(void)
{
	struct recording r;

	check(write_text("/sys/module/permille/parameters/memory_limit_mb", "3"),
	      "the parameter cannot be written");
	propose(&r, getpid(), 0, 2);
	r.plans[0].buffer_bytes = 2 << 20;
	r.plans[1].buffer_bytes = 2 << 20;
	check(set_up(&r) == ENOMEM && r.setup.refusal == PERMILLE_REFUSED_MEMORY &&
	      r.setup.refused_value == 7,
	      "refusal %u for %u", r.setup.refusal, r.setup.refused_value);
	close_recording(&r);
	write_text("/sys/module/permille/parameters/memory_limit_mb", "1024");
	check(!module_info().memory_used_bytes, "memory is taken");
	result("more memory than the limit is refused");
}

static void refuses_before_setup(void)
{
	int fd = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC);
	struct permille_core_status core = {};

	check(ioctl(fd, PERMILLE_IOC_START) < 0 && errno == ENODATA, "start: %s", strerror(errno));
	check(ioctl(fd, PERMILLE_IOC_STOP) < 0 && errno == ENODATA, "stop: %s", strerror(errno));
	check(ioctl(fd, PERMILLE_IOC_CORE, &core) < 0 && errno == ENODATA, "core: %s",
	      strerror(errno));
	check(ioctl(fd, _IO('p', 0xaf)) < 0 && errno == ENOTTY, "unknown: %s", strerror(errno));
	check(ioctl(fd, PERMILLE_IOC_INFO, NULL) < 0 && errno == EFAULT, "info: %s",
	      strerror(errno));
	check(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL,
	      "mmap: %s", strerror(errno));
	close(fd);
	result("nothing works before setup, and unknown commands are unknown");
}

static void refuses_mappings(void)
{
	struct recording r;
	void *at;

	propose(&r, getpid(), 0, 1);
	check(!set_up(&r), "setup");
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
	check(at == MAP_FAILED && errno == EACCES, "writable trace: %s", strerror(errno));
	at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, r.fd, 0);
	check(at == MAP_FAILED && errno == EINVAL, "private: %s", strerror(errno));
	at = mmap(NULL, (1 << 20) + 4096, PROT_READ, MAP_SHARED, r.fd, 0);
	check(at == MAP_FAILED && errno == EINVAL, "too large: %s", strerror(errno));
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, r.fd, 1ull << 32);
	check(at == MAP_FAILED && errno == EINVAL, "core 1 of 1: %s", strerror(errno));
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, r.fd, 4096);
	check(at == MAP_FAILED && errno == EINVAL, "amid the trace: %s", strerror(errno));
	at = mmap(NULL, 1 << 24, PROT_READ, MAP_SHARED, r.fd, PERMILLE_MMAP_SWITCHES(0));
	check(at == MAP_FAILED && errno == EINVAL, "too large a ring: %s", strerror(errno));
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, r.fd, 0);
	check(at != MAP_FAILED, "trace: %s", strerror(errno));
	check(mprotect(at, 4096, PROT_READ | PROT_WRITE) && errno == EACCES, "mprotect: %s",
	      strerror(errno));
	munmap(at, 4096);
	close_recording(&r);
	result("the trace maps for reading only, and nothing beyond it");
}

/* In a child: without privileges. */
static int as_nobody(void)
{
	if (setgid(65534) || setuid(65534))
		return -1;
	return open(PERMILLE_DEVICE, O_RDWR) < 0 ? errno : 0;
}

static int in_pid_namespace(void)
{
	struct recording r;
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		return -1;
	pid = fork();
	if (!pid) {
		propose(&r, 1, 0, 1);
		_exit(set_up(&r) == EPERM ? r.setup.refusal : 0);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static int in_child(int (*what)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(what());
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void refuses_without_privilege(void)
{
	int got = in_child(as_nobody);

	check(got == EACCES, "mode 0600: %s", strerror(got));
	chmod(PERMILLE_DEVICE, 0666);
	got = in_child(as_nobody);
	check(got == EPERM, "mode 0666: %s", strerror(got));
	chmod(PERMILLE_DEVICE, 0600);
	got = in_child(in_pid_namespace);
	check(got == PERMILLE_REFUSED_NAMESPACE, "another pid namespace: refusal %d", got);
	result("without CAP_PERFMON, or from another pid namespace, there is no session");
}

void test_refusals(void)
{
	refuses_each_wrong_field();
	refuses_dead_process();
	refuses_to_add();
	refuses_beyond_the_budget();
	refuses_before_setup();
	refuses_mappings();
	refuses_without_privilege();
}

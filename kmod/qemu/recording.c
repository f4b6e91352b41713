// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recording.h"
#include "tap.h"

void propose(struct recording *r, pid_t pid, unsigned int first, unsigned int count)
{
	memset(r, 0, sizeof(*r));
	r->fd = -1;
	r->pids[0] = pid;
	for (unsigned int i = 0; i < count; i++)
		r->plans[i] = (struct permille_core_plan) {
			.cpu = first + i,
			.switch_records = 1 << 16,
			.buffer_bytes = 1 << 20,
		};
	r->setup = (struct permille_setup) {
		.version = PERMILLE_UAPI_VERSION,
		.flags = PERMILLE_TSC | PERMILLE_CR3_FILTER,
		.period_ns = PERMILLE_MAX_PERIOD_NS,
		.core_count = count,
		.process_count = 1,
		.cores = (uintptr_t)r->plans,
		.processes = (uintptr_t)r->pids,
	};
}

int set_up(struct recording *r)
{
	r->fd = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC);
	if (r->fd < 0 || ioctl(r->fd, PERMILLE_IOC_SETUP, &r->setup))
		return errno;
	for (unsigned int i = 0; i < r->setup.core_count; i++)
		r->plans[i].buffer_bytes = core_status(r, i).buffer_bytes;
	return 0;
}

int add_process(struct recording *r, struct permille_process *process)
{
	process->version = process->version ? process->version : PERMILLE_UAPI_VERSION;
	return ioctl(r->fd, PERMILLE_IOC_ADD_PROCESS, process) ? errno : 0;
}

int start(struct recording *r)
{
	return ioctl(r->fd, PERMILLE_IOC_START) ? errno : 0;
}

static void *map_one(struct recording *r, size_t size, int protection, off_t offset)
{
	void *at = mmap(NULL, size, protection, MAP_SHARED, r->fd, offset);

	check(at != MAP_FAILED, "mmap of %zu at %#lx: %s", size, (long)offset, strerror(errno));
	return at == MAP_FAILED ? NULL : at;
}

static size_t ring_size(const struct permille_core_plan *plan)
{
	size_t size = plan->switch_records * sizeof(struct permille_switch);

	return PERMILLE_RING_RECORDS + (size + 4095) / 4096 * 4096;
}

void map(struct recording *r)
{
	for (unsigned int i = 0; i < r->setup.core_count; i++) {
		r->trace[i] = map_one(r, r->plans[i].buffer_bytes, PROT_READ,
				      PERMILLE_MMAP_TRACE(i));
		r->rings[i] = map_one(r, ring_size(&r->plans[i]), PROT_READ | PROT_WRITE,
				      PERMILLE_MMAP_SWITCHES(i));
	}
}

void record(struct recording *r)
{
	int failed = set_up(r);

	check(!failed, "setup: %s, refusal %u for %u", strerror(failed), r->setup.refusal,
	      r->setup.refused_value);
	map(r);
	failed = start(r);
	check(!failed, "start: %s", strerror(failed));
}

void stop(struct recording *r)
{
	check(!ioctl(r->fd, PERMILLE_IOC_STOP), "stop: %s", strerror(errno));
}

void wait_end(struct recording *r)
{
	struct pollfd one = { .fd = r->fd, .events = POLLIN };

	check(poll(&one, 1, 2 * PERMILLE_MAX_PERIOD_NS / 1000000) == 1 && one.revents == POLLIN,
	      "the session does not end: %x", one.revents);
}

void close_recording(struct recording *r)
{
	for (unsigned int i = 0; i < r->setup.core_count && i < CORES; i++) {
		if (r->trace[i])
			munmap((void *)r->trace[i], r->plans[i].buffer_bytes);
		if (r->rings[i])
			munmap(r->rings[i], ring_size(&r->plans[i]));
	}
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

void check_all_off(pid_t target)
{
	struct permille_info info = module_info();
	struct recording r;

	check(!info.sessions && !info.memory_used_bytes, "%u sessions, %llu bytes", info.sessions,
	      info.memory_used_bytes);
	propose(&r, target, 0, CORES);
	check(!set_up(&r) && !start(&r), "a new session: refusal %u", r.setup.refusal);
	close_recording(&r);
}

struct permille_core_status core_status(const struct recording *r, unsigned int index)
{
	struct permille_core_status status = { .index = index };

	check(!ioctl(r->fd, PERMILLE_IOC_CORE, &status), "status of core %u: %s", index,
	      strerror(errno));
	return status;
}

struct permille_session_status session_status(const struct recording *r)
{
	struct permille_session_status status = {};

	check(!ioctl(r->fd, PERMILLE_IOC_SESSION, &status), "status: %s", strerror(errno));
	return status;
}

const struct permille_switch *switch_at(const struct recording *r, unsigned int index,
					uint64_t number)
{
	const struct permille_switch *records =
		(void *)((char *)r->rings[index] + PERMILLE_RING_RECORDS);

	return &records[number & (r->rings[index]->capacity - 1)];
}

struct permille_info module_info(void)
{
	struct permille_info info = {};
	int fd = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC);

	check(fd >= 0 && !ioctl(fd, PERMILLE_IOC_INFO, &info), "info: %s", strerror(errno));
	close(fd);
	return info;
}

int load_module_from(const char *path, const char *parameters)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int failed = syscall(SYS_finit_module, fd, parameters, 0) ? errno : 0;

	close(fd);
	return failed;
}

int load_module(const char *parameters)
{
	return load_module_from("/permille.ko", parameters);
}

int unload_module(void)
{
	return syscall(SYS_delete_module, "permille", O_NONBLOCK) ? errno : 0;
}

void attach_probes(void)
{
	struct recording r;

	propose(&r, KTHREADD, 0, 1);
	record(&r);
	close_recording(&r);
}

void reload_module(const char *parameters)
{
	check(!unload_module() && !load_module(parameters), "reload with %s: %s", parameters,
	      strerror(errno));
	attach_probes();
}

long read_number(const char *path)
{
	char text[32] = {};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = read(fd, text, sizeof(text) - 1);

	close(fd);
	return size > 0 ? atol(text) : -1;
}

bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return done;
}

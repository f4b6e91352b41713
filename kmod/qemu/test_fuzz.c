// SPDX-License-Identifier: GPL-2.0
/* Random calls, half of them nearly right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

#define FUZZERS 3
#define FILES 4

static uint64_t state;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void spoil(void *at, size_t size)
{
	unsigned char *bytes = at;

	for (unsigned int n = any() % 3; n; n--)
		bytes[any() % size] = any() >> 8;
}

static void nearly_right_setup(int fd, pid_t target)
{
	struct recording r;

	propose(&r, target, any() % 2, 1 + any() % 2);
	r.plans[0].buffer_bytes = 4096 << any() % 6;
	r.plans[1].buffer_bytes = 4096 << any() % 6;
	r.plans[0].switch_records = 64 << any() % 4;
	r.plans[1].switch_records = 64 << any() % 4;
	r.setup.flags = any() & any() & PERMILLE_ALL_FLAGS & ~PERMILLE_WRITE_COMBINING;
	r.setup.period_ns = PERMILLE_MIN_PERIOD_NS + any() % 10000000;
	if (any() % 2)
		spoil(&r.setup, sizeof(r.setup));
	if (any() % 4 == 0)
		spoil(r.plans, sizeof(r.plans));
	ioctl(fd, PERMILLE_IOC_SETUP, &r.setup);
}

static void any_mapping(int fd)
{
	uint64_t offset = any() % 3 << 32 | (any() % 2) << 31 |
			  (any() % 8 ? 0 : any() % (1 << 20) << 12);
	size_t size = 4096 * (1 + any() % 40);
	volatile char *at = mmap(NULL, size, any() % 4, any() % 4 ? MAP_SHARED : MAP_PRIVATE, fd,
				 offset);

	if (at != MAP_FAILED)
		munmap((void *)at, size);
}

static void any_call(int *fd, pid_t target)
{
	static const unsigned long commands[] = {
		PERMILLE_IOC_INFO, PERMILLE_IOC_SETUP, PERMILLE_IOC_START, PERMILLE_IOC_STOP,
		PERMILLE_IOC_SESSION, PERMILLE_IOC_CORE, PERMILLE_IOC_ADD_PROCESS,
	};
	struct permille_process process;
	uint64_t bytes[32];

	switch (any() % 16) {
	case 0:
		close(*fd);
		*fd = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC);
		break;
	case 1:
	case 2:
		nearly_right_setup(*fd, target);
		break;
	case 3:
	case 4:
		ioctl(*fd, PERMILLE_IOC_START);
		break;
	case 5:
		any_mapping(*fd);
		break;
	case 6:
		ioctl(*fd, any(), any());
		break;
	case 7:
		ioctl(*fd, commands[any() % 7], any());
		break;
	case 8:
		process = (struct permille_process) {
			.version = PERMILLE_UAPI_VERSION,
			.pid = any() % 2 ? (uint32_t)target : any() % 400
		};
		ioctl(*fd, PERMILLE_IOC_ADD_PROCESS, &process);
		break;
	default:
		for (unsigned int i = 0; i < 32; i++)
			bytes[i] = any() & (any() % 2 ? ~0ull : 3);
		ioctl(*fd, commands[any() % 7], bytes);
	}
}

static void fuzz(uint64_t seed, long calls, const int *files, pid_t target)
{
	int own[FILES];

	state = seed;
	memcpy(own, files, sizeof(own));
	for (long i = 0; i < calls; i++)
		any_call(&own[any() % FILES], target);
	_exit(0);
}

/* Processes share files at first, so that calls meet on one session. */
void test_fuzz(void)
{
	struct load load = load_endless(2, -1);
	long calls = parameter("calls", 60000), seed = parameter("seed", 1);
	int files[FILES];

	for (unsigned int i = 0; i < FILES; i++)
		files[i] = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC);
	for (unsigned int i = 0; i < FUZZERS; i++)
		if (!fork())
			fuzz(0x9e3779b97f4a7c15ull * (seed * FUZZERS + i), calls / FUZZERS + 1,
			     files, load.pid);
	for (unsigned int i = 0; i < FILES; i++)
		close(files[i]);
	for (int i = 0, status; i < FUZZERS; i++)
		check(wait(&status) > 0 && !status, "a fuzzer ended with %#x", status);
	check_all_off(load.pid);
	note("%ld random calls by %d processes", calls, FUZZERS);
	load_kill(&load);
	result("random calls leave nothing behind, and tracing off");
}

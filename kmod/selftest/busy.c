// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "busy.h"

#define TAPS 0x80200003u	/* x^32 + x^22 + x^2 + x + 1: all but the state 0 come by */

/* The jump back is direct and has no packet, so that there is one bit a round. */
#define SHIFT_FOR_EVER(name)					\
	__asm__(".text\n" name "_begin:\n"			\
		"1:\taddq $1, (%rdi)\n"				\
		"\tshrl $1, %esi\n"				\
		"\tjnc 2f\n"					\
		"\txorl $0x80200003, %esi\n"			\
		"2:\tjmp 1b\n" name "_end:\n")
SHIFT_FOR_EVER("shift");
SHIFT_FOR_EVER("other");

extern char shift_begin[], shift_end[], other_begin[], other_end[];
typedef void (*shifter)(uint64_t *count, uint32_t state);

struct place {
	uint64_t *count;
	uint32_t state;
	shifter run;
};

static void *run(void *data)
{
	struct place *place = data;

	place->run(place->count, place->state);
	return NULL;
}

static void begin_threads(const struct busy *busy, unsigned int cores, shifter shift)
{
	cpu_set_t set;
	pthread_t thread;

	CPU_ZERO(&set);
	for (unsigned int i = 0; i < cores; i++)
		CPU_SET(i, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (unsigned int i = 0; i < busy->threads; i++) {
		struct place *place = malloc(sizeof(*place));

		*place = (struct place) { busy->counts[i], 0x12345u + i, shift };
		if (pthread_create(&thread, NULL, run, place))
			_exit(1);
	}
	for (;;)
		pause();
}

struct busy busy_begin(unsigned int threads, unsigned int cores, bool other_kind)
{
	struct busy busy = { .threads = threads };

	busy.counts = mmap(NULL, threads * sizeof(*busy.counts), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	busy.pid = fork();
	if (!busy.pid)
		begin_threads(&busy, cores, (shifter)(other_kind ? other_begin : shift_begin));
	/* Until each has come to its first round, which a program that ended never does */
	for (unsigned int i = 0; i < threads; i++)
		while (!__atomic_load_n(&busy.counts[i][0], __ATOMIC_RELAXED)) {
			if (waitpid(busy.pid, NULL, WNOHANG)) {
				fprintf(stderr,
					"the program that is to be recorded cannot run %u threads\n",
					threads);
				exit(2);
			}
			usleep(1000);
		}
	return busy;
}

uint64_t busy_rounds(const struct busy *busy)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < busy->threads; i++)
		sum += __atomic_load_n(&busy->counts[i][0], __ATOMIC_RELAXED);
	return sum;
}

void busy_end(struct busy *busy)
{
	kill(busy->pid, SIGKILL);
	waitpid(busy->pid, NULL, 0);
	munmap(busy->counts, busy->threads * sizeof(*busy->counts));
}

bool busy_is_at(uint64_t address, bool other_kind)
{
	return other_kind ? address >= (uintptr_t)other_begin && address < (uintptr_t)other_end
			  : address >= (uintptr_t)shift_begin && address < (uintptr_t)shift_end;
}

uint32_t busy_next(uint32_t state, bool taken)
{
	return (state >> 1) ^ (taken ? 0 : TAPS);
}

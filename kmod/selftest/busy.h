/* SPDX-License-Identifier: GPL-2.0 */
/* A program of threads whose only branch is known: it goes by the bits of a shift register. */
#ifndef BUSY_H
#define BUSY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct busy {
	pid_t pid;
	unsigned int threads;
	uint64_t (*counts)[8];	/* rounds of each thread, in a cache line of its own */
};

/*
 * So many threads on so many cores from 0 on. The other kind runs the same in a place of its own.
 */
struct busy busy_begin(unsigned int threads, unsigned int cores, bool other_kind);
uint64_t busy_rounds(const struct busy *busy);
void busy_end(struct busy *busy);
bool busy_is_at(uint64_t address, bool other_kind);

/*
 * The register after a branch that was taken, or not. Once 32 were told it is the thread's, and its
 * lowest bit tells the next.
 */
uint32_t busy_next(uint32_t state, bool taken);
static inline bool busy_takes(uint32_t state)
{
	return !(state & 1);
}

#endif

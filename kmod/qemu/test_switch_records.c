// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

#define MOST_THREADS 64

struct count {
	pid_t tid;
	long before, after, in, out;
};

static struct count *count_of(struct count *counts, unsigned int threads, pid_t tid)
{
	for (unsigned int i = 0; i < threads; i++)
		if (counts[i].tid == tid)
			return &counts[i];
	return NULL;
}

/*
 * On a core: times do not go back, a thread comes before it leaves, and only one is there at a
 * time.
 */
static void check_core_records(struct recording *r, unsigned int index, struct count *counts,
			       unsigned int threads)
{
	uint64_t last = 0;
	uint32_t inside = 0;

	check(!r->rings[index]->dropped, "%llu records dropped", r->rings[index]->dropped);
	for (uint64_t i = 0; i < r->rings[index]->head; i++) {
		const struct permille_switch *one = switch_at(r, index, i);
		struct count *count = count_of(counts, threads, one->tid);

		if (!check(count && one->pid == r->pids[0] && one->cpu == r->plans[index].cpu,
			   "record %lu: cpu %u pid %u tid %u", i, one->cpu, one->pid, one->tid))
			return;
		if (!check(one->tsc >= last && one->operation <= 1,
			   "record %lu: time goes back", i) ||
		    !check(inside == (one->operation ? 0 : one->tid),
			   "record %lu: %u while %u is there", i, one->tid, inside))
			return;
		last = one->tsc;
		inside = one->operation ? one->tid : 0;
		*(one->operation ? &count->in : &count->out) += 1;
	}
	check(!inside, "thread %u never left core %u", inside, index);
}

static int by_time(const void *a, const void *b)
{
	const struct permille_switch *x = a, *y = b;

	return x->tsc < y->tsc ? -1 : x->tsc > y->tsc;
}

/* Over all cores: a thread is on one core at a time. Returns how often one came to another core. */
static long check_migrations(struct recording *r, struct count *counts, unsigned int threads)
{
	uint64_t total = r->rings[0]->head + r->rings[1]->head, at = 0;
	struct permille_switch *all = calloc(total + 1, sizeof(*all));
	long migrations = 0;

	for (unsigned int core = 0; core < 2; core++)
		for (uint64_t i = 0; i < r->rings[core]->head; i++)
			all[at++] = *switch_at(r, core, i);
	qsort(all, total, sizeof(*all), by_time);
	for (unsigned int t = 0; t < threads; t++) {
		int64_t cpu = -1, last = -1;

		for (uint64_t i = 0; i < total; i++) {
			if (all[i].tid != (uint32_t)counts[t].tid)
				continue;
			if (!check(all[i].operation ? cpu < 0 : cpu == all[i].cpu,
				   "thread %u is on two cores", all[i].tid))
				break;
			cpu = all[i].operation ? (int64_t)all[i].cpu : -1;
			migrations += all[i].operation && last >= 0 && last != all[i].cpu;
			last = all[i].cpu;
		}
	}
	free(all);
	return migrations;
}

static void count_before(struct count *counts, unsigned int threads, const pid_t *tids, pid_t pid)
{
	for (unsigned int i = 0; i < threads; i++)
		counts[i] = (struct count) { .tid = tids[i], .before = switches_of(pid, tids[i]) };
}

/* Returns how many switches there were. */
static long compare(struct count *counts, unsigned int threads, pid_t pid)
{
	long sum = 0;

	for (unsigned int i = 0; i < threads; i++) {
		struct count *one = &counts[i];

		one->after = switches_of(pid, one->tid);
		check(one->out == one->after - one->before,
		      "thread %d: %ld departures, %ld switches", one->tid, one->out,
		      one->after - one->before);
		check(one->in == one->out, "thread %d: %ld arrivals, %ld departures", one->tid,
		      one->in, one->out);
		check(one->in, "thread %d did nothing", one->tid);
		sum += one->in;
	}
	return sum;
}

/* The kernel's own count of each thread's switches is the truth. */
static void equal_what_the_program_did(unsigned int threads, int cpu, const char *what)
{
	struct load load = load_begin(threads, cpu);
	struct count counts[MOST_THREADS];
	pid_t tids[MOST_THREADS];
	struct recording r;
	long sum;

	threads = threads_of(load.pid, tids, MOST_THREADS);
	propose(&r, load.pid, 0, 2);
	load_finish(&load);
	count_before(counts, threads, tids, load.pid);
	record_rounds(&r, &load, 2000 / threads);
	stop(&r);
	check_core_records(&r, 0, counts, threads);
	check_core_records(&r, 1, counts, threads);
	sum = compare(counts, threads, load.pid);
	note("%u threads: %ld arrivals, %ld migrations", threads, sum,
	     check_migrations(&r, counts, threads));
	conclude(&r, &load, what);
}

/* Two threads on core 1, whose ring has so much room */
static struct load load_of_core_1(struct recording *r, unsigned int room)
{
	struct load load = load_begin(2, 1);

	propose(r, load.pid, 1, 1);
	r->plans[0].switch_records = room;
	return load;
}

static void full_ring_drops_and_counts(void)
{
	struct permille_core_status core;
	struct recording r;
	struct load load = load_of_core_1(&r, 64);

	record_rounds(&r, &load, 1000);
	core = core_status(&r, 0);
	check(core.records == 64 && core.records_dropped > 1000, "%llu records, %llu dropped",
	      core.records, core.records_dropped);
	check(core.arrivals * 2 >= core.records + core.records_dropped, "%llu arrivals",
	      core.arrivals);
	/* Half is read: as many more come in, none is written over */
	r.rings[0]->tail = 32;
	load_go(&load, 1000);
	load_finish(&load);
	check(core_status(&r, 0).records == 64 + 32, "%llu records", core_status(&r, 0).records);
	conclude(&r, &load, "a full ring keeps its oldest records and counts the others");
}

/* What comes in one turn fits many times into the ring, however slowly the reader gets to read. */
static void reader_keeps_up(void)
{
	struct permille_core_status core;
	uint64_t read = 0, last = 0;
	struct recording r;
	struct load load = load_of_core_1(&r, 512);

	record(&r);
	for (int turn = 0; turn < 60; turn++) {
		uint64_t until = read + 20;

		load_go(&load, 10);
		while (read < until) {
			uint64_t head = __atomic_load_n(&r.rings[0]->head, __ATOMIC_ACQUIRE);

			for (; read < head; read++) {
				check(switch_at(&r, 0, read)->tsc >= last,
				      "record %lu is older than the one before", read);
				last = switch_at(&r, 0, read)->tsc;
			}
			__atomic_store_n(&r.rings[0]->tail, read, __ATOMIC_RELEASE);
		}
		load_finish(&load);
	}
	core = core_status(&r, 0);
	check(!core.records_dropped && core.records >= 60 * 20 && read <= core.records,
	      "%lu read of %llu, %llu dropped", read, core.records, core.records_dropped);
	note("read while it is written: %lu records through a ring of 512", read);
	conclude(&r, &load, "a reader that keeps up gets every record");
}

static void wrong_tail_harms_nobody(void)
{
	struct permille_core_status core;
	struct recording r;
	struct load load = load_of_core_1(&r, 64);

	record(&r);
	r.rings[0]->tail = 1ull << 63;
	r.rings[0]->head = 12345;
	r.rings[0]->capacity = ~0u;
	load_go(&load, 1000);
	load_finish(&load);
	core = core_status(&r, 0);
	check(core.records + core.records_dropped >= 1000, "%llu records, %llu dropped",
	      core.records, core.records_dropped);
	r.rings[0]->capacity = 64;
	conclude(&r, &load,
		 "whatever the owner writes to a ring's page, the module stays within it");
}

void test_switch_records(void)
{
	equal_what_the_program_did(
		2, 1, "two threads on one core: records equal the kernel's own counts");
	equal_what_the_program_did(
		8, -1, "eight threads on two cores: records equal the kernel's own counts");
	equal_what_the_program_did(
		40, -1, "forty threads on two cores: records equal the kernel's own counts");
	full_ring_drops_and_counts();
	reader_keeps_up();
	wrong_tail_harms_nobody();
}

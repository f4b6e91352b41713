// SPDX-License-Identifier: GPL-2.0
/*
 * What really ran, by thread: a thread is told by its CR3 and its thread pointer, which neither the
 * module nor its records have a part in. Where the kernel is traced too it is by core: CR3 is 0 and
 * the pointer is the core's number. A folder for each recording, with files as vpt's truth mode
 * writes them (services/controller/vpt/include/permille/vpt.h); threads.txt has "number cr3
 * pointer" of each.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "permille/vpt.h"
#include "unit.h"

#define MAX_THREADS 4096

struct truth {
	uint64_t cr3, pointer;
	FILE *file;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[256];
static unsigned int recording;
static FILE *blocks;
static uint32_t next_id;
static struct truth threads[MAX_THREADS];
static unsigned int count;

static FILE *create(const char *format, unsigned int number)
{
	char name[64], path[sizeof(folder) + sizeof(name) + 16];
	FILE *file;

	snprintf(name, sizeof(name), format, number);
	snprintf(path, sizeof(path), "%s/%u/%s", folder, recording, name);
	file = fopen(path, "we");
	if (!file)
		perror(path);
	return file;
}

static bool begin(void)
{
	char path[sizeof(folder) + 16];

	snprintf(path, sizeof(path), "%s/%u", folder, recording);
	if (mkdir(path, 0755))
		perror(path);
	blocks = create("truth-blocks.bin", 0);
	/* Ids are places in the file, and 0 is none. */
	if (blocks)
		fwrite((uint32_t[2]) {}, 8, 1, blocks);
	next_id = 1;
	count = 0;
	return blocks;
}

bool truth_open(const char *where)
{
	snprintf(folder, sizeof(folder), "%s", where);
	return begin();
}

static uint32_t define(const struct code *code)
{
	uint32_t head[2];

	head[0] = next_id++;
	head[1] = code->block.count | (code->block.class == INSN_REPEAT ? VPT_TRUTH_REPEATS : 0);
	fwrite(head, sizeof(head), 1, blocks);
	for (unsigned int i = 0; i < code->block.count; i++) {
		uint64_t address = code->defined_at + code->offsets[i];

		fwrite(&address, sizeof(address), 1, blocks);
	}
	return head[0];
}

static struct truth *find(uint64_t cr3, uint64_t pointer)
{
	for (unsigned int i = 0; i < count; i++)
		if (threads[i].cr3 == cr3 && threads[i].pointer == pointer)
			return &threads[i];
	if (count == MAX_THREADS) {
		fprintf(stderr, "trace unit: more than %d threads\n", MAX_THREADS);
		abort();
	}
	threads[count] = (struct truth) { cr3, pointer, create("truth-%u.bin", count) };
	if (!threads[count].file)
		abort();
	return &threads[count++];
}

struct truth *truth_of(uint64_t cr3, uint64_t pointer)
{
	struct truth *truth;

	pthread_mutex_lock(&lock);
	truth = find(cr3, pointer);
	pthread_mutex_unlock(&lock);
	return truth;
}

/* The same code may stand at several addresses: it is defined anew where it was not seen last. */
void truth_block(struct unit *unit, struct code *code, uint64_t start)
{
	uint32_t id;

	pthread_mutex_lock(&lock);
	if (!code->block.id || code->recording != recording || code->defined_at != start) {
		code->defined_at = start;
		code->recording = recording;
		code->block.id = define(code);
	}
	id = code->block.id;
	pthread_mutex_unlock(&lock);
	fwrite(&id, sizeof(id), 1, unit->truth->file);
}

void truth_trim(struct unit *unit, uint64_t address)
{
	const uint32_t entry = VPT_TRUTH_TRIM;

	fwrite(&entry, sizeof(entry), 1, unit->truth->file);
	fwrite(&address, sizeof(address), 1, unit->truth->file);
}

void truth_gap(struct unit *unit)
{
	const uint32_t entry = VPT_TRUTH_GAP;

	fwrite(&entry, sizeof(entry), 1, unit->truth->file);
}

void truth_close(struct unit *units, unsigned int cpus)
{
	FILE *list = create("threads.txt", 0), *counts = create("units.txt", 0);

	for (unsigned int i = 0; i < count; i++) {
		fprintf(list, "%u %lx %lx\n", i, threads[i].cr3, threads[i].pointer);
		fclose(threads[i].file);
	}
	for (unsigned int i = 0; i < cpus; i++) {
		fprintf(counts,
			"cpu %u begun %lu ended %lu bytes %lu blocks %lu refused %lu unexplained %lu\n",
			i, units[i].begun, units[i].ended, units[i].bytes, units[i].blocks,
			units[i].refused, units[i].unexplained);
		units[i].begun = units[i].ended = units[i].bytes = units[i].blocks =
			units[i].refused = units[i].unexplained = 0;
	}
	fclose(list);
	fclose(counts);
	fclose(blocks);
}

void truth_next(struct unit *units, unsigned int cpus)
{
	pthread_mutex_lock(&lock);
	/* The guest's mistake: what is still traced belongs to neither. */
	for (unsigned int i = 0; i < cpus; i++)
		units[i].refused += units[i].traces;
	truth_close(units, cpus);
	recording++;
	if (!begin())
		abort();
	pthread_mutex_unlock(&lock);
}

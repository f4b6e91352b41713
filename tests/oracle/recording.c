#include "recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *room(size_t size)
{
	void *memory = calloc(1, size ? size : 1);

	if (!memory) {
		fprintf(stderr, "vpt_oracle: no memory for %zu bytes\n", size);
		exit(2);
	}
	return memory;
}

struct file read_file(const char *path, bool may_be_missing)
{
	struct file file = {0};
	FILE *from = fopen(path, "rb");

	if (!from) {
		if (may_be_missing)
			return file;
		perror(path);
		exit(2);
	}
	for (size_t capacity = 0, got = 1; got; file.size += got) {
		if (file.size == capacity) {
			capacity = capacity * 2 + (1 << 20);
			file.bytes = realloc(file.bytes, capacity);
			if (!file.bytes)
				room(SIZE_MAX / 2);
		}
		got = fread(file.bytes + file.size, 1, capacity - file.size, from);
	}
	fclose(from);
	return file;
}

static struct file part(const char *folder, const char *name, unsigned number)
{
	char path[4096], last[64];

	snprintf(last, sizeof(last), name, number);
	snprintf(path, sizeof(path), "%s/%s", folder, last);
	return read_file(path, false);
}

/* One change of the image; the later one wins. */
struct change {
	struct vpt_map map;
	uint32_t kind;
	struct file content; /* VPT_MAP: the whole file; VPT_CODE: the bytes */
};

static struct change *changes;
static size_t change_count;

struct page {
	struct page *next;
	uint64_t number;
	uint32_t from, until; /* the epochs at which it looks like this */
	uint8_t bytes[VPT_PAGE];
	bool known[VPT_PAGE];
};

#define BUCKETS 65536
static struct page *pages[BUCKETS];

static bool overlaps(const struct change *change, uint64_t begin)
{
	return change->map.address < begin + VPT_PAGE && change->map.address + change->map.size_bytes > begin;
}

static void apply(struct page *page, const struct change *change)
{
	uint64_t begin = page->number * VPT_PAGE;

	for (unsigned i = 0; i < VPT_PAGE; i++) {
		uint64_t at = begin + i - change->map.address;
		uint64_t offset = at + (change->kind == VPT_MAP ? change->map.offset : 0);

		if (at >= change->map.size_bytes)
			continue;
		page->known[i] = change->kind != VPT_UNMAP && offset < change->content.size;
		if (page->known[i])
			page->bytes[i] = change->content.bytes[offset];
	}
}

static struct page *build(uint64_t number, uint32_t epoch)
{
	struct page *page = room(sizeof(*page));

	page->number = number;
	page->until = UINT32_MAX;
	for (size_t i = 0; i < change_count; i++) {
		if (!overlaps(&changes[i], number * VPT_PAGE))
			continue;
		if (changes[i].map.epoch > epoch) {
			page->until = changes[i].map.epoch - 1;
			break;
		}
		page->from = changes[i].map.epoch;
		apply(page, &changes[i]);
	}
	page->next = pages[number % BUCKETS];
	return pages[number % BUCKETS] = page;
}

bool image_byte(uint32_t epoch, uint64_t address, uint8_t *byte)
{
	uint64_t number = address / VPT_PAGE;
	struct page *page = pages[number % BUCKETS];

	while (page && (page->number != number || epoch < page->from || epoch > page->until))
		page = page->next;
	if (!page)
		page = build(number, epoch);
	*byte = page->bytes[address % VPT_PAGE];
	return page->known[address % VPT_PAGE];
}

static int by_epoch(const void *a, const void *b)
{
	uint32_t x = ((const struct change *)a)->map.epoch, y = ((const struct change *)b)->map.epoch;

	return (x > y) - (x < y);
}

static void add_change(const struct vpt_record *record)
{
	const uint8_t *body = (const uint8_t *)(record + 1);
	struct change *change = &changes[change_count++];
	char path[4097] = "";

	memcpy(&change->map, body, sizeof(change->map));
	change->kind = record->kind;
	change->content = (struct file){(uint8_t *)body + sizeof(change->map), record->size - sizeof(change->map)};
	if (record->kind != VPT_MAP)
		return;
	memcpy(path, change->content.bytes, change->content.size);
	change->content = read_file(path, true);
}

static void read_sideband(struct recording *recording, struct file sideband)
{
	size_t most = sideband.size / sizeof(struct vpt_record);

	changes = room(most * sizeof(*changes));
	recording->marks = room(most * sizeof(*recording->marks));
	for (size_t at = 0; at + sizeof(struct vpt_record) <= sideband.size;) {
		struct vpt_record *record = (struct vpt_record *)(sideband.bytes + at);
		const struct vpt_mark *mark = (const struct vpt_mark *)(record + 1);

		at += sizeof(*record) + record->size;
		if (record->kind != VPT_MARK)
			add_change(record);
		else if (mark->stream == recording->stream->index)
			recording->marks[recording->mark_count++] = *mark;
	}
	qsort(changes, change_count, sizeof(*changes), by_epoch);
}

static struct file read_sideband_file(const char *folder, uint64_t size)
{
	char path[4096];
	struct file file = {room(size), size};
	FILE *from;

	snprintf(path, sizeof(path), "%s/sideband.bin", folder);
	from = fopen(path, "rb");
	if (!from || fread(file.bytes, 1, size, from) != size) {
		perror(path);
		exit(2);
	}
	fclose(from);
	return file;
}

struct recording recording_open(const char *folder, unsigned stream)
{
	struct recording recording = {0};

	recording.control = (struct vpt_control *)part(folder, "control", 0).bytes;
	recording.stream = (struct vpt_stream *)part(folder, "stream-%u.pt", stream).bytes;
	recording.packets = (const uint8_t *)recording.stream + VPT_PAGE;
	read_sideband(&recording, read_sideband_file(folder, recording.control->sideband_bytes));
	return recording;
}

static struct file truth;
static size_t truth_at;
static const uint64_t **blocks;
static uint32_t *counts; /* with VPT_TRUTH_REPEATS */
static size_t block_count;

/* The block that truth_next gives at the moment. */
static const uint64_t *now;
static uint32_t now_at, now_end;
/* A repeating instruction is held back until it is known whether it retired. */
static bool holding;
static uint64_t held;

void truth_open(const char *folder, unsigned stream)
{
	struct file defined = part(folder, "truth-blocks.bin", 0);

	truth = part(folder, "truth-%u.bin", stream);
	blocks = room(defined.size / 8 * sizeof(*blocks));
	counts = room(defined.size / 8 * sizeof(*counts));
	for (size_t at = 0; at + 8 <= defined.size;) {
		const uint32_t *head = (const uint32_t *)(defined.bytes + at);

		blocks[head[0]] = (const uint64_t *)(head + 2);
		counts[head[0]] = head[1];
		block_count = head[0] + 1 > block_count ? head[0] + 1 : block_count;
		at += 8 + 8ul * (head[1] & ~VPT_TRUTH_REPEATS);
	}
}

static bool entry(uint32_t *value)
{
	if (truth_at + 4 > truth.size)
		return false;
	memcpy(value, truth.bytes + truth_at, 4);
	return true;
}

/* The next entry; `*repeats` when the block, as far as it ran, ends with an instruction that repeats. */
static enum truth take_block(bool *repeats)
{
	uint32_t value, next;
	uint64_t from;

	if (!entry(&value))
		return TRUTH_END;
	truth_at += 4;
	if (value == VPT_TRUTH_GAP)
		return TRUTH_GAP;
	if (value >= block_count) {
		fprintf(stderr, "vpt_oracle: truth entry %zu names block %u of %zu\n", truth_at / 4 - 1, value, block_count);
		exit(2);
	}
	now = blocks[value];
	now_at = 0;
	now_end = counts[value] & ~VPT_TRUTH_REPEATS;
	*repeats = counts[value] & VPT_TRUTH_REPEATS;
	if (entry(&next) && next == VPT_TRUTH_TRIM) {
		memcpy(&from, truth.bytes + truth_at + 4, 8);
		truth_at += 12;
		while (now_end && now[now_end - 1] >= from)
			now_end--, *repeats = false;
	}
	return TRUTH_INSTRUCTION;
}

enum truth truth_next(uint64_t *address)
{
	static enum truth behind = TRUTH_INSTRUCTION; /* a gap or the end that a held instruction goes before */

	for (;;) {
		bool repeats = false, was_holding = holding;
		enum truth what = behind;

		if (now_at < now_end) {
			*address = now[now_at++];
			return TRUTH_INSTRUCTION;
		}
		if (what == TRUTH_INSTRUCTION)
			what = take_block(&repeats);
		behind = TRUTH_INSTRUCTION;
		if (what != TRUTH_INSTRUCTION) {
			holding = false;
			if (!was_holding)
				return what;
			behind = what;
			*address = held;
			return TRUTH_INSTRUCTION;
		}
		bool goes_on = was_holding && now[0] == held;
		uint64_t before = held;
		if (goes_on)
			now_at = 1;
		holding = repeats;
		if (repeats)
			held = now[--now_end];
		if (was_holding && !goes_on) {
			*address = before;
			return TRUTH_INSTRUCTION;
		}
	}
}

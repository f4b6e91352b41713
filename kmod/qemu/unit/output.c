// SPDX-License-Identifier: GPL-2.0
/*
 * Packets into the regions of a ToPA (SDM, "Table of Physical Addresses"), by physical address as a
 * processor writes.
 */
#include "guest.h"
#include "unit.h"

#define ENTRY_END	(1ull << 0)
#define ENTRY_STOP	(1ull << 4)
#define ENTRY_ADDRESS	0x000ffffffffff000ull
#define ENTRY_BYTES(entry)	(4096ull << ((entry) >> 6 & 15))

static uint64_t entry_at(const struct unit *unit, uint32_t number)
{
	uint64_t entry;

	guest_read_physical((unit->base & ENTRY_ADDRESS) + number * sizeof(entry), &entry,
			    sizeof(entry));
	return entry;
}

static void set_position(struct unit *unit, uint32_t number, uint32_t offset)
{
	unit->mask = (uint64_t)offset << 32 | (uint64_t)number << 7 | 0x7f;
}

/* The region is full: STOP, or the next one, through END where there is one. */
static void next_region(struct unit *unit)
{
	uint32_t number = (uint32_t)unit->mask >> 7;

	if (unit->entry & ENTRY_STOP) {
		unit->status |= STATUS_STOPPED;
		unit->traces = false;
		unit->inside = false;
	}
	set_position(unit, number + 1, 0);
	unit->entry = entry_at(unit, number + 1);
	if (unit->entry & ENTRY_END) {
		unit->base = unit->entry & ENTRY_ADDRESS;
		set_position(unit, 0, 0);
		unit->entry = entry_at(unit, 0);
	}
}

static void write_out(struct unit *unit, const uint8_t *bytes, size_t size)
{
	if (!unit->entry)
		unit->entry = entry_at(unit, (uint32_t)unit->mask >> 7);
	while (size && unit->traces) {
		uint32_t offset = unit->mask >> 32;
		uint64_t region = ENTRY_BYTES(unit->entry);
		size_t part = size < region - offset ? size : region - offset;

		guest_write_physical((unit->entry & ENTRY_ADDRESS) + offset, bytes, part);
		set_position(unit, (uint32_t)unit->mask >> 7, offset + part);
		unit->bytes += part;
		bytes += part;
		size -= part;
		if (offset + part == region)
			next_region(unit);
	}
}

void output_drain(struct unit *unit)
{
	struct pt_writer *writer = &unit->writer;
	size_t size = writer->at - writer->begin;

	write_out(unit, writer->begin, size);
	writer->at = writer->begin;
	writer->next_psb -= size;
}

/* Two groups of packets fit in any case. */
void output_make_room(struct unit *unit)
{
	if (unit->writer.limit - unit->writer.at < 4 * PT_GROUP_BYTES)
		output_drain(unit);
}

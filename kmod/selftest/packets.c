// SPDX-License-Identifier: GPL-2.0
#include <stdbool.h>
#include <string.h>

#include "packets.h"

/* After 02, the sizes of what no session of the module turns on left out */
static const struct {
	uint8_t second, size;
} extended[] = {
	{ 0x82, 16 }, { 0x23, 2 }, { 0xf3, 2 }, { 0xa3, 8 }, { 0x43, 8 }, { 0x73, 7 }, { 0x03, 4 },
	{ 0x83, 2 }, { 0xc8, 7 },
};

static size_t extended_size(const uint8_t *at)
{
	for (size_t i = 0; i < sizeof(extended) / sizeof(extended[0]); i++)
		if (extended[i].second == at[1])
			return extended[i].size;
	return 0;
}

/* TIP, TIP.PGE, TIP.PGD and FUP: bits 7:5 tell how much of the address there is */
static bool has_address(uint8_t first)
{
	uint8_t low = first & 0x1f;

	return low == 0x0d || low == 0x11 || low == 0x01 || low == 0x1d;
}

static const uint8_t address_bytes[8] = { 0, 2, 4, 6, 6, 0, 8, 0 };

static size_t cyc_size(const uint8_t *at, size_t left)
{
	size_t size = 1;

	if (at[0] & 4)
		while (size < left && (at[size++] & 1))
			;
	return size;
}

static size_t size_of(const uint8_t *at, size_t left)
{
	if (at[0] == 0x02)
		return left < 2 ? 2 : extended_size(at);
	if (!(at[0] & 1))
		return 1;	/* PAD, TNT */
	if ((at[0] & 3) == 3)
		return cyc_size(at, left);
	if (has_address(at[0]))
		return 1 + address_bytes[at[0] >> 5];
	switch (at[0]) {
	case 0x99:		/* MODE */
	case 0x59:		/* MTC */
		return 2;
	case 0x19:		/* TSC */
		return 8;
	}
	return 0;
}

static uint64_t address(struct walker *walker, const uint8_t *at)
{
	uint8_t form = at[0] >> 5, bytes = address_bytes[form];
	uint64_t value = 0, mask = bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;

	memcpy(&value, at + 1, bytes);
	walker->last_ip = (walker->last_ip & ~mask) | value;
	if (form == 3)
		walker->last_ip = (uint64_t)((int64_t)(value << 16) >> 16);
	return walker->last_ip;
}

/* Below the leading one, the oldest first */
static void branches(struct walker *walker, uint64_t payload)
{
	for (int bit = 62 - __builtin_clzll(payload); bit >= 0; bit--)
		walker->branch(walker, payload >> bit & 1);
}

static void tell(struct walker *walker, const uint8_t *at)
{
	uint64_t payload = 0;

	if (at[0] == 0x02 && at[1] == 0xa3) {
		memcpy(&payload, at + 2, 6);
		branches(walker, payload);
	} else if (at[0] == 0x02 && at[1] == 0x82) {
		walker->last_ip = 0;
	} else if (at[0] == 0x02 && at[1] == 0xf3) {
		walker->disabled(walker);
	} else if (at[0] && !(at[0] & 1) && at[0] != 0x02) {
		branches(walker, at[0] >> 1);
	} else if (has_address(at[0])) {
		address(walker, at);
		if ((at[0] & 0x1f) == 0x11)
			walker->enabled(walker, walker->last_ip);
		if ((at[0] & 0x1f) == 0x01)
			walker->disabled(walker);
	}
}

size_t packets_walk(struct walker *walker, const uint8_t *bytes, size_t size)
{
	size_t at = 0;

	walker->last_ip = 0;
	while (at < size) {
		size_t one = size_of(bytes + at, size - at);

		if (!one || one > size - at)
			break;
		tell(walker, bytes + at);
		at += one;
	}
	return at;
}

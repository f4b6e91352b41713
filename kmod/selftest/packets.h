/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The packets of a core, as far as a branch whose outcomes are known needs them (Intel SDM volume
 * 3, "Packet Definitions").
 */
#ifndef PACKETS_H
#define PACKETS_H

#include <stddef.h>
#include <stdint.h>

/* What a walk calls, in the order of the trace */
struct walker {
	void (*branch)(struct walker *walker, int taken);
	void (*enabled)(struct walker *walker, uint64_t address);	/* TIP.PGE */
	void (*disabled)(struct walker *walker);			/* TIP.PGD, OVF */
	uint64_t last_ip;
};

/* How far it got: less than size where a packet is unknown or cut off. */
size_t packets_walk(struct walker *walker, const uint8_t *bytes, size_t size);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The trace unit of each virtual CPU (Intel SDM volume 3, "Intel Processor Trace"). Only the CPU's
 * own thread touches it.
 */
#ifndef UNIT_H
#define UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "block.h"
#include "packet_writer.h"
#include "way.h"

#define MAX_CPUS 64
#define BOUNCE_BYTES 8192

/*
 * Ticks of the TSC for one of the crystal clock, and core clocks for one of the bus: what CPUID.15H
 * and CBR would say
 */
#define TSC_PER_CRYSTAL 64
#define CORE_PER_BUS 20

/*
 * An instruction that has a part outside of the processor's core: it has run when the next one is
 * about to.
 */
enum access {
	ACCESS_NONE,
	ACCESS_WRITE,	/* WRMSR */
	ACCESS_READ,	/* RDMSR */
	ACCESS_CPUID,
};

#define STATUS_STOPPED	(1ull << 5)

#define CTL_TRACE	(1ull << 0)
#define CTL_CYC		(1ull << 1)
#define CTL_KERNEL	(1ull << 2)
#define CTL_USER	(1ull << 3)
#define CTL_CR3		(1ull << 7)
#define CTL_TOPA	(1ull << 8)
#define CTL_MTC		(1ull << 9)
#define CTL_TSC		(1ull << 10)
#define CTL_DISRETC	(1ull << 11)
#define CTL_BRANCH	(1ull << 13)

struct truth;
struct guest;

/*
 * A block as it was translated, and where it was, and in which recording, when the truth log last
 * had it
 */
struct code {
	struct block block;
	uint64_t defined_at;
	unsigned int recording;
	uint8_t bytes[16];
	uint8_t size;
	bool moves_cr3;			/* its last instruction */
	bool cpuid;			/* one of its instructions */
	uint16_t offsets[];		/* of its instructions */
};

struct unit {
	unsigned int cpu;
	/* IA32_RTIT_* */
	uint64_t ctl, status, base, mask, match;
	uint64_t entry;			/* of the ToPA table, 0: to be read */
	enum access access;
	uint32_t leaf, subleaf;		/* of the CPUID that runs */
	bool traces;			/* TraceEn, not stopped */
	bool moved;			/* the block before wrote CR3 */
	bool known;			/* the CPU's state is laid out as guest.h has it */
	struct block previous;		/* what ran last, where `inside` */
	bool inside;			/* PacketEn: between TIP.PGE and TIP.PGD */
	struct returns returns;
	struct pt_config config;
	struct pt_writer writer;
	uint8_t bounce[BOUNCE_BYTES];
	struct truth *truth;		/* of the thread that runs */
	/* What the processor saw, to be held against what the module counted */
	uint64_t begun, ended, bytes, blocks, refused, unexplained;
};

/* plugin.c: whether user code is of interest */
void see_user_code(bool shall);

/* registers.c */
void registers_write(struct unit *unit, struct guest *guest, uint32_t number, uint64_t value);
/*
 * As a processor that does not say in STATUS that it has stopped: for the self-test, which has to
 * find it.
 */
extern bool hides_stop;
/* False: not one of the unit's */
bool registers_read(struct unit *unit, uint32_t number, uint64_t *value);

/* cpuid.c: what CPUID says with a trace unit, in place of what it said without */
void cpuid_tell(uint32_t leaf, uint32_t subleaf, struct guest *guest);

/* output.c: packets to the guest's memory */
void output_drain(struct unit *unit);
void output_make_room(struct unit *unit);

/* flow.c: blocks to packets. Whether the block is traced. */
bool flow_block(struct unit *unit, const struct block *block, struct guest *guest);
/* A WRMSR clears TraceEn. */
void flow_end(struct unit *unit, struct guest *guest);

/*
 * truth.c: what really ran, by thread, or by core where the kernel is traced too; FOLDER/NUMBER is
 * of one recording
 */
bool truth_open(const char *folder);
/*
 * Ends a recording, with what its units counted, and begins the next one. Nothing may be traced
 * meanwhile.
 */
void truth_next(struct unit *units, unsigned int cpus);
struct truth *truth_of(uint64_t cr3, uint64_t thread_pointer);
void truth_block(struct unit *unit, struct code *code, uint64_t start);
void truth_trim(struct unit *unit, uint64_t address);
void truth_gap(struct unit *unit);
void truth_close(struct unit *units, unsigned int cpus);

#endif

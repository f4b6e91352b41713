// SPDX-License-Identifier: GPL-2.0
/*
 * What RDMSR and WRMSR do. A processor raises #GP where this only counts: a plugin cannot raise
 * one.
 */
#include "guest.h"
#include "unit.h"

enum {
	MSR_OUTPUT_BASE = 0x560,
	MSR_OUTPUT_MASK = 0x561,
	MSR_CTL = 0x570,
	MSR_STATUS = 0x571,
	MSR_CR3_MATCH = 0x572,
};

#define CTL_MTC_FREQ(ctl)	((ctl) >> 14 & 15)
#define CTL_PSB_FREQ(ctl)	((ctl) >> 24 & 15)
/* Cycle thresholds and address filters are not built. */
#define CTL_BUILT (CTL_TRACE | CTL_CYC | CTL_KERNEL | CTL_USER | CTL_CR3 | CTL_TOPA | CTL_MTC | \
		   CTL_TSC | CTL_BRANCH | CTL_DISRETC | 15ull << 14 | 15ull << 24)

#define TABLE_ADDRESS	0x000ffffffffff000ull
#define MASK_ONES	0x7full

static void configure(struct unit *unit)
{
	unit->config = (struct pt_config) {
		.tsc = unit->ctl & CTL_TSC,
		.mtc = unit->ctl & CTL_MTC,
		.cyc = unit->ctl & CTL_CYC,
		.long_tnt = true,
		.psb_bytes = 2048u << CTL_PSB_FREQ(unit->ctl),
		.mtc_shift = CTL_MTC_FREQ(unit->ctl),
		.ctc_num = TSC_PER_CRYSTAL,
		.ctc_den = 1,
		.bus_ratio = CORE_PER_BUS,
	};
	pt_begin(&unit->writer, &unit->config, unit->bounce, sizeof(unit->bounce));
}

/*
 * SDM, table "Packet Generation under Different Enable Conditions": when TraceEn is set, a PSB (a
 * processor that has written packets since STATUS was cleared may leave that out); when it is
 * cleared, what is pending goes out.
 */
static void write_ctl(struct unit *unit, struct guest *guest, uint64_t value)
{
	bool was = unit->ctl & CTL_TRACE, is = value & CTL_TRACE;

	if ((value & ~CTL_BUILT) || (was && ((unit->ctl ^ value) & ~CTL_TRACE)) ||
	    (is && (!(value & CTL_TOPA) || !unit->base))) {
		unit->refused++;
		return;
	}
	unit->ctl = value;
	if (!was && is) {
		unit->begun++;
		see_user_code(true);
		configure(unit);
		unit->traces = !(unit->status & STATUS_STOPPED);
		if (unit->traces)
			pt_psb(&unit->writer, guest_tsc(guest), false, 0);
	} else if (was && !is) {
		unit->ended++;
		if (unit->inside)
			flow_end(unit, guest);
		output_drain(unit);
		unit->traces = false;
	}
}

static void write_other(struct unit *unit, uint32_t number, uint64_t value)
{
	if (unit->ctl & CTL_TRACE) {
		unit->refused++;
		return;
	}
	unit->entry = 0;
	switch (number) {
	case MSR_OUTPUT_BASE:
		unit->refused += (value & ~TABLE_ADDRESS) != 0;
		unit->base = value;
		break;
	case MSR_OUTPUT_MASK:
		unit->mask = value | MASK_ONES;
		break;
	case MSR_STATUS:
		unit->status = value;
		break;
	case MSR_CR3_MATCH:
		unit->refused += (value & 0x1f) != 0;
		unit->match = value;
		break;
	}
}

void registers_write(struct unit *unit, struct guest *guest, uint32_t number, uint64_t value)
{
	switch (number) {
	case MSR_CTL:
		write_ctl(unit, guest, value);
		break;
	case MSR_OUTPUT_BASE:
	case MSR_OUTPUT_MASK:
	case MSR_STATUS:
	case MSR_CR3_MATCH:
		write_other(unit, number, value);
		break;
	}
}

bool hides_stop;

bool registers_read(struct unit *unit, uint32_t number, uint64_t *value)
{
	if (unit->traces)
		output_drain(unit);
	switch (number) {
	case MSR_OUTPUT_BASE:
		*value = unit->base;
		return true;
	case MSR_OUTPUT_MASK:
		*value = unit->mask;
		return true;
	case MSR_CTL:
		*value = unit->ctl;
		return true;
	case MSR_STATUS:
		*value = unit->status & ~(hides_stop ? STATUS_STOPPED : 0);
		return true;
	case MSR_CR3_MATCH:
		*value = unit->match;
		return true;
	}
	return false;
}

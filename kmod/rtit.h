/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The trace unit of a core: what it offers and how it is driven (Intel SDM volume 3, "Intel
 * Processor Trace").
 */
#ifndef PERMILLE_RTIT_H
#define PERMILLE_RTIT_H

#include <linux/types.h>

struct mm_struct;
struct task_struct;
struct permille_core;

/* How many registers a session writes */
#define RTIT_BORROWED 5

struct rtit_caps {
	u32 features;		/* PERMILLE_TSC ... */
	u32 psb_freqs, mtc_freqs, cyc_thresholds;
	bool many_regions;
};

/* Registers of the core that it runs on. All but cpuid, claim and release: interrupts off. */
struct rtit_ops {
	u32 backend;
	void (*cpuid)(u32 subleaf, u32 regs[4]);
	/* Process context: keeps others away from the core */
	int (*claim)(int cpu, u32 *refusal);
	void (*release)(int cpu);
	int (*read)(u32 msr, u64 *value);
	int (*write)(u32 msr, u64 value);
	/* Model only: user code of this mm runs next on the core; NULL for none */
	void (*context)(struct mm_struct *mm);
};

extern const struct rtit_ops *rtit;
extern struct rtit_caps rtit_caps;
extern const struct rtit_ops rtit_msr, rtit_model;

/* The model's CPUID serves a processor whose own does not tell of its trace unit. */
int rtit_probe(bool model, bool emulated);

u64 rtit_ctl(u32 flags, u32 psb_freq, u32 mtc_freq, u32 cyc_threshold);
u64 rtit_cr3(struct mm_struct *mm);

/* These count refused accesses in core->status.faults and then return false. */
bool rtit_arm(struct permille_core *core);
/* After rtit_off: where the output went is again what it was before rtit_arm. */
void rtit_disarm(struct permille_core *core);
bool rtit_on(struct permille_core *core, u64 cr3);
bool rtit_off(struct permille_core *core);
/*
 * Whether the last region is full; or there was an operational error, after which nothing is
 * written either
 */
bool rtit_stopped(struct permille_core *core, bool *error);
/* Where the next byte would go; false where it cannot be told */
bool rtit_position(struct permille_core *core, u64 *table, u32 *entry, u32 *offset);

#endif

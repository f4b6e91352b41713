// SPDX-License-Identifier: GPL-2.0
/* Drives a core's trace unit through rtit_ops; the same for real registers and for the model's. */
#include <linux/mm.h>
#include <asm/intel_pt.h>
#include <asm/mmu_context.h>
#include <asm/msr-index.h>
#include <asm/processor-flags.h>

#include <permille.h>
#include "core.h"
#include "rtit.h"

/* RTIT_OUTPUT_MASK_PTRS: 6:0 ones, 31:7 entry of the table, 63:32 offset in its region */
#define MASK_PTRS_START		0x7full
#define MASK_PTRS_ENTRY(value)	((u32)(value) >> 7)
#define MASK_PTRS_OFFSET(value)	((u32)((value) >> 32))

const struct rtit_ops *rtit;
struct rtit_caps rtit_caps;

static const struct rtit_ops *choose(bool model, bool emulated)
{
	static struct rtit_ops mixed;

	if (model || !emulated)
		return model ? &rtit_model : &rtit_msr;
	mixed = rtit_msr;
	mixed.cpuid = rtit_model.cpuid;
	mixed.backend = PERMILLE_BACKEND_EMULATED;
	return &mixed;
}

/* CPUID leaf 14H */
int rtit_probe(bool model, bool emulated)
{
	u32 main[4], more[4] = {};

	rtit = choose(model, emulated);
	rtit->cpuid(0, main);
	if (!(main[2] & BIT(0)))
		return -ENODEV;
	if (main[0] >= 1)
		rtit->cpuid(1, more);
	rtit_caps.features = PERMILLE_TSC | PERMILLE_NO_RET_COMPRESSION | PERMILLE_FOLLOW_FORK |
			     PERMILLE_WRITE_COMBINING;
	if (main[1] & BIT(0))
		rtit_caps.features |= PERMILLE_CR3_FILTER;
	if (main[1] & BIT(1)) {
		rtit_caps.features |= PERMILLE_CYC;
		rtit_caps.cyc_thresholds = more[1] & 0xffff;
		rtit_caps.psb_freqs = more[1] >> 16;
	}
	if (main[1] & BIT(3)) {
		rtit_caps.features |= PERMILLE_MTC;
		rtit_caps.mtc_freqs = more[0] >> 16;
	}
	rtit_caps.many_regions = main[2] & BIT(1);
	return 0;
}

u64 rtit_ctl(u32 flags, u32 psb_freq, u32 mtc_freq, u32 cyc_threshold)
{
	u64 ctl = RTIT_CTL_USR | RTIT_CTL_TOPA | RTIT_CTL_BRANCH_EN;

	ctl |= (u64)psb_freq << RTIT_CTL_PSB_FREQ_OFFSET;
	if (flags & PERMILLE_TSC)
		ctl |= RTIT_CTL_TSC_EN;
	if (flags & PERMILLE_MTC)
		ctl |= RTIT_CTL_MTC_EN | (u64)mtc_freq << RTIT_CTL_MTC_RANGE_OFFSET;
	if (flags & PERMILLE_CYC)
		ctl |= RTIT_CTL_CYCLEACC | (u64)cyc_threshold << RTIT_CTL_CYC_THRESH_OFFSET;
	if (flags & PERMILLE_NO_RET_COMPRESSION)
		ctl |= RTIT_CTL_DISRETC;
	if (flags & PERMILLE_CR3_FILTER)
		ctl |= RTIT_CTL_CR3EN;
	if (flags & PERMILLE_KERNEL)
		ctl |= RTIT_CTL_OS;
	return ctl;
}

/*
 * The value that CR3 has, in bits 63:5, while user code of the mm runs. The kernel's address space
 * numbers (1 to 6) are in bits 4:0, which the filter ignores. With page table isolation user code
 * has page tables and numbers of its own, told by bits 12 and 11.
 */
u64 rtit_cr3(struct mm_struct *mm)
{
	u64 cr3 = __pa(mm->pgd);

#ifdef X86_CR3_LAM_U57_BIT
	cr3 |= mm_lam_cr3_mask(mm);
#endif
	if (boot_cpu_has(X86_FEATURE_PTI)) {
		cr3 |= BIT(PAGE_SHIFT);
		if (boot_cpu_has(X86_FEATURE_PCID))
			cr3 |= BIT(X86_CR3_PTI_PCID_USER_BIT);
	}
	return cr3;
}

static bool set(struct permille_core *core, u32 msr, u64 value)
{
	if (!rtit->write(msr, value))
		return true;
	core->status.faults++;
	return false;
}

static bool get(struct permille_core *core, u32 msr, u64 *value)
{
	if (!rtit->read(msr, value))
		return true;
	core->status.faults++;
	return false;
}

/* The last one is there only where the processor filters by CR3. */
static const u32 borrowed[RTIT_BORROWED] = {
	MSR_IA32_RTIT_CTL,	   MSR_IA32_RTIT_STATUS,    MSR_IA32_RTIT_OUTPUT_BASE,
	MSR_IA32_RTIT_OUTPUT_MASK, MSR_IA32_RTIT_CR3_MATCH,
};

static unsigned int borrowed_count(void)
{
	return rtit_caps.features & PERMILLE_CR3_FILTER ? RTIT_BORROWED : RTIT_BORROWED - 1;
}

bool rtit_arm(struct permille_core *core)
{
	unsigned int i;

	for (i = 0; i < borrowed_count(); i++)
		if (!get(core, borrowed[i], &core->former[i]))
			return false;
	if (core->former[0] & RTIT_CTL_TRACEEN) {
		core->status.faults++;
		return false;
	}
	core->borrowed = true;
	return set(core, MSR_IA32_RTIT_CTL, 0) &&
	       set(core, MSR_IA32_RTIT_STATUS, 0) &&
	       set(core, MSR_IA32_RTIT_OUTPUT_BASE, core->topa.base) &&
	       set(core, MSR_IA32_RTIT_OUTPUT_MASK, MASK_PTRS_START);
}

/*
 * Linux' intel_pt remembers what it has written to OUTPUT_BASE and OUTPUT_MASK and leaves out what
 * it would write again (pt_config_buffer): with ours still in them it would trace into memory that
 * we have given back. Of the memory that CR3_MATCH names nobody keeps the page tables any more.
 */
void rtit_disarm(struct permille_core *core)
{
	unsigned int i;

	if (!core->borrowed)
		return;
	core->borrowed = false;
	for (i = 0; i < borrowed_count(); i++)
		set(core, borrowed[i], core->former[i]);
}

/* The filter can be written only while TraceEn is clear. */
bool rtit_on(struct permille_core *core, u64 cr3)
{
	if ((core->ctl & RTIT_CTL_CR3EN) && cr3 != core->cr3) {
		if (!set(core, MSR_IA32_RTIT_CR3_MATCH, cr3))
			return false;
		core->cr3 = cr3;
	}
	return set(core, MSR_IA32_RTIT_CTL, core->ctl | RTIT_CTL_TRACEEN);
}

/* Clearing TraceEn flushes what the core still has. */
bool rtit_off(struct permille_core *core)
{
	bool done = set(core, MSR_IA32_RTIT_CTL, core->ctl);

	wmb();	/* the output is in memory before anybody is told that it ended */
	return done;
}

bool rtit_stopped(struct permille_core *core, bool *error)
{
	u64 status;

	if (!get(core, MSR_IA32_RTIT_STATUS, &status))
		return false;
	*error = status & RTIT_STATUS_ERROR;
	return status & RTIT_STATUS_STOPPED;
}

bool rtit_position(struct permille_core *core, u64 *table, u32 *entry, u32 *offset)
{
	u64 pointers;

	if (!get(core, MSR_IA32_RTIT_OUTPUT_BASE, table) ||
	    !get(core, MSR_IA32_RTIT_OUTPUT_MASK, &pointers))
		return false;
	*entry = MASK_PTRS_ENTRY(pointers);
	*offset = MASK_PTRS_OFFSET(pointers);
	return true;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * A trace unit in memory, for machines without one: registers with the processor's rules, output
 * through the same tables. It knows no instructions, only which memory runs on a core; each time
 * the filter comes to match it writes model_bytes of PSB, PSBEND and PAD packets.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <asm/intel_pt.h>
#include <asm/msr-index.h>
#include <asm/special_insns.h>

#include <permille.h>
#include "rtit.h"
#include "topa.h"

static unsigned int model_bytes = 32;
module_param(model_bytes, uint, 0644);
MODULE_PARM_DESC(model_bytes,
		 "model only: bytes written each time that the filter comes to match, a multiple of 32");

static unsigned int model_cr3_mismatches;
module_param(model_cr3_mismatches, uint, 0444);
MODULE_PARM_DESC(model_cr3_mismatches,
		 "model only: how often a task ran with another CR3 than the filter would hold");

static unsigned int model_moved;
module_param(model_moved, uint, 0444);
MODULE_PARM_DESC(model_moved,
		 "model only: how often a core was released with other registers than it was claimed with");

static unsigned int model_switched;
module_param(model_switched, uint, 0444);
MODULE_PARM_DESC(model_switched,
		 "model only: how often TraceEn was set or cleared, while one core is recorded");

static bool model_error;
module_param(model_error, bool, 0644);
MODULE_PARM_DESC(model_error,
		 "model only: the next output is an operational error, as of a table that cannot be read");

static bool model_one_region;
module_param(model_one_region, bool, 0444);
MODULE_PARM_DESC(model_one_region, "its CPUID tells of a single ToPA region, as Broadwell's does");

struct model_core {
	u64 ctl, status, base, mask, match;
	u64 cr3;	/* of the user code that runs; 0: none */
	u64 claimed[RTIT_BORROWED];
};

static DEFINE_PER_CPU(struct model_core, cores) = { .mask = 0x7f };

/* As a Skylake server: CR3 filter, PSB and CYC, MTC, ToPA with any number of entries */
static void model_cpuid(u32 subleaf, u32 regs[4])
{
	static const u32 leaf[2][4] = {
		{ 1, 0x0f, 0x07, 0 },
		{ 0x02490002, 0x003f3fff, 0, 0 },
	};

	memcpy(regs, leaf[subleaf & 1], sizeof(leaf[0]));
	if (!(subleaf & 1) && model_one_region)
		regs[2] &= ~BIT(1);
}

static void registers_of(const struct model_core *core, u64 values[RTIT_BORROWED])
{
	const u64 all[RTIT_BORROWED] = {
		core->ctl, core->status, core->base, core->mask, core->match,
	};

	memcpy(values, all, sizeof(all));
}

static int model_claim(int cpu, u32 *refusal)
{
	struct model_core *core = &per_cpu(cores, cpu);

	*refusal = PERMILLE_REFUSED_FOREIGN;
	if (core->ctl & RTIT_CTL_TRACEEN)
		return -EBUSY;
	registers_of(core, core->claimed);
	return 0;
}

static void model_release(int cpu)
{
	const struct model_core *core = &per_cpu(cores, cpu);
	u64 now[RTIT_BORROWED];

	registers_of(core, now);
	if (memcmp(now, core->claimed, sizeof(now)))
		model_moved++;
}

static u64 *entry_of(const struct model_core *core)
{
	u64 *table = phys_to_virt(core->base & TOPA_ADDRESS);

	return &table[(u32)core->mask >> 7];
}

static void set_position(struct model_core *core, u32 entry, u32 offset)
{
	core->mask = (u64)offset << 32 | entry << 7 | 0x7f;
}

/* The region is full: STOP, or the next one, through END where there is one. */
static void next_region(struct model_core *core)
{
	u64 next;

	if (*entry_of(core) & TOPA_STOP)
		core->status |= RTIT_STATUS_STOPPED;
	set_position(core, ((u32)core->mask >> 7) + 1, 0);
	next = *entry_of(core);
	if (next & TOPA_END) {
		core->base = next & TOPA_ADDRESS;
		set_position(core, 0, 0);
	}
}

static void output(struct model_core *core, const u8 *bytes, u32 count)
{
	if (READ_ONCE(model_error))
		core->status |= RTIT_STATUS_ERROR;
	while (count && !(core->status & (RTIT_STATUS_STOPPED | RTIT_STATUS_ERROR))) {
		u64 entry = *entry_of(core);
		u32 offset = core->mask >> 32;
		u32 size = topa_bytes_of(entry), part = min(count, size - offset);

		memcpy(phys_to_virt((entry & TOPA_ADDRESS) + offset), bytes, part);
		set_position(core, (u32)core->mask >> 7, offset + part);
		bytes += part;
		count -= part;
		if (offset + part == size)
			next_region(core);
	}
}

static void emit(struct model_core *core)
{
	static const u8 unit[32] = {
		0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,		/* PSB */
		0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
		0x02, 0x23,						/* PSBEND, then PAD */
	};
	u32 done;

	for (done = 0; done < READ_ONCE(model_bytes); done += sizeof(unit))
		output(core, unit, sizeof(unit));
}

static void run(struct model_core *core)
{
	bool match = core->cr3 &&
		     (!(core->ctl & RTIT_CTL_CR3EN) || !((core->cr3 ^ core->match) >> 5));

	if ((core->ctl & RTIT_CTL_TRACEEN) && match)
		emit(core);
}

static int model_read(u32 msr, u64 *value)
{
	const struct model_core *core = this_cpu_ptr(&cores);

	switch (msr) {
	case MSR_IA32_RTIT_CTL:
		*value = core->ctl;
		return 0;
	case MSR_IA32_RTIT_STATUS:
		*value = core->status;
		return 0;
	case MSR_IA32_RTIT_OUTPUT_BASE:
		*value = core->base;
		return 0;
	case MSR_IA32_RTIT_OUTPUT_MASK:
		*value = core->mask;
		return 0;
	case MSR_IA32_RTIT_CR3_MATCH:
		*value = core->match;
		return 0;
	}
	return -EIO;
}

#define CTL_KNOWN (RTIT_CTL_TRACEEN | RTIT_CTL_CYCLEACC | RTIT_CTL_OS | RTIT_CTL_USR | \
		   RTIT_CTL_CR3EN | RTIT_CTL_TOPA | RTIT_CTL_MTC_EN | RTIT_CTL_TSC_EN | \
		   RTIT_CTL_DISRETC | RTIT_CTL_BRANCH_EN | RTIT_CTL_MTC_RANGE | \
		   RTIT_CTL_CYC_THRESH | RTIT_CTL_PSB_FREQ)

/* While TraceEn is set only TraceEn may change; it can be set only with a table to write to. */
static int write_ctl(struct model_core *core, u64 value)
{
	bool was = core->ctl & RTIT_CTL_TRACEEN, is = value & RTIT_CTL_TRACEEN;

	if ((value & ~CTL_KNOWN) || (was && ((core->ctl ^ value) & ~RTIT_CTL_TRACEEN)))
		return -EIO;
	if (is && (!(value & RTIT_CTL_TOPA) || !core->base))
		return -EIO;
	core->ctl = value;
	if (was != is)
		model_switched++;
	if (!was && is)
		run(core);
	return 0;
}

static int model_write(u32 msr, u64 value)
{
	struct model_core *core = this_cpu_ptr(&cores);

	if (msr == MSR_IA32_RTIT_CTL)
		return write_ctl(core, value);
	if (core->ctl & RTIT_CTL_TRACEEN)
		return -EIO;
	switch (msr) {
	case MSR_IA32_RTIT_STATUS:
		core->status = value;
		return 0;
	case MSR_IA32_RTIT_OUTPUT_BASE:
		core->base = value;
		return value & ~TOPA_ADDRESS ? -EIO : 0;
	case MSR_IA32_RTIT_OUTPUT_MASK:
		core->mask = value | 0x7f;
		return 0;
	case MSR_IA32_RTIT_CR3_MATCH:
		core->match = value;
		return value & 0x1f ? -EIO : 0;
	}
	return -EIO;
}

/*
 * The task that still runs has its CR3 loaded: would the filter hold the same? In the kernel there
 * are no PTI bits.
 */
static void check_cr3(void)
{
	u64 loaded = __native_read_cr3(), expected;

	if ((current->flags & PF_KTHREAD) || !current->mm)
		return;
	expected = rtit_cr3(current->mm);
	if (boot_cpu_has(X86_FEATURE_PTI))
		expected &= ~(BIT(PAGE_SHIFT) | BIT(X86_CR3_PTI_PCID_USER_BIT));
	if ((loaded ^ expected) >> 5)
		model_cr3_mismatches++;
}

static void model_context(struct mm_struct *mm)
{
	struct model_core *core = this_cpu_ptr(&cores);

	check_cr3();
	core->cr3 = mm ? rtit_cr3(mm) : 0;
	run(core);
}

const struct rtit_ops rtit_model = {
	.backend = PERMILLE_BACKEND_MODEL,
	.cpuid = model_cpuid,
	.claim = model_claim,
	.release = model_release,
	.read = model_read,
	.write = model_write,
	.context = model_context,
};

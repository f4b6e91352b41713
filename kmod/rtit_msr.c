// SPDX-License-Identifier: GPL-2.0
/* The processor's own registers, and who else may want them. */
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/kernel.h>
#include <linux/path.h>
#include <linux/perf_event.h>
#include <linux/sched/task.h>
#include <asm/intel_pt.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/special_insns.h>

#include <permille.h>
#include "rtit.h"

#define EVENT_DEVICES	"/sys/bus/event_source/devices"
#define INTEL_PT_TYPE	EVENT_DEVICES "/intel_pt/type"
#define KVM_PT_MODE	"/sys/module/kvm_intel/parameters/pt_mode"
#define MISC_PT_IN_VMX	BIT_ULL(14)	/* IA32_VMX_MISC: PT can be used in VMX operation */

static DEFINE_PER_CPU(struct perf_event *, reservation);

static void msr_cpuid(u32 subleaf, u32 regs[4])
{
	memset(regs, 0, 4 * sizeof(*regs));
	if (boot_cpu_has(X86_FEATURE_INTEL_PT))
		cpuid_count(0x14, subleaf, &regs[0], &regs[1], &regs[2], &regs[3]);
}

static int msr_read(u32 msr, u64 *value)
{
	return rdmsrl_safe(msr, value);
}

static int msr_write(u32 msr, u64 value)
{
	return wrmsrl_safe(msr, value);
}

/*
 * As the machine's first process does: the owner may have another root, or another /sys in its
 * mount namespace.
 */
static struct file *open_as_init(const char *path, int flags)
{
	struct path root;
	struct file *file;

	task_lock(&init_task);
	get_fs_root(init_task.fs, &root);
	task_unlock(&init_task);
	file = file_open_root(&root, path, flags, 0);
	path_put(&root);
	return file;
}

/* A number in a file of sysfs; -ENOENT where there is none */
static int read_number(const char *path, u32 *number)
{
	struct file *file = open_as_init(path, O_RDONLY);
	char text[16] = {};
	loff_t at = 0;
	ssize_t size;

	if (IS_ERR(file))
		return PTR_ERR(file);
	size = kernel_read(file, text, sizeof(text) - 1, &at);
	filp_close(file, NULL);
	return size < 0 ? size : kstrtou32(strim(text), 10, number);
}

static bool is_there(const char *folder)
{
	struct file *file = open_as_init(folder, O_RDONLY | O_DIRECTORY);

	if (IS_ERR(file))
		return false;
	filp_close(file, NULL);
	return true;
}

/*
 * A disabled event on the core: intel_pt is exclusive, so that perf refuses everybody else with
 * EBUSY, and refuses us where somebody was first. There is no intel_pt where the kernel's devices
 * are seen without it.
 */
static int reserve(int cpu)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.disabled = 1,
		.pinned = 1,
	};
	struct perf_event *event;
	int failed = read_number(INTEL_PT_TYPE, &attr.type);

	if (failed)
		return failed == -ENOENT && is_there(EVENT_DEVICES) ? 0 : failed;
	event = perf_event_create_kernel_counter(&attr, cpu, NULL, NULL, NULL);
	if (IS_ERR(event))
		return PTR_ERR(event);
	per_cpu(reservation, cpu) = event;
	return 0;
}

static void release(int cpu)
{
	struct perf_event *event = per_cpu(reservation, cpu);

	if (event)
		perf_event_release_kernel(event);
	per_cpu(reservation, cpu) = NULL;
}

struct vmx_look {
	bool excludes;
};

static void look_at_vmx(void *data)
{
	struct vmx_look *look = data;
	u64 misc;

	look->excludes = (__read_cr4() & X86_CR4_VMXE) &&
			 (rdmsrl_safe(MSR_IA32_VMX_MISC, &misc) || !(misc & MISC_PT_IN_VMX));
}

/* KVM in host-guest mode owns PT while a guest runs; in system mode it leaves PT to the host. */
static bool kvm_uses_pt(int cpu)
{
	struct vmx_look look = {};
	u32 mode = 0;
	int failed = read_number(KVM_PT_MODE, &mode);

	if (mode || (failed && failed != -ENOENT))
		return true;
	smp_call_function_single(cpu, look_at_vmx, &look, 1);
	return look.excludes;
}

static int msr_claim(int cpu, u32 *refusal)
{
	u64 ctl;
	int failed;

	*refusal = PERMILLE_REFUSED_KVM;
	if (kvm_uses_pt(cpu))
		return -EBUSY;
	*refusal = PERMILLE_REFUSED_PERF;
	failed = reserve(cpu);
	if (failed)
		return failed;
	*refusal = PERMILLE_REFUSED_FOREIGN;
	if (!rdmsrl_safe_on_cpu(cpu, MSR_IA32_RTIT_CTL, &ctl) && !(ctl & RTIT_CTL_TRACEEN))
		return 0;
	release(cpu);
	return -EBUSY;
}

const struct rtit_ops rtit_msr = {
	.backend = PERMILLE_BACKEND_MSR,
	.cpuid = msr_cpuid,
	.claim = msr_claim,
	.release = release,
	.read = msr_read,
	.write = msr_write,
};

// SPDX-License-Identifier: GPL-2.0
#include <linux/cpumask.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>

#include "rtit.h"
#include "validate.h"

static bool allow_kernel;
module_param(allow_kernel, bool, 0444);
MODULE_PARM_DESC(allow_kernel,
		 "let sessions record kernel code, whose addresses the owner then knows");

int refuse(struct permille_setup *setup, u32 refusal, u32 value, int error)
{
	setup->refusal = refusal;
	setup->refused_value = value;
	return error;
}

static u32 offered(void)
{
	return rtit_caps.features | (allow_kernel ? PERMILLE_KERNEL : 0);
}

/* Zero is the processor's smallest and always offered. */
static bool has_frequency(u32 offered, u32 wanted)
{
	return !wanted || (wanted < 16 && (offered & BIT(wanted)));
}

static int validate_frequencies(struct permille_setup *setup)
{
	if (!has_frequency(rtit_caps.psb_freqs, setup->psb_freq))
		return refuse(setup, PERMILLE_REFUSED_FREQUENCY, setup->psb_freq, -EOPNOTSUPP);
	if (!has_frequency(setup->flags & PERMILLE_MTC ? rtit_caps.mtc_freqs : 0, setup->mtc_freq))
		return refuse(setup, PERMILLE_REFUSED_FREQUENCY, setup->mtc_freq, -EOPNOTSUPP);
	if (!has_frequency(setup->flags & PERMILLE_CYC ? rtit_caps.cyc_thresholds : 0,
			   setup->cyc_threshold))
		return refuse(setup, PERMILLE_REFUSED_FREQUENCY, setup->cyc_threshold, -EOPNOTSUPP);
	return 0;
}

bool sees_all_processes(void)
{
	return task_active_pid_ns(current) == &init_pid_ns;
}

u32 refusal_of_process(int failed)
{
	return failed == -ENOSPC ? PERMILLE_REFUSED_ROOM : PERMILLE_REFUSED_PROCESS;
}

int validate_setup(struct permille_setup *setup)
{
	setup->refusal = PERMILLE_REFUSED_NOT;
	setup->refused_value = 0;
	if (setup->version != PERMILLE_UAPI_VERSION)
		return refuse(setup, PERMILLE_REFUSED_VERSION, PERMILLE_UAPI_VERSION, -EINVAL);
	if (setup->reserved)
		return refuse(setup, PERMILLE_REFUSED_RESERVED, setup->reserved, -EINVAL);
	if (setup->flags & ~offered())
		return refuse(setup, PERMILLE_REFUSED_FLAGS, setup->flags & ~offered(),
			      -EOPNOTSUPP);
	if (!sees_all_processes())
		return refuse(setup, PERMILLE_REFUSED_NAMESPACE, 0, -EPERM);
	if (setup->period_ns < PERMILLE_MIN_PERIOD_NS || setup->period_ns > PERMILLE_MAX_PERIOD_NS)
		return refuse(setup, PERMILLE_REFUSED_PERIOD, 0, -EINVAL);
	if (!setup->core_count || setup->core_count > num_possible_cpus())
		return refuse(setup, PERMILLE_REFUSED_CORE_COUNT, setup->core_count, -EINVAL);
	if (!setup->process_count || setup->process_count > PERMILLE_MAX_PROCESSES)
		return refuse(setup, PERMILLE_REFUSED_PROCESS_COUNT, setup->process_count, -EINVAL);
	return validate_frequencies(setup);
}

int validate_core(struct permille_setup *setup, const struct permille_core_plan *plan)
{
	if (plan->cpu >= nr_cpu_ids || !cpu_online(plan->cpu))
		return refuse(setup, PERMILLE_REFUSED_CORE, plan->cpu, -ENODEV);
	if (plan->buffer_bytes < PERMILLE_MIN_BUFFER || plan->buffer_bytes > PERMILLE_MAX_BUFFER ||
	    !PAGE_ALIGNED(plan->buffer_bytes))
		return refuse(setup, PERMILLE_REFUSED_BUFFER, plan->cpu, -EINVAL);
	if (plan->switch_records < PERMILLE_MIN_RECORDS ||
	    plan->switch_records > PERMILLE_MAX_RECORDS ||
	    !is_power_of_2(plan->switch_records))
		return refuse(setup, PERMILLE_REFUSED_RECORDS, plan->cpu, -EINVAL);
	return 0;
}

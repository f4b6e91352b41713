// SPDX-License-Identifier: GPL-2.0
#include <linux/mutex.h>
#include <linux/percpu.h>

#include "claims.h"
#include "rtit.h"
#include "validate.h"

static DEFINE_MUTEX(claims_lock);
static DEFINE_PER_CPU(const void *, claimed_by);

static int claim(struct permille_setup *setup, const void *owner, u32 cpu)
{
	const void *other = per_cpu(claimed_by, cpu);
	u32 refusal = PERMILLE_REFUSED_PERF;
	int failed;

	if (other == owner)
		return refuse(setup, PERMILLE_REFUSED_CORE, cpu, -EINVAL);
	if (other)
		return refuse(setup, PERMILLE_REFUSED_CORE_BUSY, cpu, -EBUSY);
	failed = rtit->claim(cpu, &refusal);
	if (failed)
		return refuse(setup, refusal, cpu, failed);
	per_cpu(claimed_by, cpu) = owner;
	return 0;
}

int claim_core(struct permille_setup *setup, const void *owner, u32 cpu)
{
	int failed;

	mutex_lock(&claims_lock);
	failed = claim(setup, owner, cpu);
	mutex_unlock(&claims_lock);
	return failed;
}

void unclaim_core(u32 cpu)
{
	mutex_lock(&claims_lock);
	rtit->release(cpu);
	per_cpu(claimed_by, cpu) = NULL;
	mutex_unlock(&claims_lock);
}

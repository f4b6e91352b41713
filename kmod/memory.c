// SPDX-License-Identifier: GPL-2.0
#include <linux/atomic.h>
#include <linux/moduleparam.h>

#include "memory.h"

static unsigned int memory_limit_mb = 1024;
module_param(memory_limit_mb, uint, 0644);
MODULE_PARM_DESC(memory_limit_mb,
		 "MiB that all sessions together may take for trace and switch records");

static atomic64_t used;

u64 memory_limit(void)
{
	return (u64)READ_ONCE(memory_limit_mb) << 20;
}

u64 memory_used(void)
{
	return atomic64_read(&used);
}

bool memory_take(u64 bytes)
{
	if (atomic64_add_return(bytes, &used) <= memory_limit())
		return true;
	atomic64_sub(bytes, &used);
	return false;
}

void memory_give(u64 bytes)
{
	atomic64_sub(bytes, &used);
}

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What all sessions together may take. The pages themselves are charged to the owner's memory
 * cgroup.
 */
#ifndef PERMILLE_MEMORY_H
#define PERMILLE_MEMORY_H

#include <linux/types.h>

bool memory_take(u64 bytes);
void memory_give(u64 bytes);
u64 memory_used(void);
u64 memory_limit(void);

#endif

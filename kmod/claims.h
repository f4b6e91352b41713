/* SPDX-License-Identifier: GPL-2.0 */
/* A core belongs to one session at a time. */
#ifndef PERMILLE_CLAIMS_H
#define PERMILLE_CLAIMS_H

#include <permille.h>

int claim_core(struct permille_setup *setup, const void *owner, u32 cpu);
void unclaim_core(u32 cpu);

#endif

// SPDX-License-Identifier: GPL-2.0
/*
 * CPUID as of a processor with this trace unit (SDM volume 2, CPUID leaves 07H and 14H): it offers
 * what is built.
 */
#include "guest.h"
#include "unit.h"

#define HIGHEST_LEAF	0x14
#define HAS_INTEL_PT	(1u << 25)	/* 07H.0:EBX */

static void answer(struct guest *guest, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	guest->registers[RAX] = a;
	guest->registers[RBX] = b;
	guest->registers[RCX] = c;
	guest->registers[RDX] = d;
}

void cpuid_tell(uint32_t leaf, uint32_t subleaf, struct guest *guest)
{
	if (leaf == 0 && guest->registers[RAX] < HIGHEST_LEAF)
		guest->registers[RAX] = HIGHEST_LEAF;
	else if (leaf == 7 && subleaf == 0)
		guest->registers[RBX] |= HAS_INTEL_PT;
	else if (leaf == 0x14 && subleaf == 0)
		/* CR3 filter, PSB and CYC, MTC; ToPA with many entries */
		answer(guest, 1, 0x0b, 0x03, 0);
	else if (leaf == 0x14 && subleaf == 1)
		answer(guest, 0x02490000, 0x003f0001, 0, 0);
}

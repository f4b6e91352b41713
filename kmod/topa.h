/* SPDX-License-Identifier: GPL-2.0 */
/* A core's output: tables of physical addresses, STOP on the last region. */
#ifndef PERMILLE_TOPA_H
#define PERMILLE_TOPA_H

#include <linux/types.h>

struct vm_area_struct;

#define TOPA_END	BIT_ULL(0)
#define TOPA_STOP	BIT_ULL(4)
#define TOPA_SIZE_SHIFT	6	/* size 4096 << n */
#define TOPA_SIZE_MASK	0xfull
#define TOPA_ADDRESS	(~0xfffull & ((1ull << 52) - 1))
#define TOPA_ENTRIES	512

struct topa {
	u64 base;		/* physical address of the first table */
	u64 size;
	u32 block_count, region_count, table_count;
	u64 *blocks;		/* of the page allocator, written as regions are */
	u64 **tables;
	bool write_combining;
};

int topa_allocate(struct topa *topa, u64 size, int node, bool write_combining);
void topa_free(struct topa *topa);
u64 topa_bytes(const struct topa *topa, u64 table, u32 entry, u32 offset);
int topa_mmap(const struct topa *topa, struct vm_area_struct *vma);

static inline u32 topa_order(u64 entry)
{
	return (entry >> TOPA_SIZE_SHIFT) & TOPA_SIZE_MASK;
}

static inline u64 topa_bytes_of(u64 entry)
{
	return 4096ull << topa_order(entry);
}

#endif

// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks as large as the page allocator gives them, in the order of their addresses: those that lie
 * side by side are one region, so that a table is rarely left.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/set_memory.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "memory.h"
#include "rtit.h"
#include "topa.h"

/* Largest block of the page allocator: 4 MiB */
#define MAX_BLOCK_ORDER 10u
/* Largest region that an entry can tell: 128 MiB */
#define MAX_REGION_ORDER 15u

static unsigned int region_order = MAX_REGION_ORDER;
module_param(region_order, uint, 0444);
MODULE_PARM_DESC(region_order, "no region is larger than 4096 << region_order bytes (at most 15)");

static u64 *add_table(struct topa *topa, int node)
{
	struct page *page = alloc_pages_node(node, GFP_KERNEL_ACCOUNT | __GFP_ZERO, 0);
	u64 *table, **tables;

	if (!page)
		return NULL;
	tables = krealloc_array(topa->tables, topa->table_count + 1, sizeof(*tables),
				GFP_KERNEL_ACCOUNT);
	if (!tables) {
		__free_page(page);
		return NULL;
	}
	table = page_address(page);
	if (topa->table_count)
		tables[topa->table_count - 1][TOPA_ENTRIES - 1] = __pa(table) | TOPA_END;
	else
		topa->base = __pa(table);
	tables[topa->table_count++] = table;
	topa->tables = tables;
	return table;
}

static struct page *allocate_block(int node, u64 size, u32 *order)
{
	u32 wanted = min_t(u32, *order, ilog2(size >> PAGE_SHIFT));
	struct page *page;

	for (;; wanted--) {
		gfp_t flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO;

		if (wanted)
			flags |= __GFP_NORETRY | __GFP_NOWARN;
		page = alloc_pages_node(node, flags, wanted);
		if (page || !wanted)
			break;
	}
	*order = wanted;
	return page;
}

static int add_block(struct topa *topa, u64 size, int node, u32 *order)
{
	struct page *page = allocate_block(node, size, order);
	int failed;

	if (!page)
		return -ENOMEM;
	if (topa->write_combining) {
		failed = set_memory_wc((unsigned long)page_address(page), 1 << *order);
		if (failed) {
			__free_pages(page, *order);
			return failed;
		}
	}
	topa->blocks[topa->block_count++] = page_to_phys(page) | (u64)*order << TOPA_SIZE_SHIFT;
	topa->size += PAGE_SIZE << *order;
	return 0;
}

/* A processor with a single region gets the power of two below the size. */
static int add_blocks(struct topa *topa, u64 size, int node)
{
	u32 order = min3(region_order, MAX_REGION_ORDER, MAX_BLOCK_ORDER);
	int failed = 0;

	topa->blocks = kvcalloc(size >> PAGE_SHIFT, sizeof(*topa->blocks), GFP_KERNEL_ACCOUNT);
	if (!topa->blocks)
		return -ENOMEM;
	do
		failed = add_block(topa, size - topa->size, node, &order);
	while (!failed && topa->size < size && rtit_caps.many_regions);
	return failed;
}

static int by_address(const void *one, const void *other)
{
	u64 a = *(const u64 *)one, b = *(const u64 *)other;

	return a < b ? -1 : a > b;
}

/* Whether both are the halves of an aligned block */
static bool are_halves(u64 one, u64 other)
{
	return topa_order(one) == topa_order(other) &&
	       topa_order(one) < min(region_order, MAX_REGION_ORDER) &&
	       (other & TOPA_ADDRESS) == ((one & TOPA_ADDRESS) | topa_bytes_of(one));
}

/* Of blocks in the order of their addresses; returns how many regions they are. */
static u32 unite(u64 *regions, const u64 *blocks, u32 count)
{
	u32 i, n = 0;

	for (i = 0; i < count; i++) {
		regions[n++] = blocks[i];
		while (n > 1 && are_halves(regions[n - 2], regions[n - 1])) {
			regions[n - 2] += 1 << TOPA_SIZE_SHIFT;
			n--;
		}
	}
	return n;
}

static int fill_tables(struct topa *topa, const u64 *regions, int node)
{
	u64 *table = NULL;
	u32 i;

	for (i = 0; i < topa->region_count; i++) {
		if (i % (TOPA_ENTRIES - 1) == 0) {
			table = add_table(topa, node);
			if (!table)
				return -ENOMEM;
		}
		table[i % (TOPA_ENTRIES - 1)] = regions[i];
	}
	i = (topa->region_count - 1) % (TOPA_ENTRIES - 1);
	table[i] |= TOPA_STOP;
	table[i + 1] = topa->base | TOPA_END;
	return 0;
}

static int add_regions(struct topa *topa, int node)
{
	u64 *regions = kvcalloc(topa->block_count, sizeof(*regions), GFP_KERNEL_ACCOUNT);
	int failed;

	if (!regions)
		return -ENOMEM;
	sort(topa->blocks, topa->block_count, sizeof(*topa->blocks), by_address, NULL);
	topa->region_count = unite(regions, topa->blocks, topa->block_count);
	failed = fill_tables(topa, regions, node);
	kvfree(regions);
	return failed;
}

/* Size: a multiple of the page size. What it got is topa->size. */
int topa_allocate(struct topa *topa, u64 size, int node, bool write_combining)
{
	int failed;

	topa->write_combining = write_combining;
	failed = add_blocks(topa, size, node);
	if (!failed)
		failed = add_regions(topa, node);
	if (failed)
		topa_free(topa);
	return failed;
}

static void free_block(const struct topa *topa, u64 block)
{
	u64 address = block & TOPA_ADDRESS;

	if (topa->write_combining)
		set_memory_wb((unsigned long)phys_to_virt(address), 1 << topa_order(block));
	__free_pages(pfn_to_page(address >> PAGE_SHIFT), topa_order(block));
}

void topa_free(struct topa *topa)
{
	u32 i;

	for (i = 0; i < topa->block_count; i++)
		free_block(topa, topa->blocks[i]);
	for (i = 0; i < topa->table_count; i++)
		free_page((unsigned long)topa->tables[i]);
	kvfree(topa->blocks);
	kfree(topa->tables);
	memset(topa, 0, sizeof(*topa));
}

/* The bytes in front of a position; a position that is none of ours is 0. */
u64 topa_bytes(const struct topa *topa, u64 table, u32 entry, u32 offset)
{
	u64 bytes = 0;
	u32 t, e;

	for (t = 0; t < topa->table_count; t++) {
		for (e = 0; e < TOPA_ENTRIES; e++) {
			u64 value = topa->tables[t][e];

			if (__pa(topa->tables[t]) == (table & TOPA_ADDRESS) && e == entry)
				return min(bytes + offset, topa->size);
			if (!value || (value & TOPA_END))
				break;
			bytes += topa_bytes_of(value);
		}
	}
	return 0;
}

int topa_mmap(const struct topa *topa, struct vm_area_struct *vma)
{
	unsigned long at = vma->vm_start;
	u32 t, e;

	if (topa->write_combining)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	for (t = 0; t < topa->table_count; t++) {
		for (e = 0; e < TOPA_ENTRIES - 1 && at < vma->vm_end; e++) {
			u64 value = topa->tables[t][e];
			unsigned long size = topa_bytes_of(value);
			int failed;

			if (!value || (value & TOPA_END))
				break;
			size = min(size, vma->vm_end - at);
			failed = remap_pfn_range(vma, at, (value & TOPA_ADDRESS) >> PAGE_SHIFT,
						 size, vma->vm_page_prot);
			if (failed)
				return failed;
			at += size;
		}
	}
	return 0;
}

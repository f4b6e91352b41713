// SPDX-License-Identifier: GPL-2.0
/*
 * The tables are their own list of the regions: the entries tell address and size. Regions are as large as the
 * page allocator gives them, so that a table is rarely left.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/set_memory.h>
#include <linux/slab.h>

#include "memory.h"
#include "rtit.h"
#include "topa.h"

/* Largest block of the page allocator: 4 MiB */
#define MAX_REGION_ORDER 10u

static unsigned int region_order = MAX_REGION_ORDER;
module_param(region_order, uint, 0444);
MODULE_PARM_DESC(region_order, "no region is larger than 4096 << region_order bytes (at most 10)");

static u64 *add_table(struct topa *topa, int node)
{
	struct page *page = alloc_pages_node(node, GFP_KERNEL_ACCOUNT | __GFP_ZERO, 0);
	u64 *table, **tables;

	if (!page)
		return NULL;
	tables = krealloc_array(topa->tables, topa->table_count + 1, sizeof(*tables), GFP_KERNEL_ACCOUNT);
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

static struct page *allocate_region(int node, u64 size, u32 *order)
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

static int add_region(u64 *entry, u64 size, int node, bool write_combining, u32 *order)
{
	struct page *page = allocate_region(node, size, order);
	int failed;

	if (!page)
		return -ENOMEM;
	if (write_combining) {
		failed = set_memory_wc((unsigned long)page_address(page), 1 << *order);
		if (failed) {
			__free_pages(page, *order);
			return failed;
		}
	}
	*entry = page_to_phys(page) | (u64)*order << TOPA_SIZE_SHIFT;
	return 0;
}

/* Size: a multiple of the page size. A processor with a single region gets the power of two below. */
int topa_allocate(struct topa *topa, u64 size, int node, bool write_combining)
{
	u32 order = min(region_order, MAX_REGION_ORDER), entry = 0;
	u64 *table = add_table(topa, node);
	int failed;

	topa->write_combining = write_combining;
	if (!table)
		return -ENOMEM;
	while (topa->size < size) {
		if (entry == TOPA_ENTRIES - 1) {
			table = add_table(topa, node);
			entry = 0;
			if (!table)
				goto no_memory;
		}
		failed = add_region(&table[entry], size - topa->size, node, write_combining, &order);
		if (failed) {
			topa_free(topa);
			return failed;
		}
		topa->size += PAGE_SIZE << order;
		entry++;
		if (!rtit_caps.many_regions)
			break;
	}
	table[entry - 1] |= TOPA_STOP;
	table[entry] = topa->base | TOPA_END;
	return 0;

no_memory:
	topa_free(topa);
	return -ENOMEM;
}

static void free_region(const struct topa *topa, u64 entry)
{
	u64 address = entry & TOPA_ADDRESS;

	if (topa->write_combining)
		set_memory_wb((unsigned long)phys_to_virt(address), 1 << topa_order(entry));
	__free_pages(pfn_to_page(address >> PAGE_SHIFT), topa_order(entry));
}

void topa_free(struct topa *topa)
{
	u32 table, entry;

	for (table = 0; table < topa->table_count; table++) {
		for (entry = 0; entry < TOPA_ENTRIES - 1; entry++) {
			u64 value = topa->tables[table][entry];

			if (!value || (value & TOPA_END))
				break;
			free_region(topa, value);
		}
		free_page((unsigned long)topa->tables[table]);
	}
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
			bytes += PAGE_SIZE << topa_order(value);
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
			unsigned long size = PAGE_SIZE << topa_order(value);
			int failed;

			if (!value || (value & TOPA_END))
				break;
			size = min(size, vma->vm_end - at);
			failed = remap_pfn_range(vma, at, (value & TOPA_ADDRESS) >> PAGE_SHIFT, size,
						 vma->vm_page_prot);
			if (failed)
				return failed;
			at += size;
		}
	}
	return 0;
}

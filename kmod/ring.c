// SPDX-License-Identifier: GPL-2.0
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "ring.h"

u64 ring_bytes(u32 capacity)
{
	return PERMILLE_RING_RECORDS + PAGE_ALIGN((u64)capacity * sizeof(struct permille_switch));
}

int ring_allocate(struct switch_ring *ring, u32 capacity, int node)
{
	u32 count = ring_bytes(capacity) >> PAGE_SHIFT;

	ring->pages = kvcalloc(count, sizeof(*ring->pages), GFP_KERNEL_ACCOUNT);
	if (!ring->pages)
		return -ENOMEM;
	for (; ring->page_count < count; ring->page_count++) {
		struct page *page = alloc_pages_node(node, GFP_KERNEL_ACCOUNT | __GFP_ZERO, 0);

		if (!page)
			goto no_memory;
		ring->pages[ring->page_count] = page;
	}
	ring->shared = vmap(ring->pages, count, VM_MAP, PAGE_KERNEL);
	if (!ring->shared)
		goto no_memory;
	ring->records = (void *)ring->shared + PERMILLE_RING_RECORDS;
	ring->capacity = capacity;
	ring->shared->capacity = capacity;
	return 0;

no_memory:
	ring_free(ring);
	return -ENOMEM;
}

void ring_free(struct switch_ring *ring)
{
	if (ring->shared)
		vunmap(ring->shared);
	while (ring->page_count)
		__free_page(ring->pages[--ring->page_count]);
	kvfree(ring->pages);
	memset(ring, 0, sizeof(*ring));
}

int ring_mmap(const struct switch_ring *ring, struct vm_area_struct *vma)
{
	unsigned long count = vma_pages(vma);

	if (count > ring->page_count)
		return -EINVAL;
	return vm_map_pages_zero(vma, ring->pages, count);
}

/* From one block to the next: what a decoder must be told to go this way. Knows no QEMU and writes nothing. */
#ifndef WAY_H
#define WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "block.h"

#define PAGE_BYTES 4096
#define INSN_BYTES 15 /* the longest instruction */
#define RETURN_DEPTH 64 /* the depth of the processor's own stack for return compression */

struct returns {
    uint64_t addresses[RETURN_DEPTH];
    unsigned top, depth;
};

enum way {
    WAY_SILENT,    /* the code alone leads there */
    WAY_NOT_TAKEN, /* a TNT bit */
    WAY_TAKEN,     /* a TNT bit: a branch, or a return to where its call said */
    WAY_TARGET,    /* a TIP */
    WAY_AGAIN,     /* QEMU gave up the block and began again there: code that changed itself, an atomic step, the page's end */
    WAY_UNKNOWN,   /* the block cannot have led there by itself */
};

static inline void returns_forget(struct returns *r) { r->depth = 0; }

static inline void returns_push(struct returns *r, uint64_t address)
{
    r->addresses[r->top++ % RETURN_DEPTH] = address;
    if (r->depth < RETURN_DEPTH)
        r->depth++;
}

/* A mismatch empties the stack: whether a decoder pops there or not, what is left on top of its stack is ours. */
static inline bool returns_pop(struct returns *r, uint64_t address)
{
    if (!r->depth)
        return false;
    if (r->addresses[--r->top % RETURN_DEPTH] == address) {
        r->depth--;
        return true;
    }
    returns_forget(r);
    return false;
}

/*
 * QEMU gives up a block in front of an instruction that ends on another page, and begins the next block with it. It tells a
 * plugin what it has read of it by then, so `end` is not where it ends.
 */
static inline bool given_up(const struct block *block, uint64_t to)
{
    return to == block->last && block->count > 1 && block->last % PAGE_BYTES > PAGE_BYTES - INSN_BYTES;
}

/* How `block` went on to `to`; `compress`: a return may be told by a bit. */
static inline enum way way_to(struct returns *r, bool compress, const struct block *block, uint64_t to)
{
    switch (block->class) {
    case INSN_COND:
        if (to != block->target && to != block->end)
            break;
        return to == block->target ? WAY_TAKEN : WAY_NOT_TAKEN;
    case INSN_JUMP:
        if (to == block->target)
            return WAY_SILENT;
        break;
    case INSN_CALL:
        if (to != block->target)
            break;
        if (block->target != block->end) /* call to the next instruction: only reads the address */
            returns_push(r, block->end);
        return WAY_SILENT;
    case INSN_JUMP_INDIRECT:
    case INSN_FAR:
        return given_up(block, to) ? WAY_AGAIN : WAY_TARGET;
    case INSN_CALL_INDIRECT:
        if (given_up(block, to))
            break;
        returns_push(r, block->end);
        return WAY_TARGET;
    case INSN_RETURN:
        if (given_up(block, to))
            break;
        return compress && returns_pop(r, to) ? WAY_TAKEN : WAY_TARGET;
    case INSN_REPEAT:
        if (to == block->last)
            return WAY_SILENT;
        /* fall through */
    default:
        if (to == block->end)
            return WAY_SILENT;
    }
    return to >= block->start && to < block->end ? WAY_AGAIN : WAY_UNKNOWN;
}

/* QEMU gave up the block at its first instruction, to execute that one alone. */
static inline bool begins_again(const struct block *block, uint64_t start, unsigned count)
{
    return start == block->start && count == 1 && block->count > 1;
}

#endif

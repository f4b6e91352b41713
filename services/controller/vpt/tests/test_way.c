/* way_to against what a decoder of Processor Trace needs to be told (SDM volume 3, "Change of Flow Instruction Tracing"). */
#include "../way.h"
#include "check.h"

/* Five instructions of a byte each, then the branch of two. */
static const struct block base = {.start = 0x1000, .last = 0x1005, .end = 0x1007, .target = 0x2000, .count = 6};

static struct block ending(enum insn_class class)
{
    struct block block = base;
    block.class = class;
    return block;
}

static enum way from(enum insn_class class, uint64_t to)
{
    struct returns returns = {0};
    struct block block = ending(class);
    return way_to(&returns, true, &block, to);
}

static void what_the_code_says_is_not_told(void)
{
    CHECK(from(INSN_LINEAR, 0x1007) == WAY_SILENT);
    CHECK(from(INSN_JUMP, 0x2000) == WAY_SILENT);
    CHECK(from(INSN_CALL, 0x2000) == WAY_SILENT);
    CHECK(from(INSN_REPEAT, 0x1005) == WAY_SILENT && from(INSN_REPEAT, 0x1007) == WAY_SILENT);
}

static void branches_are_told(void)
{
    CHECK(from(INSN_COND, 0x2000) == WAY_TAKEN && from(INSN_COND, 0x1007) == WAY_NOT_TAKEN);
    CHECK(from(INSN_JUMP_INDIRECT, 0x3000) == WAY_TARGET && from(INSN_CALL_INDIRECT, 0x3000) == WAY_TARGET);
    CHECK(from(INSN_FAR, 0x3000) == WAY_TARGET && from(INSN_RETURN, 0x3000) == WAY_TARGET);
}

static void what_cannot_be_is_unknown(void)
{
    CHECK(from(INSN_LINEAR, 0x3000) == WAY_UNKNOWN && from(INSN_COND, 0x3000) == WAY_UNKNOWN);
    CHECK(from(INSN_JUMP, 0x1007) == WAY_UNKNOWN && from(INSN_CALL, 0x1007) == WAY_UNKNOWN);
    CHECK(from(INSN_LINEAR, 0x1003) == WAY_AGAIN && from(INSN_JUMP, 0x1000) == WAY_AGAIN);
}

static void returns_are_compressed_as_deep_as_a_processor_can(void)
{
    struct returns returns = {0};
    struct block call = ending(INSN_CALL), back = ending(INSN_RETURN);
    for (unsigned depth = 0; depth < RETURN_DEPTH + 2; depth++) {
        call.end = 0x1007 + depth;
        CHECK(way_to(&returns, true, &call, 0x2000) == WAY_SILENT);
    }
    for (unsigned depth = RETURN_DEPTH + 2; depth-- > 2;)
        CHECK(way_to(&returns, true, &back, 0x1007 + depth) == WAY_TAKEN);
    CHECK(way_to(&returns, true, &back, 0x1008) == WAY_TARGET);
}

static void a_return_elsewhere_empties_the_stack(void)
{
    struct returns returns = {0};
    struct block call = ending(INSN_CALL), back = ending(INSN_RETURN);
    CHECK(way_to(&returns, true, &call, 0x2000) == WAY_SILENT && way_to(&returns, true, &call, 0x2000) == WAY_SILENT);
    CHECK(way_to(&returns, true, &back, 0x4000) == WAY_TARGET);
    CHECK(way_to(&returns, true, &back, 0x1007) == WAY_TARGET);
    CHECK(way_to(&returns, true, &call, 0x2000) == WAY_SILENT);
    CHECK(way_to(&returns, false, &back, 0x1007) == WAY_TARGET);
}

static void a_call_that_only_reads_the_address_is_no_call(void)
{
    struct returns returns = {0};
    struct block call = ending(INSN_CALL), back = ending(INSN_RETURN);
    call.target = call.end;
    CHECK(way_to(&returns, true, &call, call.end) == WAY_SILENT);
    CHECK(way_to(&returns, true, &back, call.end) == WAY_TARGET);
}

static void an_instruction_over_the_end_of_a_page_runs_in_the_next_block(void)
{
    const enum insn_class indirect[] = {INSN_JUMP_INDIRECT, INSN_CALL_INDIRECT, INSN_RETURN, INSN_FAR};
    struct returns returns = {0};
    for (unsigned i = 0; i < sizeof indirect / sizeof *indirect; i++) {
        struct block over = {.start = 0xff9, .last = 0xffe, .end = 0x1000, .count = 6, .class = (uint8_t)indirect[i]};
        CHECK(way_to(&returns, true, &over, over.last) == WAY_AGAIN && !returns.depth);
        CHECK(from(indirect[i], base.last) == WAY_TARGET);
        over.start = over.last, over.count = 1;
        CHECK(way_to(&returns, true, &over, over.last) == WAY_TARGET);
        returns_forget(&returns);
    }
}

static void a_block_given_up_at_once_begins_again_alone(void)
{
    struct block block = ending(INSN_LINEAR);
    CHECK(begins_again(&block, 0x1000, 1) && !begins_again(&block, 0x1000, 6) && !begins_again(&block, 0x1001, 1));
    block.count = 1;
    CHECK(!begins_again(&block, 0x1000, 1));
}

int main(void)
{
    what_the_code_says_is_not_told();
    branches_are_told();
    what_cannot_be_is_unknown();
    returns_are_compressed_as_deep_as_a_processor_can();
    a_return_elsewhere_empties_the_stack();
    a_call_that_only_reads_the_address_is_no_call();
    an_instruction_over_the_end_of_a_page_runs_in_the_next_block();
    a_block_given_up_at_once_begins_again_alone();
    return 0;
}

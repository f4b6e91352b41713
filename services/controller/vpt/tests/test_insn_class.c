/* insn_classify against the opcode maps (Intel SDM volume 2, appendix A). */
#include "../insn_class.h"
#include "check.h"

#include <string.h>

#define AT 0x401000ull

static uint64_t target;

#define CLASS(...) \
    classified((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

/* From a heap block of the exact size, so that the sanitizer sees a read beyond the instruction. */
static enum insn_class classified(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size);
    memcpy(copy, bytes, size);
    enum insn_class class = insn_classify(copy, size, AT, &target);
    free(copy);
    return class;
}

static void direct_branches_have_a_target(void)
{
    CHECK(CLASS(0x74, 0x10) == INSN_COND && target == AT + 2 + 0x10);
    CHECK(CLASS(0x75, 0xfe) == INSN_COND && target == AT);
    CHECK(CLASS(0x0f, 0x84, 0x00, 0x01, 0x00, 0x00) == INSN_COND && target == AT + 6 + 0x100);
    CHECK(CLASS(0xe2, 0x80) == INSN_COND && target == AT + 2 - 128);
    CHECK(CLASS(0x67, 0xe3, 0x05) == INSN_COND && target == AT + 3 + 5);
    CHECK(CLASS(0xeb, 0x7f) == INSN_JUMP && target == AT + 2 + 127);
    CHECK(CLASS(0xe9, 0xfb, 0xff, 0xff, 0xff) == INSN_JUMP && target == AT);
    CHECK(CLASS(0xe8, 0x00, 0x00, 0x00, 0x80) == INSN_CALL && target == AT + 5 - 0x80000000ull);
    CHECK(CLASS(0xf2, 0xe8, 0x01, 0x00, 0x00, 0x00) == INSN_CALL && target == AT + 6 + 1); /* BND */
}

static void indirect_branches_have_none(void)
{
    CHECK(CLASS(0xff, 0xe0) == INSN_JUMP_INDIRECT && target == 0);
    CHECK(CLASS(0x3e, 0xff, 0xe0) == INSN_JUMP_INDIRECT); /* NOTRACK */
    CHECK(CLASS(0xff, 0x25, 1, 2, 3, 4) == INSN_JUMP_INDIRECT);
    CHECK(CLASS(0x41, 0xff, 0xd4) == INSN_CALL_INDIRECT);
    CHECK(CLASS(0xc3) == INSN_RETURN);
    CHECK(CLASS(0xf3, 0xc3) == INSN_RETURN);
    CHECK(CLASS(0xc2, 0x08, 0x00) == INSN_RETURN);
}

static void what_enters_the_kernel_is_not_what_only_changes_the_segment(void)
{
    CHECK(CLASS(0x0f, 0x05) == INSN_SYSTEM);
    CHECK(CLASS(0x0f, 0x34) == INSN_SYSTEM);
    CHECK(CLASS(0x48, 0x0f, 0x07) == INSN_FAR && CLASS(0x48, 0x0f, 0x35) == INSN_FAR && CLASS(0x48, 0xcf) == INSN_FAR);
    CHECK(CLASS(0xcc) == INSN_SYSTEM);
    CHECK(CLASS(0xcd, 0x80) == INSN_SYSTEM);
    CHECK(CLASS(0xcb) == INSN_FAR);
    CHECK(CLASS(0x48, 0xcf) == INSN_FAR);
    CHECK(CLASS(0xff, 0x28) == INSN_FAR);
    CHECK(CLASS(0xff, 0x18) == INSN_FAR);
}

static void strings_repeat_only_with_a_prefix(void)
{
    CHECK(CLASS(0xf3, 0xa4) == INSN_REPEAT);
    CHECK(CLASS(0xf3, 0x48, 0xab) == INSN_REPEAT);
    CHECK(CLASS(0xf2, 0xae) == INSN_REPEAT);
    CHECK(CLASS(0xa4) == INSN_LINEAR);
}

static void everything_else_goes_on(void)
{
    CHECK(CLASS(0x90) == INSN_LINEAR);
    CHECK(CLASS(0x0f, 0x0b) == INSN_LINEAR); /* UD2 */
    CHECK(CLASS(0xf3, 0x0f, 0x1e, 0xfa) == INSN_LINEAR); /* ENDBR64 */
    CHECK(CLASS(0xff, 0xc0) == INSN_LINEAR); /* INC */
    CHECK(CLASS(0xff, 0x30) == INSN_LINEAR); /* PUSH */
    CHECK(CLASS(0xc5, 0xf8, 0x77) == INSN_LINEAR); /* VZEROUPPER */
    CHECK(CLASS(0x66, 0x66, 0x66) == INSN_LINEAR); /* nothing but prefixes */
}

static void no_byte_string_is_read_beyond_its_end(void)
{
    uint64_t state = 1;
    for (int round = 0; round < 200000; round++) {
        uint8_t bytes[15];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((state = state * 6364136223846793005ull + 1442695040888963407ull) >> 56);
        CHECK(classified(bytes, 1 + (size_t)(state >> 32) % sizeof bytes) <= INSN_SYSTEM);
    }
}

int main(void)
{
    direct_branches_have_a_target();
    indirect_branches_have_none();
    what_enters_the_kernel_is_not_what_only_changes_the_segment();
    strings_repeat_only_with_a_prefix();
    everything_else_goes_on();
    no_byte_string_is_read_beyond_its_end();
    return 0;
}

/* Packets byte by byte as the SDM draws them (volume 3, "Intel Processor Trace", packet definitions). */
#include "../packet_writer.h"
#include "check.h"

#include <string.h>

static const struct pt_config plain = {.psb_bytes = 2048, .ctc_num = 100, .ctc_den = 1, .bus_ratio = 25};
static uint8_t memory[4096];
static struct pt_writer writer;

static void begin(const struct pt_config *config)
{
    memset(memory, 0xee, sizeof memory);
    pt_begin(&writer, config, memory, sizeof memory);
}

#define WROTE(...)                                                                               \
    CHECK((size_t)(writer.at - memory) == sizeof((const uint8_t[]){__VA_ARGS__}) &&                 \
          !memcmp(memory, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})))

static void branches(const char *bits)
{
    for (; *bits; bits++)
        if (pt_tnt(&writer, *bits == '1'))
            pt_flush_tnt(&writer, 0);
}

static void a_tnt_packet_holds_its_bits_below_the_stop_bit_the_oldest_first(void)
{
    begin(&plain);
    branches("101");
    pt_flush_tnt(&writer, 0);
    WROTE(0x1a);
    begin(&plain);
    branches("110000");
    WROTE(0xe0);
}

static void a_long_tnt_packet_holds_up_to_47_bits(void)
{
    struct pt_config config = plain;
    config.long_tnt = true;
    begin(&config);
    branches("11111111111111111111111111111111111111111111111");
    WROTE(0x02, 0xa3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff);
    begin(&config);
    branches("1000000000000"); /* 13: one long packet is shorter than three short ones need */
    pt_flush_tnt(&writer, 0);
    WROTE(0x02, 0xa3, 0x00, 0x30, 0x00, 0x00, 0x00, 0x00);
    begin(&config);
    branches("1111110");
    pt_flush_tnt(&writer, 0);
    WROTE(0xfe, 0x04);
}

static void a_target_needs_as_many_bytes_as_differ_from_the_last(void)
{
    begin(&plain);
    pt_tip(&writer, 0, 0x401122);
    pt_tip(&writer, 0, 0x403344);
    pt_tip(&writer, 0, 0x503344);
    pt_tip(&writer, 0, 0x7fff12345678);
    pt_fup(&writer, 0, 0xffffffffff600000);
    pt_tip(&writer, 0, 0x8000ff600000); /* not sign-extended, upper bytes differ */
    WROTE(0x4d, 0x22, 0x11, 0x40, 0x00, /* 4 bytes */
          0x2d, 0x44, 0x33, /* 2 */
          0x4d, 0x44, 0x33, 0x50, 0x00, /* 4 */
          0x6d, 0x78, 0x56, 0x34, 0x12, 0xff, 0x7f, /* 6, sign extended */
          0x7d, 0x00, 0x00, 0x60, 0xff, 0xff, 0xff, /* 6 */
          0xcd, 0x00, 0x00, 0x60, 0xff, 0x00, 0x80, 0x00, 0x00 /* 8 */);
}

static void the_address_space_is_told_by_pip_and_again_by_every_psb(void)
{
    begin(&plain);
    branches("1");
    pt_pip(&writer, 0, 0x123456000);
    WROTE(0x06, 0x02, 0x43, 0x00, 0x56, 0x34, 0x12, 0x00, 0x00);
    begin(&plain);
    pt_pip(&writer, 0, 0x123456000);
    pt_psb(&writer, 0, false, 0);
    CHECK(!memcmp(memory + 8 + 16, (const uint8_t[]){0x02, 0x43, 0x00, 0x56, 0x34, 0x12, 0x00, 0x00}, 8));
}

static void pending_bits_go_before_every_other_packet(void)
{
    begin(&plain);
    branches("1");
    pt_tip_pgd(&writer, 0);
    pt_tip_pge(&writer, 0, 0x1234);
    WROTE(0x06, 0x01, 0x31, 0x34, 0x12);
}

static void psb_begins_afresh(void)
{
    struct pt_config config = plain;
    config.tsc = config.mtc = true;
    config.mtc_shift = 3;
    begin(&config);
    CHECK(pt_psb_due(&writer));
    pt_psb(&writer, 0x123456789, true, 0x401000);
    WROTE(0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
          0x19, 0x89, 0x67, 0x45, 0x23, 0x01, 0x00, 0x00, /* TSC */
          0x02, 0x73, 0x6f, 0xa7, 0x00, 0x2d, 0x00, /* TMA: tick 0x2e9a76f, 45 past it */
          0x02, 0x03, 0x19, 0x00, /* CBR */
          0x99, 0x01, /* MODE.Exec: 64 bit */
          0x5d, 0x00, 0x10, 0x40, 0x00, /* FUP */
          0x02, 0x23);
    CHECK(!pt_psb_due(&writer));
}

static void mtc_and_cyc_tell_the_time(void)
{
    struct pt_config config = plain;
    config.tsc = config.mtc = config.cyc = true;
    config.mtc_shift = 3;
    begin(&config);
    pt_psb(&writer, 80000, false, 0);
    const uint8_t *from = writer.at;
    pt_tip(&writer, 80000 + 800 + 3, 0x1000);
    static const uint8_t expected[] = {
        0x07, 0x32, /* CYC 800: 800 & 31 = 0, then 25 << 1 */
        0x59, 0x65, /* MTC: tick 808 >> 3 */
        0x1b, /* CYC 3 */
        0x2d, 0x00, 0x10,
    };
    CHECK((size_t)(writer.at - from) == sizeof expected && !memcmp(from, expected, sizeof expected));
}

static void a_long_sleep_is_one_tsc(void)
{
    struct pt_config config = plain;
    config.tsc = config.mtc = true;
    config.mtc_shift = 3;
    begin(&config);
    pt_psb(&writer, 80000, false, 0);
    const uint8_t *from = writer.at;
    pt_time(&writer, 80000000);
    CHECK(writer.at - from == 8 + 7 && from[0] == 0x19);
}

static void an_overflow_drops_what_was_pending_and_the_next_ip_is_whole(void)
{
    begin(&plain);
    branches("111");
    pt_overflow(&writer, 0);
    pt_fup(&writer, 0, 0x1000);
    pt_tip(&writer, 0, 0x1002);
    WROTE(0x02, 0xf3, 0x7d, 0x00, 0x10, 0, 0, 0, 0, 0x2d, 0x02, 0x10);
}

/* Whatever is written, a check of the room before each group keeps it inside: the sanitizer watches the heap. */
static void no_group_outgrows_the_room_that_was_checked(void)
{
    uint64_t state = 7;
    for (unsigned round = 0; round < 400; round++) {
        struct pt_config config = plain;
        config.tsc = round & 1, config.mtc = round & 2, config.cyc = round & 4, config.long_tnt = round & 8;
        config.mtc_shift = round % 5;
        size_t size = PT_GROUP_BYTES + round * 7;
        uint8_t *heap = malloc(size);
        uint64_t tsc = 1;
        pt_begin(&writer, &config, heap, size);
        while (pt_room(&writer)) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            tsc += state >> (40 + state % 20);
            unsigned bits = (unsigned)(state >> 50) % 47;
            for (unsigned i = 0; i < bits; i++)
                if (pt_tnt(&writer, i & 1))
                    break;
            switch (state >> 60 & 3) {
            case 0: pt_psb(&writer, tsc, true, state); break;
            case 1: pt_tip(&writer, tsc, state); break;
            case 2: pt_fup(&writer, tsc, state), pt_tip_pgd(&writer, tsc); break;
            default: pt_flush_tnt(&writer, tsc);
            }
            CHECK(writer.at <= writer.limit);
        }
        free(heap);
    }
}

int main(void)
{
    a_tnt_packet_holds_its_bits_below_the_stop_bit_the_oldest_first();
    a_long_tnt_packet_holds_up_to_47_bits();
    a_target_needs_as_many_bytes_as_differ_from_the_last();
    the_address_space_is_told_by_pip_and_again_by_every_psb();
    pending_bits_go_before_every_other_packet();
    psb_begins_afresh();
    mtc_and_cyc_tell_the_time();
    a_long_sleep_is_one_tsc();
    an_overflow_drops_what_was_pending_and_the_next_ip_is_whole();
    no_group_outgrows_the_room_that_was_checked();
    return 0;
}

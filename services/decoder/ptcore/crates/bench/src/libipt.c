/* libipt as its users drive it: a section cache that stays mapped, so that blocks stay cached from run to run. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <intel-pt.h>

struct peer {
    struct pt_config config;
    struct pt_image_section_cache *cache;
    struct pt_image *image;
};

struct peer_counts {
    uint64_t packets, instructions, blocks, errors;
};

double peer_cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double peer_all_cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void peer_free(struct peer *peer)
{
    pt_image_free(peer->image);
    pt_iscache_free(peer->cache);
    free(peer);
}

struct peer *peer_new(const uint8_t *stream, size_t size, const uint32_t *cpu, const uint32_t *clocks)
{
    struct peer *peer = calloc(1, sizeof(*peer));

    if (!peer)
        return NULL;
    pt_config_init(&peer->config);
    peer->config.begin = (uint8_t *)stream;
    peer->config.end = (uint8_t *)stream + size;
    peer->config.cpu = (struct pt_cpu){pcv_intel, (uint16_t)cpu[0], (uint8_t)cpu[1], (uint8_t)cpu[2]};
    peer->config.mtc_freq = (uint8_t)clocks[0];
    peer->config.cpuid_0x15_ebx = clocks[1];
    peer->config.cpuid_0x15_eax = clocks[2];
    peer->config.nom_freq = (uint8_t)clocks[3];
    peer->cache = pt_iscache_alloc("bench");
    peer->image = pt_image_alloc("bench");
    if (!peer->cache || !peer->image || pt_cpu_errata(&peer->config.errata, &peer->config.cpu) < 0 ||
        pt_iscache_set_limit(peer->cache, 1ull << 32) < 0) {
        peer_free(peer);
        return NULL;
    }
    return peer;
}

int peer_add(struct peer *peer, const char *path, uint64_t offset, uint64_t size, uint64_t address)
{
    int section = pt_iscache_add_file(peer->cache, path, offset, size, address);

    return section < 0 ? section : pt_image_add_cached(peer->image, peer->cache, section, NULL);
}

struct peer_counts peer_packets(const struct peer *peer)
{
    struct peer_counts counts = {0};
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(&peer->config);

    while (decoder && pt_pkt_sync_forward(decoder) >= 0) {
        struct pt_packet packet;

        while (pt_pkt_next(decoder, &packet, sizeof(packet)) > 0)
            counts.packets++;
    }
    pt_pkt_free_decoder(decoder);
    return counts;
}

/* The end flag alone is not the end: direct branches go on until packets are needed (intel-pt.h, pt_blk_next). */
static int walk(struct pt_block_decoder *decoder, int status, struct peer_counts *counts)
{
    for (;;) {
        struct pt_block block;

        while (status & pts_event_pending) {
            struct pt_event event;

            status = pt_blk_event(decoder, &event, sizeof(event));
            if (status < 0)
                return status;
        }
        block.ninsn = 0;
        status = pt_blk_next(decoder, &block, sizeof(block));
        counts->instructions += block.ninsn;
        counts->blocks++;
        if (status < 0)
            return status;
    }
}

struct peer_counts peer_blocks(const struct peer *peer)
{
    struct peer_counts counts = {0};
    struct pt_block_decoder *decoder = pt_blk_alloc_decoder(&peer->config);
    int status;

    if (decoder && pt_blk_set_image(decoder, peer->image) < 0)
        counts.errors++;
    while (decoder && (status = pt_blk_sync_forward(decoder)) >= 0)
        counts.errors += walk(decoder, status, &counts) != -pte_eos;
    pt_blk_free_decoder(decoder);
    return counts;
}

/* Writes Processor Trace packets (Intel SDM volume 3, "Intel Processor Trace", packet definitions). Knows no QEMU. */
#ifndef PACKET_WRITER_H
#define PACKET_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the model's CPUID and RTIT_CTL say. */
struct pt_config {
    bool tsc, mtc, cyc, long_tnt;
    uint32_t psb_bytes;   /* distance of PSBs */
    uint32_t mtc_shift;   /* MTCFreq */
    uint32_t ctc_num, ctc_den;
    uint8_t bus_ratio;
};

struct pt_writer {
    const struct pt_config *config;
    uint8_t *begin, *at, *limit;
    uint64_t last_ip;
    bool absolute; /* the next IP tells all its bytes */
    uint64_t tnt; /* pending bits, the oldest highest */
    unsigned tnt_count;
    uint64_t cyc_tsc;  /* core clock at the last CYC */
    uint64_t mtc_tick; /* crystal clock >> mtc_shift at the last MTC */
    uint64_t now;      /* of the last timed packet */
    uint8_t *next_psb;
    uint64_t cr3; /* what a PSB+ says, 0: nothing */
    bool code32;  /* what MODE.Exec said last */
    bool full;
};

/* No group of packets written between two checks of the room is longer. */
#define PT_GROUP_BYTES 512

void pt_begin(struct pt_writer *w, const struct pt_config *config, uint8_t *buffer, size_t size);
/* False, and full from then on, when a group might not fit: the region's STOP bit. */
bool pt_room(struct pt_writer *w);

void pt_flush_tnt(struct pt_writer *w, uint64_t tsc);
void pt_psb(struct pt_writer *w, uint64_t tsc, bool enabled, uint64_t ip);
/* What goes before any packet at this time: a packet written next stands at `at`. */
void pt_align(struct pt_writer *w, uint64_t tsc);
void pt_tip(struct pt_writer *w, uint64_t tsc, uint64_t ip);
void pt_tip_pge(struct pt_writer *w, uint64_t tsc, uint64_t ip);
void pt_tip_pgd(struct pt_writer *w, uint64_t tsc);
void pt_fup(struct pt_writer *w, uint64_t tsc, uint64_t ip);
void pt_mode_exec(struct pt_writer *w, uint64_t tsc, bool code32);
/* The address space from here on: the kernel is traced. */
void pt_pip(struct pt_writer *w, uint64_t tsc, uint64_t cr3);
void pt_overflow(struct pt_writer *w, uint64_t tsc);
/* MTC for each period that passed; after a long sleep TSC and TMA instead of thousands of them. */
void pt_time(struct pt_writer *w, uint64_t tsc);

static inline bool pt_psb_due(const struct pt_writer *w) { return w->at >= w->next_psb; }

/* Adds one branch; true when the pending bits should be written now. */
static inline bool pt_tnt(struct pt_writer *w, unsigned taken)
{
    w->tnt = w->tnt << 1 | taken;
    return ++w->tnt_count >= (w->config->long_tnt ? 47u : 6u);
}

#endif

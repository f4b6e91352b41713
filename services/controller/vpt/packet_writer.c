#include "packet_writer.h"

#include <string.h>

enum {
    OPC_TIP = 0x0d,
    OPC_TIP_PGE = 0x11,
    OPC_TIP_PGD = 0x01,
    OPC_FUP = 0x1d,
    OPC_TSC = 0x19,
    OPC_MTC = 0x59,
    OPC_MODE = 0x99,
    EXT = 0x02,
    EXT_TNT64 = 0xa3,
    EXT_PSB = 0x82,
    EXT_PSBEND = 0x23,
    EXT_TMA = 0x73,
    EXT_CBR = 0x03,
    EXT_OVF = 0xf3,
    EXT_PIP = 0x43,
};

/* More MTCs than this in a row say less than one TSC. */
#define MTC_BURST 16

void pt_begin(struct pt_writer *w, const struct pt_config *config, uint8_t *buffer, size_t size)
{
    memset(w, 0, sizeof *w);
    w->config = config;
    w->begin = w->at = w->next_psb = buffer;
    w->limit = buffer + size;
}

bool pt_room(struct pt_writer *w)
{
    w->full |= (size_t)(w->limit - w->at) < PT_GROUP_BYTES;
    return !w->full;
}

static void put(struct pt_writer *w, uint64_t value, unsigned bytes)
{
    memcpy(w->at, &value, bytes);
    w->at += bytes;
}

static uint64_t crystal(const struct pt_writer *w, uint64_t tsc) { return tsc * w->config->ctc_den / w->config->ctc_num; }

/* CYC: 5 bits with the opcode, then 7 a byte; bit 2 of the first and bit 0 of the others say that more follow. */
static void cyc(struct pt_writer *w, uint64_t tsc)
{
    if (!w->config->cyc || tsc <= w->cyc_tsc)
        return;
    uint64_t count = tsc - w->cyc_tsc;
    w->cyc_tsc = tsc;
    uint64_t rest = count >> 5;
    put(w, 0x3 | (rest ? 1 << 2 : 0) | (count & 0x1f) << 3, 1);
    for (; rest; rest >>= 7)
        put(w, (rest & 0x7f) << 1 | (rest >> 7 ? 1 : 0), 1);
}

/* TSC and TMA: the crystal clock and how far the TSC is past its last edge. */
static void tsc_tma(struct pt_writer *w, uint64_t tsc)
{
    uint64_t edge = crystal(w, tsc);
    w->now = tsc;
    w->cyc_tsc = tsc;
    w->mtc_tick = edge >> w->config->mtc_shift;
    if (!w->config->tsc)
        return;
    put(w, OPC_TSC, 1);
    put(w, tsc, 7);
    if (!w->config->mtc)
        return;
    uint64_t fast = tsc - edge * w->config->ctc_num / w->config->ctc_den;
    put(w, EXT | EXT_TMA << 8, 2);
    put(w, edge, 2);
    put(w, 0, 1);
    put(w, fast & 0x1ff, 2);
}

void pt_time(struct pt_writer *w, uint64_t tsc)
{
    if (tsc <= w->now)
        return;
    if (w->config->mtc) {
        uint64_t tick = crystal(w, tsc) >> w->config->mtc_shift;
        uint64_t passed = tick - w->mtc_tick;
        if (passed > MTC_BURST && w->config->tsc) {
            tsc_tma(w, tsc);
            return;
        }
        for (; passed && passed <= MTC_BURST; passed--) {
            uint64_t due = ++w->mtc_tick;
            uint64_t at = (due << w->config->mtc_shift) * w->config->ctc_num / w->config->ctc_den;
            cyc(w, at);
            put(w, OPC_MTC | (due & 0xff) << 8, 2);
        }
        w->mtc_tick = tick;
    }
    w->now = tsc;
}

static void timed(struct pt_writer *w, uint64_t tsc)
{
    pt_time(w, tsc);
    cyc(w, tsc);
}

/* The shortest form that gives `ip` from the last IP (SDM: IPBytes 1, 2, 4, 3, 6). */
static void ip_packet(struct pt_writer *w, uint8_t opcode, uint64_t ip)
{
    uint64_t changed = w->absolute ? UINT64_MAX : ip ^ w->last_ip;
    w->last_ip = ip;
    w->absolute = false;
    if (!(changed >> 16)) {
        put(w, opcode | 1 << 5, 1);
        put(w, ip, 2);
    } else if (!(changed >> 32)) {
        put(w, opcode | 2 << 5, 1);
        put(w, ip, 4);
    } else if ((uint64_t)((int64_t)(ip << 16) >> 16) == ip) {
        put(w, opcode | 3 << 5, 1);
        put(w, ip, 6);
    } else if (!(changed >> 48)) {
        put(w, opcode | 4 << 5, 1);
        put(w, ip, 6);
    } else {
        put(w, opcode | 6 << 5, 1);
        put(w, ip, 8);
    }
}

void pt_flush_tnt(struct pt_writer *w, uint64_t tsc)
{
    if (!w->tnt_count)
        return;
    timed(w, tsc);
    if (w->tnt_count > 12) {
        put(w, EXT | EXT_TNT64 << 8, 2);
        put(w, (1ull << w->tnt_count) | w->tnt, 6);
        w->tnt_count = 0;
    }
    while (w->tnt_count) {
        unsigned now = w->tnt_count > 6 ? 6 : w->tnt_count;
        w->tnt_count -= now;
        uint64_t bits = w->tnt >> w->tnt_count & ((1u << now) - 1);
        put(w, (1u << now | bits) << 1, 1);
    }
    w->tnt = 0;
}

void pt_align(struct pt_writer *w, uint64_t tsc)
{
    pt_flush_tnt(w, tsc);
    timed(w, tsc);
}

/* CR3[51:5] from bit 1 on; bit 0 is that of guests. */
static void pip(struct pt_writer *w)
{
    put(w, EXT | EXT_PIP << 8, 2);
    put(w, w->cr3 >> 5 << 1, 6);
}

void pt_pip(struct pt_writer *w, uint64_t tsc, uint64_t cr3)
{
    pt_align(w, tsc);
    w->cr3 = cr3;
    pip(w);
}

/* CS.D, or CS.L */
static void mode_exec(struct pt_writer *w) { put(w, OPC_MODE | (w->code32 ? 0x02 : 0x01) << 8, 2); }

void pt_mode_exec(struct pt_writer *w, uint64_t tsc, bool code32)
{
    pt_align(w, tsc);
    w->code32 = code32;
    mode_exec(w);
}

void pt_psb(struct pt_writer *w, uint64_t tsc, bool enabled, uint64_t ip)
{
    pt_flush_tnt(w, tsc);
    if (w->now)
        timed(w, tsc);
    w->next_psb = w->at + w->config->psb_bytes;
    for (int i = 0; i < 8; i++)
        put(w, EXT | EXT_PSB << 8, 2);
    w->last_ip = 0;
    w->absolute = false;
    tsc_tma(w, tsc);
    if (w->cr3)
        pip(w);
    put(w, EXT | EXT_CBR << 8, 2);
    put(w, w->config->bus_ratio, 2);
    if (enabled) {
        mode_exec(w);
        ip_packet(w, OPC_FUP, ip);
    }
    put(w, EXT | EXT_PSBEND << 8, 2);
}

static void branch_packet(struct pt_writer *w, uint8_t opcode, uint64_t tsc, uint64_t ip)
{
    pt_align(w, tsc);
    ip_packet(w, opcode, ip);
}

void pt_tip(struct pt_writer *w, uint64_t tsc, uint64_t ip) { branch_packet(w, OPC_TIP, tsc, ip); }
void pt_tip_pge(struct pt_writer *w, uint64_t tsc, uint64_t ip) { branch_packet(w, OPC_TIP_PGE, tsc, ip); }
void pt_fup(struct pt_writer *w, uint64_t tsc, uint64_t ip) { branch_packet(w, OPC_FUP, tsc, ip); }

/* The IP is suppressed: the target is in ring 0, which is not traced (IPBytes 0). */
void pt_tip_pgd(struct pt_writer *w, uint64_t tsc)
{
    pt_align(w, tsc);
    put(w, OPC_TIP_PGD, 1);
}

void pt_overflow(struct pt_writer *w, uint64_t tsc)
{
    w->tnt = w->tnt_count = 0;
    /* Whether a decoder forgets the last IP here is not specified: libipt does. */
    w->absolute = true;
    put(w, EXT | EXT_OVF << 8, 2);
    tsc_tma(w, tsc);
}

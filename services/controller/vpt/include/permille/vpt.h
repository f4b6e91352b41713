/*
 * The memory that a recordable process shares with the controller.
 *
 * <dir>/<pid>/control           struct vpt_control
 * <dir>/<pid>/stream-<n>.pt     struct vpt_stream, then the packets of one thread from VPT_PAGE on
 * <dir>/<pid>/sideband.bin      struct vpt_record, each followed by its body
 * <dir>/<pid>/truth-<n>.bin     truth mode: u32 entries, see VPT_TRUTH_*
 * <dir>/<pid>/truth-stack-<n>.bin  truth mode: a u64 for each block in truth-<n>.bin, the stack pointer as it began
 * <dir>/<pid>/truth-blocks.bin  truth mode: u32 id, u32 count | VPT_TRUTH_REPEATS, then count u64 addresses
 *
 * Everything is little-endian. permille.controller.domain.vpt_layout mirrors this file; a test holds the two together.
 */
#ifndef PERMILLE_VPT_H
#define PERMILLE_VPT_H

#include <stdint.h>

#define VPT_MAGIC 0x7470766c6d726570ull /* "permlvpt" */
#define VPT_VERSION 2
#define VPT_PAGE 4096
#define VPT_MAX_STREAMS 1024

enum vpt_state {
    VPT_IDLE = 0,     /* nothing wanted */
    VPT_CLAIMED = 1,  /* a controller is writing the configuration */
    VPT_ARMED = 2,    /* the process should begin */
    VPT_ACTIVE = 3,   /* recording, until its own timer ends it */
    VPT_FINISHED = 4, /* everything is written and stays as it is until the controller releases it */
    VPT_REFUSED = 5,  /* the process could not begin: see error */
};

enum vpt_stop {
    VPT_STOP_NONE = 0,
    VPT_STOP_PERIOD = 1,
    VPT_STOP_REQUEST = 2,
};

enum vpt_flags {
    VPT_TSC = 1 << 0,      /* TSCEn: TSC and TMA packets */
    VPT_MTC = 1 << 1,      /* MTCEn */
    VPT_CYC = 1 << 2,      /* CYCEn */
    VPT_DISRETC = 1 << 3,  /* no return compression */
    VPT_LONG_TNT = 1 << 4, /* collect up to 47 bits */
    VPT_TRUTH = 1 << 5,    /* also log every executed block */
    VPT_FOLLOW = 1 << 6,   /* children join the session */
    VPT_BRANCH = 1 << 7,   /* BranchEn: off leaves only timing and enable packets */
};

struct vpt_anchor {
    uint64_t tsc;
    uint64_t realtime_ns; /* CLOCK_REALTIME */
    uint64_t monotonic_ns;
};

struct vpt_planned {
    uint32_t tid; /* 0: for a thread born later */
    uint32_t reserved;
    uint64_t size_bytes;
};

struct vpt_control {
    uint64_t magic;
    uint32_t version;
    uint32_t pid;
    uint64_t process_start; /* field 22 of /proc/<pid>/stat */
    uint32_t state;         /* enum vpt_state; a futex word */
    uint32_t stop_request;  /* nonzero: end now */
    uint32_t stop_reason;   /* enum vpt_stop */
    uint32_t parent_pid;    /* the recorded process that this one was forked from, or 0 */

    /* The PT model: what CPUID would say. */
    uint32_t family, model, stepping;
    uint32_t tsc_ctc_num, tsc_ctc_den; /* CPUID.15H:EBX, EAX */
    uint32_t nominal_ratio;            /* MSR_PLATFORM_INFO[15:8] */

    /* Session: written by the controller in VPT_CLAIMED. */
    char session[64];
    uint64_t period_ns; /* besides what it takes to translate the program anew, 0.2 s at most */
    uint32_t flags;
    uint32_t psb_freq; /* PSB every 2^(11 + psb_freq) bytes */
    uint32_t mtc_freq; /* MTC every 2^mtc_freq crystal clocks */
    uint32_t planned_count;
    uint64_t bandwidth_bytes_per_ms; /* 0: unlimited; else the output port's, beyond it OVF */

    /* Results: written by the process. */
    struct vpt_anchor begin, end;
    uint32_t streams;          /* how many stream files exist */
    uint32_t epoch;            /* mapping and code changes so far */
    uint64_t sideband_bytes;
    uint64_t unbuffered_blocks; /* executed by threads that got no stream */
    uint32_t unbuffered_threads;
    uint32_t unexplained;     /* discontinuities without a signal frame */
    uint32_t revoked_threads; /* stood still inside the recorder at the end: their last packets are missing */
    uint32_t reserved;
    char error[256];

    struct vpt_planned planned[VPT_MAX_STREAMS];
};

struct vpt_stream {
    uint64_t magic;
    uint32_t version;
    uint32_t index;
    uint32_t tid; /* 0: nobody took it */
    uint32_t full;
    uint64_t size_bytes; /* room for packets */
    uint64_t written_bytes;
    uint64_t blocks;      /* executed while there was room */
    uint64_t lost_blocks; /* executed without room, or in an overflow */
    uint64_t first_tsc, last_tsc;
    uint32_t overflows;
    uint32_t in_user; /* between TIP.PGE and TIP.PGD */
    char name[16];
};

enum vpt_record_kind {
    VPT_MAP = 1,   /* struct vpt_map, then the path */
    VPT_UNMAP = 2, /* struct vpt_map */
    VPT_CODE = 3,  /* struct vpt_map, then the bytes */
    VPT_MARK = 4,  /* struct vpt_mark */
};

struct vpt_record {
    uint32_t kind;
    uint32_t size; /* of the body */
    uint64_t tsc;
};

struct vpt_map {
    uint32_t epoch;
    uint32_t build_id_size;
    uint64_t address, size_bytes, offset;
    uint8_t build_id[32];
};

/* From the packet at this offset on the thread ran with the image as of this epoch. */
struct vpt_mark {
    uint32_t stream;
    uint32_t epoch;
    uint64_t offset;
};

/*
 * Truth entries: a block id (the block ran), or VPT_TRUTH_TRIM followed by a u64 address: of the block before, only the
 * instructions before that address ran, or VPT_TRUTH_GAP: what ran here is in neither log (OVF). A block that begins with
 * the last instruction of the block before, where that one repeats (REP) and was not trimmed, is that same instruction
 * going on: trimmed away again, the instruction is.
 */
#define VPT_TRUTH_TRIM 0xffffffffu
#define VPT_TRUTH_GAP 0xfffffffeu
#define VPT_TRUTH_REPEATS 0x80000000u

#endif

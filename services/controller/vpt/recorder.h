/* The recorder's state, and what its parts offer each other. One process has one recorder. */
#ifndef RECORDER_H
#define RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <x86intrin.h>

#include "insn_class.h"
#include "packet_writer.h"
#include "permille/vpt.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define MAX_VCPUS 4096
#define RETURN_DEPTH 64 /* the depth of the processor's own stack for return compression */

/* One translated block: what the next block's address says about how this one ended. */
struct block {
    uint64_t start, last, end, target;
    uint32_t epoch; /* the image it was translated from */
    uint32_t id;    /* truth mode */
    uint8_t class;  /* enum insn_class of the last instruction */
};

/* One guest thread. Only that thread writes, except `outside`, which the recorder's own thread reads. */
struct thread {
    const struct block *previous; /* 0: outside user mode */
    bool recording;               /* has a stream with room */
    bool branches;                /* BranchEn */
    bool compress;                /* return compression */
    _Atomic bool outside;         /* in a system call, or ended: writes nothing before it looks at recorder.active */
    uint32_t session;             /* recorder.session when it asked for a stream */
    uint32_t epoch;
    uint64_t frame; /* the signal frame just entered */
    struct vpt_stream *stream;
    struct pt_writer writer;
    uint64_t returns[RETURN_DEPTH];
    unsigned top, depth;
    FILE *truth;
};

struct recorder {
    struct vpt_control *control;
    char folder[256];
    _Atomic bool active; /* threads write packets */
    _Atomic bool wanted; /* blocks should be instrumented */
    _Atomic uint32_t session;
    struct pt_config config;
    struct thread *_Atomic threads[MAX_VCPUS];
    uint64_t guest_base;
    uint64_t tsc_hz;
};

extern struct recorder recorder;

/* control.c: the shared page and the recorder's own thread */
bool control_open(const char *folder, uint32_t parent);
void control_start_thread(void);
void control_after_fork(void);
void control_exit(void);

/* streams.c: the pool of streams of a session */
bool streams_create(char *error, size_t size);
void streams_take(struct thread *thread);
void streams_settle(struct thread *thread);
void streams_remove(void);

/* image.c: what is mapped and which bytes were there when they were translated */
void image_reset(void);
void image_unmapped(uint64_t address, uint64_t size);
/* The epoch from which on the image has these bytes; writes a record when it did not have them. */
uint32_t image_translated(uint64_t address, const uint8_t *bytes, size_t size);

/* build_id.c: the size of the GNU build id of an ELF file, or 0 */
size_t build_id_of(int file, uint8_t id[32]);

/* sideband.c */
bool sideband_open(char *error, size_t size);
void sideband_write(uint32_t kind, const void *head, size_t head_size, const void *tail, size_t tail_size);
void sideband_close(void);

/* flow.c: blocks to packets */
void flow_block(struct thread *thread, const struct block *block, const uint64_t *registers);
void flow_leave(struct thread *thread);

/* truth.c */
void truth_create(void);
uint32_t truth_define(const uint64_t *addresses, uint32_t count, bool repeats);
void truth_open(struct thread *thread);
void truth_block(struct thread *thread, uint32_t id);
void truth_trim(struct thread *thread, uint64_t address);
void truth_close(struct thread *thread);

#endif

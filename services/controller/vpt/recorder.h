/* The recorder's state, and what its parts offer each other. One process has one recorder. */
#ifndef RECORDER_H
#define RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <x86intrin.h>

#include "block.h"
#include "packet_writer.h"
#include "permille/vpt.h"
#include "way.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define MAX_VCPUS 4096

/* CPUX86State begins with the general registers in the order of their encoding, then RIP. */
enum guest_register { RDX = 2, RSP = 4, RSI = 6, RDI = 7, RIP = 16 };

/* One guest thread. Only that thread touches it while `busy`; see thread_enter. */
struct thread {
    _Atomic bool busy;
    _Atomic bool alive;
    const struct block *previous; /* 0: outside user mode */
    bool recording;               /* has a stream with room */
    bool branches;                /* BranchEn */
    bool compress;                /* return compression */
    bool throttled;               /* beyond the bandwidth: nothing is written until the window is over */
    uint64_t window_end;          /* TSC */
    uint8_t *window_from;         /* where the packets of this window begin */
    uint32_t tid;                 /* since it first asked for a stream */
    uint32_t session;             /* recorder.session when it asked for a stream */
    uint32_t epoch;
    uint32_t next_epoch; /* the block about to be told needs it */
    uint64_t frame; /* the signal frame entered last */
    struct vpt_stream *stream;
    uint32_t stream_index;
    struct pt_writer writer;
    struct returns returns;
    FILE *truth, *stacks;
};

struct recorder {
    struct vpt_control *control;
    char folder[256];
    _Atomic uint32_t session;      /* the number of the session to record, 0: none */
    _Atomic uint32_t instrumented; /* the session for which the guest's blocks call us, 0: they do not */
    struct pt_config config;
    uint64_t window_bytes, window_ticks; /* the output port's bandwidth: bytes per ms; 0: unlimited */
    struct thread *_Atomic threads[MAX_VCPUS];
    uint64_t tsc_hz;
};

extern struct recorder recorder;

/*
 * The session that the thread may write into, or 0; thread_exit must follow in any case. The recorder's own thread ends a session by
 * `session = 0`, a memory barrier in all threads (membarrier), and then, for each thread, `busy` being false: from then
 * on that thread finds no session. So two plain stores are all that a block pays.
 */
static inline uint32_t thread_enter(struct thread *thread)
{
    atomic_store_explicit(&thread->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    uint32_t session = atomic_load_explicit(&recorder.session, memory_order_acquire);
    return likely(session == atomic_load_explicit(&recorder.instrumented, memory_order_relaxed)) ? session : 0;
}

static inline void thread_exit(struct thread *thread)
{
    atomic_store_explicit(&thread->busy, false, memory_order_release);
}

/* control.c: the shared page and the recorder's own thread */
bool control_open(const char *folder, uint32_t parent);
void control_start_thread(void);
void control_before_fork(void);
void control_after_fork_in_parent(void);
void control_after_fork_in_child(void);
void control_exit(void);

/* settle.c: from then on no thread writes into the session */
void settle_threads(uint32_t session);

/* switching.c: puts the callbacks into the guest's blocks and takes them out */
typedef void (*switching_register)(uint64_t plugin, bool blocks);
void switching_install(uint64_t plugin, switching_register register_callbacks);
/* Called by a guest thread between two instructions: makes the blocks what the session wants. */
void switching_follow(void);
/* Called by any other thread: has the guest's threads call switching_follow soon. */
void switching_push(void);
/* Whether the program has begun to run, which is when it is known whether blocks can be instrumented here. */
bool switching_known(void);
/* Why blocks cannot be instrumented here, or NULL. */
const char *switching_unsound(void);
void switching_probe(const struct block *block, const uint64_t *registers);

/* blocks.c: the memory of translated blocks */
struct block *blocks_new(void);
/* How many so far; it begins anew at 2^32. */
uint32_t blocks_translated(void);
void blocks_free(void);

/* signals.c: what the guest's signal handlers are, and whether one was just entered */
struct interruption {
    uint64_t ip;
    uint64_t frame;
    int number;
    bool fault; /* the instruction at ip raised it and did not retire */
};
void signals_action(uint64_t number, uint64_t action);
/* `sure`: the block must be the handler that the guest installed. */
bool signals_entered(const struct block *block, const uint64_t *registers, bool sure, struct interruption *out);
/* Whether the code at out->ip was itself a handler about to be entered; if so, what that one interrupted. */
bool signals_below(struct interruption *out);

/* streams.c: the pool of streams of a session */
bool streams_create(char *error, size_t size);
void streams_take(struct thread *thread, uint32_t session);
void streams_settle(struct thread *thread);
/* The thread did not come out of a callback: what it still writes goes nowhere. */
void streams_revoke(struct thread *thread);
bool streams_revoked(void);
void streams_adopt(uint32_t count);
void streams_remove(void);
void streams_forget(void);
void streams_lock(void);
void streams_unlock(void);

/* image.c: what is mapped and which bytes were there when they were translated */
bool image_reset(void);
/* What the image had there at the epoch `since` is gone; what came there later is not. */
void image_unmapped(uint64_t address, uint64_t size, uint32_t since);
/* The epoch from which on the image has these bytes; writes a record when it did not have them. */
uint32_t image_translated(uint64_t address, const uint8_t *bytes, size_t size);
uint64_t image_hash(const uint8_t *bytes, size_t size);
/* Whether the image has these bytes now. */
bool image_holds(uint64_t address, size_t size, uint64_t hash);
void image_lock(void);
void image_unlock(void);
#define IMAGE_LOST 0xffffffffu /* the epoch of code that could not be recorded */

/* build_id.c: of what begins at `base` in an open file, whether it is an ELF file, and the size of its GNU build id, or 0 */
bool is_elf(int file, uint64_t base);
size_t build_id_of(int file, uint64_t base, uint8_t id[32]);

/* sideband.c */
bool sideband_open(char *error, size_t size);
/* False when the record is not in the file. */
bool sideband_write(uint32_t kind, const void *head, size_t head_size, const void *tail, size_t tail_size);
void sideband_close(void);
void sideband_lock(void);
void sideband_unlock(void);

/* flow.c: blocks to packets */
void flow_block(struct thread *thread, uint32_t session, const struct block *block, const uint64_t *registers);
void flow_leave(struct thread *thread);

/* address_space.c: what system calls do to the image */
void address_space_call(int64_t number, const uint64_t arguments[3]);
void address_space_return(int64_t number, int64_t result);

/* exec.c: the process becomes another program */
void exec_configure(bool follow, const char *folder);
void exec_begins(int64_t number, uint64_t path, uint64_t arguments, uint64_t environment);
void exec_failed(void);
void control_before_exec(void);
void control_not_followed(void);
void control_after_failed_exec(void);

/* guest.c: where the guest's memory is */
void *guest_memory(uint64_t address);
uint64_t guest_address(uint64_t host);
void guest_saw(uint64_t address, const void *host);

/* truth.c */
/* False where a thread is stopped inside. */
bool truth_create(void);
uint32_t truth_define(const uint64_t *addresses, uint32_t count, bool repeats);
void truth_open(struct thread *thread);
void truth_remove(uint32_t stream);
void truth_block(struct thread *thread, uint32_t id, uint64_t stack);
void truth_trim(struct thread *thread, uint64_t address);
void truth_gap(struct thread *thread);
void truth_close(struct thread *thread);
void truth_forget(void);

#endif

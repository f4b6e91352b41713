/* From one block to the next: which packets tell a decoder that the thread went this way. */
#include "recorder.h"

/* CPUX86State begins with the general registers in the order of their encoding. */
enum { RDX = 2, RSP = 4, RSI = 6, RDI = 7 };

/* QEMU's x86-64 rt_sigframe: return address, ucontext, siginfo (Linux ABI). */
enum {
    FRAME_UCONTEXT = 8,
    FRAME_RIP = FRAME_UCONTEXT + 40 + 16 * 8,
    FRAME_SIGINFO = FRAME_UCONTEXT + 40 + 256 + 8,
};

struct interruption {
    uint64_t ip;
    bool synchronous; /* the instruction at ip did not retire because of itself */
};

/* Whether this is the first block of a signal handler, by the arguments that the kernel passes. */
static bool signal_frame(struct thread *t, const uint64_t *registers, struct interruption *out)
{
    uint64_t sp = registers[RSP];
    if (registers[RDX] != sp + FRAME_UCONTEXT || registers[RSI] != sp + FRAME_SIGINFO || t->frame == sp)
        return false;
    const uint8_t *frame = (const uint8_t *)(recorder.guest_base + sp);
    const int32_t *siginfo = (const int32_t *)(frame + FRAME_SIGINFO);
    out->ip = *(const uint64_t *)(frame + FRAME_RIP);
    int number = (int)registers[RDI];
    /* Without SA_SIGINFO QEMU leaves what was there before. */
    bool by_itself = siginfo[0] != number || siginfo[2] > 0;
    out->synchronous = by_itself && (number == 4 || number == 5 || number == 7 || number == 8 || number == 11);
    t->frame = sp;
    return true;
}

static void forget_returns(struct thread *t) { t->depth = 0; }

static void push_return(struct thread *t, uint64_t address)
{
    t->returns[t->top++ % RETURN_DEPTH] = address;
    if (t->depth < RETURN_DEPTH)
        t->depth++;
}

/* A mismatch empties the stack: whether a decoder pops there or not, what is left on top of its stack is ours. */
static bool pop_return(struct thread *t, uint64_t address)
{
    if (!t->compress || !t->depth)
        return false;
    if (t->returns[--t->top % RETURN_DEPTH] == address) {
        t->depth--;
        return true;
    }
    forget_returns(t);
    return false;
}

static void publish(struct thread *t, uint64_t tsc)
{
    t->stream->written_bytes = (uint64_t)(t->writer.at - t->writer.begin);
    t->stream->last_tsc = tsc;
}

static void tnt(struct thread *t, unsigned taken)
{
    if (!t->branches || likely(!pt_tnt(&t->writer, taken)) || !pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_flush_tnt(&t->writer, tsc);
    publish(t, tsc);
}

static void tip(struct thread *t, uint64_t ip)
{
    if (!t->branches || !pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_tip(&t->writer, tsc, ip);
    publish(t, tsc);
}

static void mark_epoch(struct thread *t, uint32_t epoch)
{
    t->epoch = epoch;
    struct vpt_mark mark = {t->stream->index, epoch, (uint64_t)(t->writer.at - t->writer.begin)};
    sideband_write(VPT_MARK, &mark, sizeof mark, "", 0);
}

static void enter(struct thread *t, const struct block *block)
{
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    if (pt_psb_due(&t->writer))
        pt_psb(&t->writer, tsc, false, 0);
    if (block->epoch > t->epoch)
        mark_epoch(t, block->epoch);
    pt_mode_exec64(&t->writer, tsc);
    pt_tip_pge(&t->writer, tsc, block->start);
    forget_returns(t);
    t->stream->in_user = 1;
    publish(t, tsc);
}

static void leave_at(struct thread *t, uint64_t ip)
{
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_flush_tnt(&t->writer, tsc);
    pt_fup(&t->writer, tsc, ip);
    pt_tip_pgd(&t->writer, tsc);
    t->stream->in_user = 0;
    publish(t, tsc);
}

/* System call: the address after it is in ring 0. */
void flow_leave(struct thread *t)
{
    if (!t->recording || !t->previous)
        return;
    t->previous = NULL;
    t->frame = 0;
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_tip_pgd(&t->writer, tsc);
    t->stream->in_user = 0;
    publish(t, tsc);
}

/* Writes how `previous` went on to `to`; false when it cannot have by itself. */
static bool follow(struct thread *t, const struct block *previous, uint64_t to)
{
    switch (previous->class) {
    case INSN_COND:
        if (to != previous->target && to != previous->end)
            break;
        tnt(t, to == previous->target);
        return true;
    case INSN_JUMP:
        if (to == previous->target)
            return true;
        break;
    case INSN_CALL:
        if (to != previous->target)
            break;
        if (previous->target != previous->end) /* call to the next instruction: only reads the address */
            push_return(t, previous->end);
        return true;
    case INSN_JUMP_INDIRECT:
        tip(t, to);
        return true;
    case INSN_CALL_INDIRECT:
        push_return(t, previous->end);
        tip(t, to);
        return true;
    case INSN_RETURN:
        if (pop_return(t, to))
            tnt(t, 1);
        else
            tip(t, to);
        return true;
    case INSN_REPEAT:
        if (to == previous->last)
            return true;
        /* fall through */
    default:
        if (to == previous->end)
            return true;
    }
    /* QEMU gave up the block in the middle and began again there: code that changed itself, an atomic step. */
    if (to > previous->start && to < previous->end) {
        truth_trim(t, to);
        return true;
    }
    return false;
}

static void interrupted(struct thread *t, const struct block *previous, const struct interruption *at)
{
    uint64_t ip = at->ip;
    if (at->synchronous && ip >= previous->start && ip < previous->end) {
        truth_trim(t, ip);
    } else if (previous->class == INSN_FAR) { /* int3: the instruction is where the flow ends */
        ip = previous->last;
        truth_trim(t, ip);
    } else if (!follow(t, previous, ip)) {
        recorder.control->unexplained++;
    }
    leave_at(t, ip);
}

static void lose_track(struct thread *t, uint64_t ip)
{
    recorder.control->unexplained++;
    t->stream->overflows++;
    forget_returns(t);
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_overflow(&t->writer, tsc);
    pt_fup(&t->writer, tsc, ip);
    publish(t, tsc);
}

static void synchronise(struct thread *t, uint64_t ip)
{
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_psb(&t->writer, tsc, true, ip);
    forget_returns(t);
    publish(t, tsc);
}

void flow_block(struct thread *t, const struct block *block, const uint64_t *registers)
{
    if (unlikely(!atomic_load_explicit(&recorder.active, memory_order_acquire))) {
        streams_settle(t);
        return;
    }
    if (unlikely(t->session != recorder.session))
        streams_take(t);
    if (unlikely(!t->recording)) {
        if (t->stream)
            t->stream->lost_blocks++;
        else
            recorder.control->unbuffered_blocks++;
        return;
    }
    const struct block *previous = t->previous;
    t->previous = block;
    if (unlikely(!previous)) {
        enter(t, block);
    } else {
        struct interruption at;
        bool any_target = previous->class >= INSN_JUMP_INDIRECT;
        if (unlikely(any_target && signal_frame(t, registers, &at))) {
            interrupted(t, previous, &at);
            enter(t, block);
        } else if (unlikely(!follow(t, previous, block->start))) {
            if (signal_frame(t, registers, &at)) {
                interrupted(t, previous, &at);
                enter(t, block);
            } else {
                lose_track(t, block->start);
            }
        }
        if (unlikely(block->epoch > t->epoch)) {
            leave_at(t, block->start);
            enter(t, block);
        }
        if (unlikely(pt_psb_due(&t->writer)))
            synchronise(t, block->start);
    }
    if (unlikely(t->writer.full)) {
        t->stream->full = 1;
        t->stream->lost_blocks++;
        t->recording = false;
        truth_close(t);
        return;
    }
    t->stream->blocks++;
    if (unlikely(t->truth != NULL))
        truth_block(t, block->id);
}

/* From one block to the next: which packets tell a decoder that the thread went this way. */
#include "recorder.h"

/* The output port takes so many bytes a window. */
static void spend(struct thread *t, uint64_t tsc)
{
    if (tsc >= t->window_end) {
        t->window_end = tsc + recorder.window_ticks;
        t->window_from = t->writer.at;
    } else if ((uint64_t)(t->writer.at - t->window_from) > recorder.window_bytes) {
        t->throttled = true;
    }
}

static void publish(struct thread *t, uint64_t tsc)
{
    if (unlikely(recorder.window_bytes))
        spend(t, tsc);
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

/* Where the sideband has no room for what decoding needs, recording ends. */
static void mark_epoch(struct thread *t, uint32_t epoch)
{
    t->epoch = epoch;
    struct vpt_mark mark = {t->stream->index, epoch, (uint64_t)(t->writer.at - t->writer.begin)};
    if (epoch == IMAGE_LOST || !sideband_write(VPT_MARK, &mark, sizeof mark, "", 0))
        t->writer.full = true;
}

/* A target packet may begin a new epoch: the code that it leads to is looked up behind it. */
static void tip(struct thread *t, uint64_t ip)
{
    if (!t->branches || !pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    if (unlikely(t->next_epoch > t->epoch)) {
        pt_align(&t->writer, tsc);
        mark_epoch(t, t->next_epoch);
    }
    pt_tip(&t->writer, tsc, ip);
    publish(t, tsc);
}

static void enter(struct thread *t, uint64_t ip, uint32_t epoch)
{
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    if (epoch > t->epoch)
        mark_epoch(t, epoch);
    if (t->writer.full)
        return;
    if (pt_psb_due(&t->writer))
        pt_psb(&t->writer, tsc, false, 0);
    pt_mode_exec(&t->writer, tsc, false);
    pt_tip_pge(&t->writer, tsc, ip);
    returns_forget(&t->returns);
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

/* The last instruction went to ring 0. */
static void leave(struct thread *t)
{
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_tip_pgd(&t->writer, tsc);
    t->stream->in_user = 0;
    publish(t, tsc);
}

/* System call. */
void flow_leave(struct thread *t)
{
    if (!t->recording || !t->previous)
        return;
    t->previous = NULL;
    t->frame = 0;
    if (likely(!t->throttled))
        leave(t);
}

/* Writes how `previous` went on to `to`; false when it cannot have by itself. */
static bool follow(struct thread *t, const struct block *previous, uint64_t to)
{
    /* Where a new image begins is told by a packet with an address. */
    bool compress = t->compress && t->next_epoch <= t->epoch;
    switch (way_to(&t->returns, compress, previous, to)) {
    case WAY_SILENT:
        return true;
    case WAY_NOT_TAKEN:
        tnt(t, 0);
        return true;
    case WAY_TAKEN:
        tnt(t, 1);
        return true;
    case WAY_TARGET:
        tip(t, to);
        return true;
    case WAY_AGAIN:
        truth_trim(t, to);
        return true;
    default:
        return false;
    }
}

/* What ran since the last packet, and what was pending, is lost. Tracing begins again where user mode is entered next. */
static void overflow(struct thread *t)
{
    t->stream->overflows++;
    returns_forget(&t->returns);
    truth_gap(t);
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_overflow(&t->writer, tsc);
    t->stream->in_user = 0;
    publish(t, tsc);
}

/* Nobody knows how the thread came here. */
static void lose_track(struct thread *t)
{
    recorder.control->unexplained++;
    overflow(t);
}

/* How `previous` ended when a signal came, and the end of user mode that the signal was. */
static void interrupted(struct thread *t, const struct block *previous, struct interruption at, bool sure)
{
    t->frame = at.frame;
    for (;;) {
        if (at.fault && at.ip >= previous->start && at.ip < previous->end) {
            truth_trim(t, at.ip);
            leave_at(t, at.ip);
            return;
        }
        if (previous->class == INSN_SYSTEM && at.ip == previous->end) { /* int3 */
            leave(t);
            return;
        }
        /* The instruction that repeats has not retired. */
        if (previous->class == INSN_REPEAT && at.ip == previous->last)
            truth_trim(t, at.ip);
        /* Two signals at once: the handler of the one was entered by nothing but the other. */
        struct interruption below = at;
        bool two = signals_below(&below);
        if (!(two && sure) && follow(t, previous, at.ip)) {
            leave_at(t, at.ip);
            return;
        }
        if (!two)
            break;
        at = below;
    }
    lose_track(t);
}

static void synchronise(struct thread *t, uint64_t ip)
{
    if (!pt_room(&t->writer))
        return;
    uint64_t tsc = __rdtsc();
    pt_psb(&t->writer, tsc, true, ip);
    returns_forget(&t->returns);
    publish(t, tsc);
}

static void resume_at(struct thread *t, uint64_t ip, uint32_t epoch)
{
    leave_at(t, ip);
    enter(t, ip, epoch);
}

/*
 * `previous` leads by itself into code that the thread's epoch does not have. A decoder must have the new image when it
 * takes that way: so the flow ends in front of `previous` and goes on there, if the new image still has `previous`.
 */
static void meet_new_code(struct thread *t, const struct block *previous, uint32_t epoch)
{
    if (image_holds(previous->start, previous->end - previous->start, previous->hash))
        resume_at(t, previous->start, epoch);
}

static void go_on(struct thread *t, const struct block *previous, const struct block *block, const uint64_t *registers)
{
    struct interruption at;
    bool any_target = previous->class >= INSN_JUMP_INDIRECT;
    if (unlikely(any_target && signals_entered(block, registers, true, &at))) {
        interrupted(t, previous, at, true);
        enter(t, block->start, block->epoch);
    } else if (unlikely(begins_again(previous, block->start, block->count))) {
        truth_trim(t, block->start);
    } else {
        t->next_epoch = block->epoch;
        if (unlikely(!any_target && block->epoch > t->epoch))
            meet_new_code(t, previous, block->epoch);
        if (likely(follow(t, previous, block->start)))
            return;
        if (signals_entered(block, registers, false, &at))
            interrupted(t, previous, at, false);
        else
            lose_track(t);
        enter(t, block->start, block->epoch);
    }
}

/* False while the bandwidth of this window is used up. */
static bool catch_up(struct thread *t)
{
    t->previous = NULL;
    if (__rdtsc() < t->window_end) {
        t->stream->lost_blocks++;
        return false;
    }
    t->throttled = false;
    overflow(t);
    return true;
}

void flow_block(struct thread *t, uint32_t session, const struct block *block, const uint64_t *registers)
{
    if (unlikely(t->session != session))
        streams_take(t, session);
    if (unlikely(!t->recording)) {
        if (t->stream)
            t->stream->lost_blocks++;
        else
            recorder.control->unbuffered_blocks++;
        return;
    }
    if (unlikely(t->throttled) && !catch_up(t))
        return;
    const struct block *previous = t->previous;
    t->previous = block;
    if (unlikely(!previous)) {
        enter(t, block->start, block->epoch);
    } else {
        go_on(t, previous, block, registers);
        if (unlikely(block->epoch > t->epoch))
            resume_at(t, block->start, block->epoch);
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
        truth_block(t, block->id, registers[RSP]);
}

/* Switch records of the target processes, written by sched_switch into one ring buffer.
 *
 * Only stable tracepoint fields and helpers are used, none of the kernel's own structures, so that the program is right on
 * a kernel whose headers are not at hand. At sched_switch the current task is the one that leaves, which tells the process
 * of a thread; a thread that arrives is known by having been there at the start, by task_newtask, or by having left.
 */
#include <uapi/linux/sched.h>

#define KNOWN (1ULL << 32)

struct switch_record {
    u64 time_ns; /* CLOCK_MONOTONIC */
    u32 cpu;
    u32 pid;
    u32 tid;
    u32 operation; /* 1 in, 0 out */
};

struct target {
    u64 dropped;
    u64 unseen;    /* arrivals by a switch that the kernel did not report; some kernels hide some tasks */
    u64 recording; /* 0 until all its threads are known: no departure without its arrival */
};

BPF_HASH(targets, u32, struct target, 4096);
BPF_HASH(threads, u32, u32, 131072);
BPF_RINGBUF_OUTPUT(records, RING_PAGES);
BPF_PERCPU_ARRAY(running, u64, 1); /* who came last, and that somebody did */

static __always_inline void record(struct target *target, u32 pid, u32 tid, u32 operation)
{
    struct switch_record r = {
        .time_ns = bpf_ktime_get_ns(),
        .cpu = bpf_get_smp_processor_id(),
        .pid = pid,
        .tid = tid,
        .operation = operation,
    };

    if (!target->recording)
        return;
    if (records.ringbuf_output(&r, sizeof(r), BPF_RB_NO_WAKEUP))
        lock_xadd(&target->dropped, 1);
}

TRACEPOINT_PROBE(sched, sched_switch)
{
    u64 id = bpf_get_current_pid_tgid();
    u32 pid = id >> 32, tid = id, next = args->next_pid;
    struct target *target = targets.lookup(&pid);
    u32 zero = 0, *owner;
    u64 *last = running.lookup(&zero);

    if (!last)
        return 0;
    if (target) {
        if (target->recording && *last && *last != (KNOWN | args->prev_pid))
            lock_xadd(&target->unseen, 1);
        record(target, pid, tid, 0);
        if (!threads.lookup(&tid))
            threads.update(&tid, &pid);
    }
    *last = KNOWN | next;
    owner = threads.lookup(&next);
    if (owner) {
        pid = *owner;
        target = targets.lookup(&pid);
        if (target)
            record(target, pid, next, 1);
    }
    return 0;
}

TRACEPOINT_PROBE(task, task_newtask)
{
    u32 pid = bpf_get_current_pid_tgid() >> 32, tid = args->pid;

    if ((args->clone_flags & CLONE_THREAD) && targets.lookup(&pid))
        threads.update(&tid, &pid);
    else
        threads.delete(&tid); /* the number of a thread that is gone, given to somebody else */
    return 0;
}

/* Every context switch, wake-up and birth on the machine, for the replay of buffer plans. Stable tracepoint fields only. */
#include <uapi/linux/ptrace.h>

enum kind { SWITCH = 1, WAKE, BIRTH };
enum left { SLEPT, PREEMPTED, DIED };

struct event {
    u64 time_ns; /* CLOCK_MONOTONIC */
    u16 cpu;
    u8 kind;
    u8 left; /* SWITCH: why the task left */
    u32 tid; /* who left, woke, was born */
    u32 pid; /* SWITCH: its process; BIRTH: its parent's */
    u32 next; /* SWITCH: who came; BIRTH: clone flags */
};

BPF_RINGBUF_OUTPUT(events, RING_PAGES);
BPF_ARRAY(dropped, u64, 1);

static __always_inline void tell(u8 kind, u8 left, u32 tid, u32 pid, u32 next)
{
    struct event e = {
        .time_ns = bpf_ktime_get_ns(),
        .cpu = bpf_get_smp_processor_id(),
        .kind = kind,
        .left = left,
        .tid = tid,
        .pid = pid,
        .next = next,
    };
    u32 zero = 0;
    u64 *lost = dropped.lookup(&zero);

    if (events.ringbuf_output(&e, sizeof(e), BPF_RB_NO_WAKEUP) && lost)
        lock_xadd(lost, 1);
}

TRACEPOINT_PROBE(sched, sched_switch)
{
    u32 pid = bpf_get_current_pid_tgid() >> 32;
    long state = args->prev_state;
    u8 left = SLEPT;

    /* 0x100 marks a preempted task that was about to sleep, 0x30 one that is dead (include/linux/sched.h). */
    if (state == 0 || (state & 0x100))
        left = PREEMPTED;
    else if (state & 0x30)
        left = DIED;
    tell(SWITCH, left, args->prev_pid, pid, args->next_pid);
    return 0;
}

TRACEPOINT_PROBE(sched, sched_wakeup)
{
    tell(WAKE, 0, args->pid, 0, 0);
    return 0;
}

TRACEPOINT_PROBE(task, task_newtask)
{
    tell(BIRTH, 0, args->pid, bpf_get_current_pid_tgid() >> 32, args->clone_flags);
    return 0;
}

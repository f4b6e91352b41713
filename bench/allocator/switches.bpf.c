/* Every context switch, wake-up and birth on the machine, for the replay of buffer plans. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define TASK_DEAD 0x80 /* include/linux/sched.h */

enum kind { SWITCH = 1, WAKE, BIRTH };
enum left { SLEPT, PREEMPTED, DIED };

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

struct event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u16 cpu;
	__u8 kind;
	__u8 left; /* SWITCH: why the task left */
	__u32 tid; /* who left, woke, was born */
	__u32 pid; /* SWITCH: its process; BIRTH: its parent's */
	__u32 next; /* SWITCH: who came; BIRTH: clone flags */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

static __always_inline __u32 tid_of(__u64 task)
{
	return BPF_CORE_READ((struct task_struct *)task, pid);
}

static __always_inline void tell(__u8 kind, __u8 left, __u32 tid, __u32 pid, __u32 next)
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
	__u32 zero = 0;
	__u64 *lost = bpf_map_lookup_elem(&dropped, &zero);

	if (bpf_ringbuf_output(&events, &e, sizeof(e), BPF_RB_NO_WAKEUP) && lost)
		__sync_fetch_and_add(lost, 1);
}

SEC("raw_tp/sched_switch") /* preempt, prev, next, prev_state (Linux 6.1) */
int on_switch(struct bpf_raw_tracepoint_args *c)
{
	__u64 id = bpf_get_current_pid_tgid(), state = c->args[3];
	__u8 left = c->args[0] || !state ? PREEMPTED : state & TASK_DEAD ? DIED : SLEPT;

	tell(SWITCH, left, id, id >> 32, tid_of(c->args[2]));
	return 0;
}

SEC("raw_tp/sched_wakeup") /* task */
int on_wake(struct bpf_raw_tracepoint_args *c)
{
	tell(WAKE, 0, tid_of(c->args[0]), 0, 0);
	return 0;
}

SEC("raw_tp/task_newtask") /* task, clone_flags */
int on_birth(struct bpf_raw_tracepoint_args *c)
{
	tell(BIRTH, 0, tid_of(c->args[0]), bpf_get_current_pid_tgid() >> 32, c->args[1]);
	return 0;
}

char _license[] SEC("license") = "GPL";

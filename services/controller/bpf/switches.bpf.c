/* Switch records of the target processes, written at sched_switch into one ring buffer.
 *
 * The task that leaves is still the current one. Of the one that arrives two fields of the kernel's own structure are
 * read; where they are on the kernel that runs is found out when this is loaded (CO-RE, from the kernel's BTF).
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define KNOWN (1ULL << 32)

struct task_struct {
	int pid;  /* of the thread */
	int tgid; /* of the process */
} __attribute__((preserve_access_index));

struct switch_record {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 cpu;
	__u32 pid;
	__u32 tid;
	__u32 operation; /* 1 in, 0 out */
};

struct target {
	__u64 dropped;
	__u64 unseen; /* arrivals by a switch that the kernel did not report; some kernels hide some tasks */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct target);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); /* who came last, and that somebody did */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} running SEC(".maps");

static __always_inline void record(struct target *target, __u32 pid, __u32 tid, __u32 operation)
{
	struct switch_record r = {
		.time_ns = bpf_ktime_get_ns(),
		.cpu = bpf_get_smp_processor_id(),
		.pid = pid,
		.tid = tid,
		.operation = operation,
	};

	if (bpf_ringbuf_output(&records, &r, sizeof(r), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&target->dropped, 1);
}

SEC("raw_tp/sched_switch") /* preempt, prev, next */
int on_switch(struct bpf_raw_tracepoint_args *switching)
{
	struct task_struct *next = (void *)switching->args[2];
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32, tid = id, zero = 0, next_tid = BPF_CORE_READ(next, pid);
	__u64 *last = bpf_map_lookup_elem(&running, &zero);
	struct target *target = bpf_map_lookup_elem(&targets, &pid);

	if (!last)
		return 0;
	if (target) {
		if (*last && *last != (KNOWN | tid))
			__sync_fetch_and_add(&target->unseen, 1);
		record(target, pid, tid, 0);
	}
	*last = KNOWN | next_tid;
	pid = BPF_CORE_READ(next, tgid);
	target = bpf_map_lookup_elem(&targets, &pid);
	if (target)
		record(target, pid, next_tid, 1);
	return 0;
}

char _license[] SEC("license") = "GPL";

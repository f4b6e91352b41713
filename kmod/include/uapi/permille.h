/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interface of /dev/permille: one open file is one session.
 *
 * open, PERMILLE_IOC_SETUP, mmap, PERMILLE_IOC_START, poll (readable: ended), PERMILLE_IOC_SESSION
 * and PERMILLE_IOC_CORE, read the mappings, close. The session ends by its own period; STOP, close
 * and the death of the owner end it earlier. Needs CAP_PERFMON in the initial user namespace.
 *
 * From SETUP on a process that ends is no target any more, what a target forks becomes one where
 * asked for, and PERMILLE_IOC_ADD_PROCESS adds others.
 *
 * All integers are little-endian (x86), all reserved fields must be zero.
 */
#ifndef _UAPI_PERMILLE_H
#define _UAPI_PERMILLE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PERMILLE_UAPI_VERSION	2
#define PERMILLE_DEVICE		"/dev/permille"

#define PERMILLE_MAX_PROCESSES	64u	/* of SETUP */
#define PERMILLE_MIN_PERIOD_NS	100000ull
#define PERMILLE_MAX_PERIOD_NS	60000000000ull
#define PERMILLE_MIN_BUFFER	4096ull
#define PERMILLE_MAX_BUFFER	(128ull << 20)
#define PERMILLE_MIN_RECORDS	64u
#define PERMILLE_MAX_RECORDS	(1u << 22)

/* What a processor offers (info.features) and a session asks for (setup.flags) */
#define PERMILLE_TSC		(1u << 0)
#define PERMILLE_MTC		(1u << 1)	/* setup.mtc_freq out of info.mtc_freqs */
#define PERMILLE_CYC		(1u << 2)	/* setup.cyc_threshold out of info.cyc_thresholds */
#define PERMILLE_NO_RET_COMPRESSION (1u << 3)
#define PERMILLE_CR3_FILTER	(1u << 4)	/* else all user code of the cores is recorded */
#define PERMILLE_KERNEL		(1u << 5)	/* kernel code too, where allow_kernel permits it */
#define PERMILLE_FOLLOW_FORK	(1u << 6)	/* processes that the targets fork become targets */
#define PERMILLE_WRITE_COMBINING (1u << 7)	/* the buffers bypass the caches */
#define PERMILLE_ALL_FLAGS	0xffu

enum permille_backend {
	PERMILLE_BACKEND_MSR = 1,
	PERMILLE_BACKEND_MODEL = 2,
	PERMILLE_BACKEND_EMULATED = 3,
};

/* Why SETUP or ADD_PROCESS said no; refused_value is the value it means */
enum permille_refusal {
	PERMILLE_REFUSED_NOT = 0,
	PERMILLE_REFUSED_VERSION,	/* the version that the module speaks */
	PERMILLE_REFUSED_FLAGS,		/* the flags that are not offered */
	PERMILLE_REFUSED_RESERVED,	/* a reserved field is not zero */
	PERMILLE_REFUSED_PERIOD,
	PERMILLE_REFUSED_FREQUENCY,	/* psb_freq, mtc_freq or cyc_threshold: the value */
	PERMILLE_REFUSED_CORE_COUNT,
	PERMILLE_REFUSED_CORE,		/* no such core, offline, or twice in the plan: the core */
	PERMILLE_REFUSED_BUFFER,	/* size: the core */
	PERMILLE_REFUSED_RECORDS,	/* not a power of two, or out of range: the core */
	PERMILLE_REFUSED_CORE_BUSY,	/* another session has it: the core */
	PERMILLE_REFUSED_PERF,		/* perf's intel_pt has it, or nothing tells: the core */
	PERMILLE_REFUSED_FOREIGN,	/* somebody else's TraceEn is set: the core */
	PERMILLE_REFUSED_KVM,		/* KVM uses PT for guests, or VMX excludes PT: the core */
	PERMILLE_REFUSED_PROCESS_COUNT,
	PERMILLE_REFUSED_PROCESS,	/* no such process: the pid */
	PERMILLE_REFUSED_NAMESPACE,	/* the caller does not see the host's pids */
	PERMILLE_REFUSED_MEMORY,	/* beyond memory_limit_mb, or not to be had: the MiB */
	PERMILLE_REFUSED_SLEEPING,	/* about to sleep or to stop; START then says EBUSY */
	PERMILLE_REFUSED_ROOM,		/* too many targets: the pid */
	PERMILLE_REFUSED_ENDED,		/* the session is over */
};

struct permille_info {
	__u32 version;
	__u32 backend;
	__u32 features;
	__u32 psb_freqs;		/* bit n: 2^(n+11) bytes */
	__u32 mtc_freqs;		/* bit n: 2^n crystal clocks */
	__u32 cyc_thresholds;		/* bit n */
	/* 1: one region per core, a power of two up to 4 MiB; else any number */
	__u32 regions;
	__u32 per_switch;		/* the comparison variant is on: never for production */
	__u64 memory_limit_bytes;
	__u64 memory_used_bytes;
	__u32 sessions;
	__u32 reserved;
};

struct permille_core_plan {
	__u32 cpu;
	__u32 switch_records;		/* capacity of the ring, a power of two */
	__u64 buffer_bytes;		/* a multiple of 4096; got: see permille_core_status */
};

struct permille_setup {
	__u32 version;
	__u32 flags;
	__u64 period_ns;
	__u32 psb_freq;
	__u32 mtc_freq;
	__u32 cyc_threshold;
	__u32 core_count;
	__u32 process_count;
	__u32 reserved;
	__u64 cores;			/* struct permille_core_plan[core_count] */
	__u64 processes;		/* __u32[process_count]: process ids (tgid) */
	__u32 refusal;			/* out: enum permille_refusal */
	__u32 refused_value;		/* out */
};

struct permille_process {
	__u32 version;
	__u32 pid;			/* process id (tgid) */
	__u32 reserved;
	__u32 refusal;			/* out: enum permille_refusal */
	__u32 refused_value;		/* out */
};

enum permille_state {
	PERMILLE_NEW = 0,
	PERMILLE_READY,
	PERMILLE_ACTIVE,
	PERMILLE_ENDED,
};

struct permille_session_status {
	__u32 state;
	__u32 core_count;
	__u32 processes;		/* targets alive */
	__u32 processes_missed;		/* that found no room */
	__u64 start_tsc, start_ns;	/* ns: CLOCK_REALTIME */
	__u64 now_tsc, now_ns;
	__u64 end_ns;			/* CLOCK_MONOTONIC at which the timers end it */
};

enum permille_end {
	PERMILLE_END_NOT = 0,
	PERMILLE_END_PERIOD,
	PERMILLE_END_STOPPED,		/* STOP or close */
	PERMILLE_END_OFFLINE,		/* the core went offline */
	PERMILLE_END_SLEEP,		/* suspend, hibernation, reboot, kexec */
	PERMILLE_END_FAULT,		/* a refused MSR access, or the trace unit's error */
};

struct permille_core_status {
	__u32 index;			/* in: place in the plan */
	__u32 cpu;
	__u32 tracing;			/* TraceEn is set now */
	__u32 end;			/* enum permille_end */
	__u32 full;			/* the STOP region was filled */
	__u32 faults;			/* refused MSR accesses */
	__u64 trace_bytes;
	/* TraceEn written, but by retargets: at most once each */
	__u64 operations_on, operations_off;
	__u64 retargets;		/* TraceEn off and on to move the CR3 filter */
	__u64 arrivals;			/* switches to a target's thread */
	__u64 records;
	__u64 records_dropped;
	__u64 hook_calls;		/* switches from or to a target */
	__u64 hook_ticks;		/* TSC ticks in all of them, behind the look for a target */
	__u64 hook_ticks_max;
	__u64 first_tsc, last_tsc;	/* TraceEn on and off */
	__u64 buffer_bytes;		/* at most what was asked for: info.regions */
	__u32 regions;			/* that the buffer consists of */
	__u32 error;			/* STATUS.Error: from there on nothing was recorded */
};

struct permille_switch {
	__u64 tsc;
	__u32 cpu;
	__u32 pid;
	__u32 tid;
	__u32 operation;		/* 1: the thread comes onto the core, 0: it leaves */
};

/*
 * First page of a ring, the records begin at PERMILLE_RING_RECORDS. The module writes head, the
 * owner tail; both only grow, a record's place is its number modulo capacity.
 */
struct permille_ring {
	__u64 head;
	__u64 dropped;
	__u32 capacity;
	__u32 reserved;
	__u64 padding[5];
	__u64 tail;
};

#define PERMILLE_RING_RECORDS	4096

/* Offsets for mmap by place in the plan; the trace can be mapped for reading only */
#define PERMILLE_MMAP_TRACE(index)	((__u64)(index) << 32)
#define PERMILLE_MMAP_SWITCHES(index)	((__u64)(index) << 32 | 1ull << 31)

#define PERMILLE_IOC_INFO	_IOR('p', 0xa0, struct permille_info)
#define PERMILLE_IOC_SETUP	_IOWR('p', 0xa1, struct permille_setup)
#define PERMILLE_IOC_START	_IO('p', 0xa2)
#define PERMILLE_IOC_STOP	_IO('p', 0xa3)
#define PERMILLE_IOC_SESSION	_IOR('p', 0xa4, struct permille_session_status)
#define PERMILLE_IOC_CORE	_IOWR('p', 0xa5, struct permille_core_status)
#define PERMILLE_IOC_ADD_PROCESS	_IOWR('p', 0xa6, struct permille_process)

#endif

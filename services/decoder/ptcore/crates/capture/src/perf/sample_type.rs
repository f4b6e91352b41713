//! Bits of `sample_type` of perf_event_attr (linux/perf_event.h): which fields a sample has.

pub const IP: u64 = 1;
pub const TID: u64 = 1 << 1;
pub const TIME: u64 = 1 << 2;
pub const ADDR: u64 = 1 << 3;
pub const READ: u64 = 1 << 4;
pub const CALLCHAIN: u64 = 1 << 5;
pub const ID: u64 = 1 << 6;
pub const CPU: u64 = 1 << 7;
pub const PERIOD: u64 = 1 << 8;
pub const STREAM_ID: u64 = 1 << 9;
pub const RAW: u64 = 1 << 10;
pub const BRANCH_STACK: u64 = 1 << 11;
pub const REGS_USER: u64 = 1 << 12;
pub const STACK_USER: u64 = 1 << 13;
pub const WEIGHT: u64 = 1 << 14;
pub const DATA_SRC: u64 = 1 << 15;
pub const IDENTIFIER: u64 = 1 << 16;
pub const TRANSACTION: u64 = 1 << 17;
pub const REGS_INTR: u64 = 1 << 18;
pub const PHYS_ADDR: u64 = 1 << 19;
pub const AUX: u64 = 1 << 20;
pub const CGROUP: u64 = 1 << 21;
pub const DATA_PAGE_SIZE: u64 = 1 << 22;
pub const CODE_PAGE_SIZE: u64 = 1 << 23;
pub const WEIGHT_STRUCT: u64 = 1 << 24;

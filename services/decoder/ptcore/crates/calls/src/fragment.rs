//! The calls of a part of a stream that was decoded by itself.

use crate::arrival::Arrival;
use crate::functions::{FunctionKey, News, Sums};
use crate::losses::LossRecord;
use crate::output::{Batch, Output};
use crate::records::Records;
use crate::stack::{Interruption, Landings, Local, Outer};
use pt_image::Role;

/// What is known of a part before it is known what lies around it. Numbers of calls count from `first` on; those before it
/// are of calls around the part, the innermost one last. Functions count in `functions`.
pub struct Fragment {
    pub records: Records,
    /// Those that end no calls: with others there is no fragment.
    pub losses: Vec<LossRecord>,
    pub functions: Vec<(FunctionKey, Role, Sums)>,
    /// How many of these are named by `records`; the others follow.
    pub named: usize,
    pub outer: Outer,
    /// The outermost call that is open is not one of those around the part: it came in the place of one.
    pub replaced: bool,
    /// Calls that are open at its end, the first of them being that one.
    pub open: Vec<OpenCall>,
    /// Instructions of calls that ended as deep as that one.
    pub roots_total: u64,
    pub interruptions: Vec<Interruption>,
    pub landings: Landings,
    pub locals: Vec<Local>,
    pub first: u64,
    pub next: u64,
    /// When it begins and ends; whether it ends with a PSB, and what of that is settled.
    pub start_tsc: u64,
    pub end_tsc: u64,
    pub settled: bool,
    /// How what follows is arrived at, and the last block and the last stub.
    pub arrival: Arrival,
    pub last: u64,
    pub end: u64,
    pub passed: (u64, u64),
    pub epoch: u32,
    /// What became known of code that nothing divides, and what was known of it before.
    pub news: Vec<News>,
    pub knew: Knew,
}

/// What was known of code that nothing divides where a part was begun: so much of what those know who put the parts
/// together, and what they did not know then.
#[derive(Clone, Debug, Default)]
pub struct Knew {
    pub log: usize,
    pub besides: Vec<News>,
}

impl Fragment {
    /// Instructions that ran in it.
    pub fn ran(&self) -> u64 {
        let ended = if self.replaced { self.roots_total } else { 0 };
        ended + self.open.iter().map(OpenCall::ran).sum::<u64>()
    }
}

/// A call that is open.
pub struct OpenCall {
    pub number: u64,
    pub caller: u64,
    pub depth: u32,
    pub start_tsc: u64,
    pub function: u32,
    pub call_address: u64,
    pub target: u64,
    pub flags: u8,
    /// Its own time is counted.
    pub timed: bool,
    pub asynchronous: bool,
    pub returns_to: u64,
    pub own: u64,
    pub below: u64,
}

impl OpenCall {
    /// Instructions of the call, without those of calls below it that are open.
    pub fn ran(&self) -> u64 {
        self.own + self.below
    }
}

/// Calls of a part; with more of them it is not worth keeping.
const MOST_CALLS: usize = 1 << 20;

/// Keeps the calls of a part.
#[derive(Default)]
pub struct Collected {
    pub records: Records,
    pub losses: Vec<LossRecord>,
    pub too_many: bool,
    /// Addresses are not needed.
    pub without_addresses: bool,
}

impl Output for Collected {
    fn rows(&self) -> usize {
        MOST_CALLS
    }

    fn takes_addresses(&self) -> bool {
        !self.without_addresses
    }

    fn take(&mut self, batch: Batch<'_>) {
        self.losses.append(batch.losses);
        // The rest comes with the end of the part.
        if self.too_many || !self.records.is_empty() {
            self.too_many = true;
            self.records = Records::default();
            return;
        }
        std::mem::swap(&mut self.records, batch.calls);
    }
}

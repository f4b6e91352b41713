//! Times between two packets.

use crate::functions::Sums;
use crate::records::Records;

/// Gives the begins and ends of calls a time: packets say when a stretch of instructions was over, and within the stretch
/// time passes evenly over the instructions.
#[derive(Default)]
pub struct Clock {
    /// When the stretch before was over, TSC ticks; 0 when unknown.
    from: u64,
    /// When this one is over.
    to: u64,
    /// Instructions of this stretch up to now.
    run: u64,
    /// The time of the last begin or end.
    last: u64,
    waiting: Vec<Waiting>,
}

/// A begin or an end whose time is not known yet.
#[derive(Clone, Copy)]
struct Waiting {
    row: u32,
    /// The function whose own time is over, `NOBODY` when it is not counted.
    before: u32,
    /// Of the call that ended.
    ended: u32,
    at: u32,
}

/// No function.
pub const NOBODY: u32 = u32::MAX;
/// Marks in `Waiting::ended`: a begin; the end of a call inside another one of its function.
pub const BEGIN: u32 = u32::MAX;
pub const INNER: u32 = u32::MAX - 1;

impl Clock {
    #[inline(always)]
    pub fn run(&mut self, instructions: u32) {
        self.run += u64::from(instructions);
    }

    /// Whether no time is known yet.
    #[inline(always)]
    pub fn is_unknown(&self) -> bool {
        self.to == 0
    }

    /// What follows is over at `tsc`.
    #[inline(always)]
    pub fn advance(&mut self, tsc: u64, records: &mut Records, sums: &mut [Sums]) {
        if tsc != self.to {
            self.settle(tsc, records, sums);
        }
    }

    /// No instruction runs between the time known last and `tsc`.
    pub fn skip(&mut self, tsc: u64, records: &mut Records, sums: &mut [Sums]) {
        self.settle(tsc, records, sums);
        self.from = tsc;
    }

    /// The call in `row` begins; up to now `before` was running.
    #[inline(always)]
    pub fn begins(&mut self, row: u32, before: u32, records: &mut Records, sums: &mut [Sums]) {
        self.tell(row, before, BEGIN, records, sums);
    }

    /// The call in `row` ends; `ended` is its function, or `INNER`.
    #[inline(always)]
    pub fn ends(&mut self, row: u32, before: u32, ended: u32, records: &mut Records, sums: &mut [Sums]) {
        self.tell(row, before, ended, records, sums);
    }

    #[inline(always)]
    fn tell(&mut self, row: u32, before: u32, ended: u32, records: &mut Records, sums: &mut [Sums]) {
        // Stretches of more instructions than a number of 32 bits holds are none that a processor leaves without a packet.
        let waiting = Waiting { row, before, ended, at: u32::try_from(self.run).unwrap_or(u32::MAX) };
        if self.from == self.to {
            self.set(waiting, self.to, records, sums);
        } else {
            self.waiting.push(waiting);
        }
    }

    #[inline(always)]
    fn set(&mut self, waiting: Waiting, tsc: u64, records: &mut Records, sums: &mut [Sums]) {
        let Waiting { row, before, ended, .. } = waiting;
        if let Some(sums) = sums.get_mut(before as usize) {
            sums.self_ticks += tsc - self.last;
        }
        self.last = tsc;
        if ended == BEGIN {
            records.start_tsc[row as usize] = tsc;
            return;
        }
        records.end_tsc[row as usize] = tsc;
        if let Some(sums) = sums.get_mut(ended as usize) {
            let start = records.start_tsc[row as usize];
            sums.total_ticks += if start == 0 { 0 } else { tsc.saturating_sub(start) };
        }
    }

    #[inline(always)]
    fn settle(&mut self, tsc: u64, records: &mut Records, sums: &mut [Sums]) {
        if !self.waiting.is_empty() {
            self.give_times(records, sums);
        }
        // Before the first time there is nothing to divide.
        self.from = if self.to == 0 { tsc } else { self.to };
        self.to = tsc.max(self.from);
        self.run = 0;
    }

    fn give_times(&mut self, records: &mut Records, sums: &mut [Sums]) {
        let ticks = self.to - self.from;
        let waiting = std::mem::take(&mut self.waiting);
        for &one in &waiting {
            self.set(one, self.from + share(ticks, one.at.into(), self.run), records, sums);
        }
        self.waiting = waiting;
        self.waiting.clear();
    }

    /// The end of the stream; another one may begin.
    pub fn finish(&mut self, records: &mut Records, sums: &mut [Sums]) {
        self.settle(self.to, records, sums);
        *self = Clock { waiting: std::mem::take(&mut self.waiting), ..Clock::default() };
    }
}

/// `ticks` * `at` / `run`.
#[inline(always)]
fn share(ticks: u64, at: u64, run: u64) -> u64 {
    match ticks.checked_mul(at) {
        Some(product) => product.checked_div(run).unwrap_or(ticks),
        None => (u128::from(ticks) * u128::from(at) / u128::from(run)) as u64,
    }
}

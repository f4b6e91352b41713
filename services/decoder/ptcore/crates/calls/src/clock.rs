//! Times between two packets.

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
    waiting: Vec<Waiting>,
}

struct Waiting {
    row: u32,
    end: bool,
    at: u64,
}

impl Clock {
    #[inline(always)]
    pub fn run(&mut self, instructions: u32) {
        self.run += u64::from(instructions);
    }

    /// What follows is over at `tsc`.
    #[inline(always)]
    pub fn advance(&mut self, tsc: u64, records: &mut Records) {
        if tsc != self.to {
            self.settle(tsc, records);
        }
    }

    /// No instruction runs between the time known last and `tsc`.
    pub fn skip(&mut self, tsc: u64, records: &mut Records) {
        self.settle(tsc, records);
        self.from = tsc;
    }

    pub fn begins(&mut self, row: u32, records: &mut Records) {
        self.tell(row, false, records);
    }

    pub fn ends(&mut self, row: u32, records: &mut Records) {
        self.tell(row, true, records);
    }

    fn tell(&mut self, row: u32, end: bool, records: &mut Records) {
        if self.from == self.to {
            set(records, row, end, self.to);
        } else {
            self.waiting.push(Waiting { row, end, at: self.run });
        }
    }

    fn settle(&mut self, tsc: u64, records: &mut Records) {
        let ticks = self.to - self.from;
        for Waiting { row, end, at } in self.waiting.drain(..) {
            set(records, row, end, self.from + share(ticks, at, self.run));
        }
        // Before the first time there is nothing to divide.
        self.from = if self.to == 0 { tsc } else { self.to };
        self.to = tsc.max(self.from);
        self.run = 0;
    }

    /// The end of the stream.
    pub fn finish(&mut self, records: &mut Records) {
        self.settle(self.to, records);
    }
}

fn set(records: &mut Records, row: u32, end: bool, tsc: u64) {
    let column = if end { &mut records.end_tsc } else { &mut records.start_tsc };
    column[row as usize] = tsc;
}

/// `ticks` * `at` / `run`.
fn share(ticks: u64, at: u64, run: u64) -> u64 {
    match ticks.checked_mul(at) {
        Some(product) => product.checked_div(run).unwrap_or(ticks),
        None => (u128::from(ticks) * u128::from(at) / u128::from(run)) as u64,
    }
}

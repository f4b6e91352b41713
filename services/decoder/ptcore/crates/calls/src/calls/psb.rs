//! PSBs, at which streams are divided.

use super::ran::Reached;
use super::Calls;
use crate::arrival::Arrival;
use crate::output::Output;
use pt_flow::Block;
use pt_image::Symbols;

impl<S: Symbols, O: Output> Calls<S, O> {
    /// The flow comes by a PSB in front of `next`: where it arrives is settled, and nothing waits for a time, so that what
    /// follows depends on the calls that are open and on nothing else.
    #[cold]
    pub(super) fn come_by(&mut self, next: &Block<'_>, tsc: u64) {
        self.stack.epoch = next.epoch;
        self.pass(tsc);
        self.settled = self.reach(next) != Reached::Passed;
        if self.settled {
            self.stand_before(next);
        }
        self.stack.end_stretch_of_time(self.tsc);
    }

    /// A part begins in front of `next`: after the one before, or by itself.
    #[cold]
    pub(super) fn join(&mut self, next: &Block<'_>, tsc: u64) {
        if !self.alone {
            return;
        }
        self.stack.epoch = next.epoch;
        self.tsc = tsc;
        self.stand_before(next);
        let known = self.known(next.id, next.start);
        self.stack.join(known.function, next.start, tsc);
    }

    fn stand_before(&mut self, next: &Block<'_>) {
        (self.arrival, self.left) = (Arrival::Jump, None);
        (self.end, self.passed) = (next.start, (0, 0));
    }
}

//! Streams of cores in turns, one at a time.

use crate::{Stays, View};
use pt_flow::Turns;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The stream goes on in front of which the thread stands that came to its core first ([`Stays::since`]).
pub struct ByStay<'v, F> {
    views: &'v [View],
    stays: Option<&'v Stays>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    over: F,
}

impl<'v, F: FnMut(usize)> ByStay<'v, F> {
    /// `over` is told the numbers of streams that end.
    pub fn new(views: &'v [View], stays: Option<&'v Stays>, over: F) -> Self {
        ByStay { views, stays, next: BinaryHeap::new(), over }
    }

    fn since(&self, epoch: u32) -> Option<u64> {
        Some(self.stays?.since(self.views.get(epoch as usize)?))
    }
}

impl<F: FnMut(usize)> Turns for ByStay<'_, F> {
    fn stands(&mut self, number: usize, epoch: u32, _tsc: u64) {
        self.next.push(Reverse((self.since(epoch).unwrap_or(0), number)));
    }

    fn over(&mut self, number: usize) {
        (self.over)(number);
    }

    fn next(&mut self) -> Option<usize> {
        self.next.pop().map(|Reverse((_, number))| number)
    }
}

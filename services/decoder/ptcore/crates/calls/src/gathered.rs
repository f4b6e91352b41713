//! Calls on their way from the window to who takes them.

use crate::found::{Callers, Found};
use crate::records::Records;

/// Rows that are kept room for ahead, at most.
const MOST_ROOM: usize = 1 << 18;

/// Of a stream that has just begun: so many times as many rows as there are.
const AHEAD: usize = 15;

/// What left the window and waits until there is as much as the output takes at once. So the window is small enough for
/// the cache, into which every call writes ten columns, and memory further away is written once.
#[derive(Default)]
pub struct Gathered {
    pub records: Records,
    pub found: Vec<Found>,
    /// Calls with numbers from here on were not delivered.
    next: u64,
}

impl Gathered {
    /// Makes room for as many rows, and for as many more as the output takes where not all of the stream is here: at first for a few
    /// times as many, as short streams have no more. Long columns double when they have to.
    pub fn make_room(&mut self, rows: usize, more: usize, addresses: bool) {
        let (room, used) = (self.records.call.capacity(), self.records.len());
        if room < used + rows && used <= MOST_ROOM {
            let most = if room == 0 { AHEAD * rows } else { MOST_ROOM };
            self.records.reserve(rows + more.min(most), addresses);
        }
    }

    /// Places calls in the callers that were found, but for those that others must be placed in as well: calls that were
    /// delivered, and those of `kept` numbers that will be.
    pub fn place(&mut self, mut kept: Vec<u64>) {
        if self.found.is_empty() {
            return;
        }
        kept.sort_unstable();
        let behind = |found: &Found| kept.get(kept.partition_point(|&call| call <= found.caller));
        let concerns = |found: &Found| behind(found).is_some_and(|&call| call <= found.last);
        let (here, left) = self.found.iter().partition(|found| found.caller >= self.next && !concerns(found));
        self.found = left;
        let Records { call, parent, columns } = &mut self.records;
        Callers::new(here).place(call, parent, &mut columns.depth);
    }

    /// After delivery; the columns that are left are used again. `next`: the number of the next call.
    pub fn clear(&mut self, next: u64) {
        self.records.clear();
        self.found.clear();
        self.next = next;
    }
}

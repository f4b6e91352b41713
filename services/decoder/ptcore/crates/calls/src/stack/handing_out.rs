//! Calls that are over leave the window, and go to the output.

use super::awaited::Awaited;
use super::Stack;
use crate::functions::FunctionKey;
use crate::gathered::Gathered;
use crate::losses::LossRecord;
use crate::output::{Batch, Output};
use crate::window::NOBODY;

/// Calls that may be open where calls are handed out; with more of them the stretch ends.
pub const MOST_OPEN: usize = 1 << 20;
/// Calls leave the window when there are so many new ones: it stays in the cache.
const WINDOW: usize = 1 << 12;
/// Losses are handed out when there are this many.
const MOST_LOSSES: usize = 1 << 12;

impl<O: Output> Stack<O> {
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(&mut self) {
        if !self.window.has_room() {
            self.make_window();
        }
        if self.frames.len() + self.suspended_frames().len() > self.most_open {
            self.end();
        }
        let open = self.frames.len() + self.suspended_frames().len();
        self.window.allow(self.most_open.saturating_add(1) - open);
    }

    fn make_window(&mut self) {
        // To look at the calls that stay takes no longer than as many new ones took.
        let most = self.output.rows();
        let new = most.min(WINDOW).max(self.window.stayed());
        if self.window.new_rows() >= new {
            self.hand_out(false);
            if self.gathered.records.len() >= most {
                self.deliver();
            }
        }
        if !self.window.has_room() {
            self.window.grow(new);
        }
    }

    /// Calls that are over leave the window, with their times. `last`: no more will come.
    pub fn hand_out(&mut self, last: bool) {
        self.give_times();
        self.awaited = Awaited::default();
        let suspended = self.suspended.iter().flat_map(|suspended| &suspended.frames);
        let open = self.frames.iter().chain(suspended).map(|frame| frame.row);
        let mut kept: Vec<u32> = open.chain(self.clock.waiting_rows()).collect();
        kept.sort_unstable();
        kept.dedup();
        let place = |row: u32| kept.partition_point(|&other| other < row) as u32;
        self.clock.move_rows(place);
        self.frames.iter_mut().for_each(|frame| frame.row = place(frame.row));
        self.suspended_frames().iter_mut().for_each(|frame| frame.row = place(frame.row));
        self.roots.retain(|root| kept.binary_search(root).is_ok());
        self.roots.iter_mut().for_each(|root| *root = place(*root));
        let (more, addresses) = (if last { 0 } else { self.output.rows() }, self.output.takes_addresses());
        if self.window.rows as usize > kept.len() {
            self.gathered.make_room(self.window.rows as usize, more, addresses);
        }
        let Gathered { records, found, .. } = &mut self.gathered;
        let gathered = records.len();
        self.window.hand_out(&kept, records, found, addresses);
        self.told.resize(self.functions.sums.len(), NOBODY);
        let (told, named) = (&mut self.told[..], &mut self.named);
        for function in &mut records.columns.function[gathered..] {
            *function = told_as(*function, told, named);
        }
    }

    /// The output takes what was gathered.
    pub fn deliver(&mut self) {
        self.gathered.place(self.window.kept());
        let named = &self.named[self.delivered..];
        let functions: Vec<FunctionKey> = named.iter().map(|&name| self.functions.key(name)).collect();
        self.delivered = self.named.len();
        let Gathered { records, found, .. } = &mut self.gathered;
        let (calls, losses) = (records, &mut self.losses);
        self.output.take(Batch { calls, functions: &functions, found, losses, epoch: self.epoch });
        self.gathered.clear(self.window.next());
        self.losses.clear();
    }

    /// A loss that is complete, but for the last one.
    pub fn lose(&mut self, loss: LossRecord) {
        if self.losses.len() >= MOST_LOSSES && self.output.rows() != usize::MAX {
            self.hand_out(false);
            self.deliver();
        }
        self.losses.push(loss);
    }
}

/// The number that those who take the calls know the function by: the next one when they hear of it for the first time.
#[inline(always)]
pub fn told_as(function: u32, told: &mut [u32], named: &mut Vec<u32>) -> u32 {
    let number = &mut told[function as usize];
    if *number == NOBODY {
        *number = named.len() as u32;
        named.push(function);
    }
    *number
}

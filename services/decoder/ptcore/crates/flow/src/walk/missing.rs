//! Where packets are missing, as whoever recorded says: the flow ends there, and nothing is read over that place.

use super::Walk;
use crate::{CodeMemory, Loss, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Reads up to the first place at which packets are missing.
    pub(super) fn end_where_missing(&mut self) {
        let data = &self.events.whole[..self.next_missing()];
        self.events.reader.go_on_in(data, 0);
    }

    /// Goes on behind the next place at which packets are missing, once the flow has come to it. False where there is none.
    pub(super) fn pass_missing(&mut self) -> bool {
        let Some((_, further)) = self.missing.split_first() else { return false };
        let (offset, now) = (self.next_missing(), self.events.time.now());
        // What packets told and waits for more of them.
        self.read_on(0);
        self.missing = further;
        self.events.go_on_behind(offset, self.next_missing());
        (self.from, self.joins) = (offset, None);
        let reason = Reason::MissingPackets;
        self.lost = Loss { offset, size: 0, reason, address: 0, epoch: self.epoch, tsc0: now, tsc1: now };
        true
    }

    /// Whether nothing is followed that no packet leads to, where there are no more. What is missing may have led elsewhere.
    pub(super) fn stops_at_last_packet(&self) -> bool {
        self.config.stop_at_last_packet || !self.missing.is_empty()
    }

    fn next_missing(&self) -> usize {
        let end = self.events.whole.len();
        self.missing.first().map_or(end, |&at| at.min(end))
    }
}

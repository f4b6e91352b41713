//! Events that came with one packet, in their order.

use super::Events;
use crate::event::Event;
use crate::notice::{NoticeKind, Place, Placed};

impl Events<'_> {
    /// The first of those that are queued: there is one.
    pub(super) fn queued(&mut self) -> Event {
        debug_assert!(!self.queue.is_empty());
        let Some((event, mode)) = self.queue.pop_front() else { return Event::End };
        self.mode = mode;
        if event == Event::Note {
            self.note = self.notes.pop_front();
        }
        event
    }

    pub(super) fn tell_ready(&mut self) {
        for placed in std::mem::take(&mut self.system.ready) {
            self.note_in_queue(placed);
        }
    }

    pub(super) fn tell(&mut self, kind: NoticeKind, place: Place) {
        self.note_in_queue(Placed::new(kind, place));
    }

    pub(super) fn note_in_queue(&mut self, placed: Placed) {
        self.notes.push_back(placed);
        self.queue.push_back((Event::Note, None));
    }
}

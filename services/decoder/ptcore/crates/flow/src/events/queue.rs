//! Events that came with one packet, in their order.

use super::Events;
use crate::event::{Event, Mode};
use crate::notice::{NoticeKind, Place, Placed};

/// Notes that are kept for one event: a PSB+ has as many as the stream has room for.
pub const MOST_NOTES: usize = 1 << 16;

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

    /// Whatever would otherwise say where they are.
    pub(super) fn tell_ready_here(&mut self) {
        for placed in std::mem::take(&mut self.system.ready) {
            self.note_in_queue(Placed { place: Place::Here, ..placed });
        }
    }

    pub(super) fn tell(&mut self, kind: NoticeKind, place: Place) {
        self.note_in_queue(Placed::new(kind, place));
    }

    pub(super) fn tell_mode(&mut self, (mode, interrupt_flag): Mode, place: Place) {
        self.tell(NoticeKind::ExecutionMode(mode), place);
        self.tell(NoticeKind::InterruptFlag(interrupt_flag), place);
    }

    /// MODE.Exec, of which the packet that it waits for did not come.
    pub(super) fn tell_waiting_mode(&mut self) {
        if let Some(mode) = self.system.mode.take() {
            self.tell_mode(mode, Place::Here);
        }
    }

    /// MODE.Exec came with a packet that does not fit.
    pub fn tell_mode_by_itself(&mut self) {
        if let Some(mode) = self.mode.take() {
            self.tell_mode(mode, Place::Here);
            self.busy = true;
        }
    }

    pub(super) fn note_in_queue(&mut self, placed: Placed) {
        if self.notes.len() == MOST_NOTES {
            return;
        }
        // The clock tells its news once.
        let again = !matches!(placed.notice.kind, NoticeKind::Uncertainty(_));
        self.notes.push_back(Placed { psb: self.within_psb.filter(|_| again), ..placed });
        self.queue.push_back((Event::Note, None));
    }

    /// The notes that are queued or wait for another packet; the events among them are forgotten.
    pub fn notes_left(&mut self) -> impl Iterator<Item = Placed> {
        self.system.settle();
        self.tell_ready();
        self.tell_waiting_mode();
        self.queue.clear();
        std::mem::take(&mut self.notes).into_iter()
    }
}

//! Packets up to the PSB where a flow that was lost goes on.
//!
//! What they say besides the flow needs none, and is told behind the loss: as long as they are packets.

use super::Walk;
use crate::event::{Event, Fault};
use crate::{CodeMemory, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Passes the notes of packets that were read, and of those that follow in front of `psb`.
    #[cold]
    pub(super) fn read_on(&mut self, psb: usize) {
        self.pass_held();
        let counts = (self.events.packets, self.events.ovf, self.events.tnt_bits);
        let mut unexpected = None;
        loop {
            let event = match self.pending.take() {
                Some(event) => Ok(event),
                None if self.events.position() >= psb => break,
                None => self.events.next(),
            };
            self.events.count = 0;
            match event {
                Ok(Event::Note) => self.pass_note(self.events.note),
                Ok(Event::Status { .. } | Event::End) => break,
                Err(Fault { offset, reason: Reason::UnexpectedPacket(_) }) => {
                    if unexpected.replace(offset) == Some(offset) && self.events.reader.read().is_err() {
                        self.events.time.miss_packets();
                        break;
                    }
                }
                Err(_) => {
                    self.events.time.miss_packets();
                    break;
                }
                Ok(_) => {}
            }
        }
        for placed in self.events.notes_left() {
            self.pass_note(Some(placed));
        }
        (self.events.packets, self.events.ovf, self.events.tnt_bits) = counts;
    }
}

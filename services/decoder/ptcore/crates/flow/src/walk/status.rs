//! What a PSB says of the flow that comes by.

use super::{Ahead, Walk};
use crate::code_block::Exit;
use crate::event::Fault;
use crate::part::Stopped;
use crate::{CodeMemory, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// What a PSB says must fit: it is compared where the flow comes by, at the latest where the next packet is needed.
    #[cold]
    pub(super) fn status(&mut self, ip: Option<u64>) -> Result<Ahead, Fault> {
        let Some(ip) = ip else {
            self.pending = None;
            return Ok(Ahead::Moved);
        };
        let block = *self.code.block(self.at);
        let mode_fits = match (self.events.mode, self.mode) {
            (Some((says, _)), Some(known)) => says == known,
            _ => true,
        };
        if mode_fits && (ip == self.ip || self.instructions_before(&block, ip).is_some()) {
            self.pending = None;
            // No return is compressed over a PSB (SDM section "Indirect Transfer Compression for Returns").
            self.returns.clear();
            if self.events.mode.is_some() && self.stops_at(self.events.offset) {
                self.runs_up_to(ip, None);
                return Ok(Ahead::Stopped);
            }
            self.take_mode(Some(ip), true);
            self.tell_held();
            return Ok(Ahead::Moved);
        }
        match block.exit {
            Exit::Linear | Exit::Jump | Exit::Call if mode_fits => Ok(Ahead::Run),
            _ => Err(self.fault(Reason::BadStatus)),
        }
    }

    /// Whether the flow ends at the PSB, which fits it and says what whoever goes on from there has to know.
    pub(super) fn stops_at(&mut self, psb: usize) -> bool {
        let whole = !self.events.busy && self.epochs.first().is_none_or(|&(from, _)| from > self.events.last_offset);
        if !whole || self.stops.binary_search(&psb).is_err() {
            return false;
        }
        self.stopped = Some(Stopped { psb, fits: true });
        true
    }
}

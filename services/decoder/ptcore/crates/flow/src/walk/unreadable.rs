//! Code that cannot be read, where nothing may need it.

use super::Walk;
use crate::code_block::SCRATCH;
use crate::event::{Event, Fault};
use crate::{CodeMemory, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Where the stream ends, nothing tells that what a block leads to by itself has run.
    #[cold]
    pub(super) fn end_before(&mut self, address: u64, reason: Reason) -> Result<(), Fault> {
        let stopped = self.stop_before(address, reason);
        if self.pending != Some(Event::End) {
            return stopped;
        }
        self.at = self.code.nowhere(address);
        Ok(())
    }

    /// Where tracing stops before the first instruction, no code is needed: it may be known only from the next epoch on. Nor where
    /// that one takes a fault, as after a jump to where nothing is (SDM table "FUP Cases and IP Payload": the FUP has its address).
    #[cold]
    pub(super) fn stop_before(&mut self, address: u64, reason: Reason) -> Result<(), Fault> {
        let (mut fault, mut view) = (self.fault(reason), self.view);
        let tells = |walk: &mut Self| walk.tells_uncertainty() || walk.tells_before(address);
        while self.events.count == 0 && (self.pending.is_none() || tells(self)) {
            // In another mode it may be an instruction.
            if self.view != view {
                match self.code.find(self.memory, self.view, address) {
                    Ok(number) => {
                        self.at = number;
                        return Ok(());
                    }
                    Err(reason) => (fault.reason, view) = (reason, self.view),
                }
            }
            self.pending = Some(self.events.next().map_err(|_| fault)?);
        }
        match self.pending {
            Some(Event::AsyncDisable { at, .. }) if at == address => {
                self.at = SCRATCH;
                Ok(())
            }
            Some(Event::AsyncBranch { from, to: Some(_) }) if from == address => {
                self.at = self.code.nowhere(address);
                Ok(())
            }
            Some(Event::End) if self.stops_at_last_packet() => {
                self.at = self.code.nowhere(address);
                Ok(())
            }
            _ => Err(fault),
        }
    }
}

//! What a PSB says of the flow that comes by.

use super::{Ahead, Walk};
use crate::block::BlockKind;
use crate::code_block::{Exit, SCRATCH};
use crate::event::Fault;
use crate::part::Stopped;
use crate::path::told;
use crate::{CodeMemory, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// What a PSB says must fit: it is compared where the flow comes by, at the latest where the next packet is needed.
    #[cold]
    pub(super) fn status(&mut self, ip: Option<u64>) -> Result<Ahead, Fault> {
        let Some(ip) = ip else {
            self.pending = None;
            self.forget_calls();
            return Ok(Ahead::Moved);
        };
        let block = *self.code.block(self.at);
        let mode_fits = match (self.events.mode, self.mode) {
            (Some((says, _)), Some(known)) => says == known,
            _ => true,
        };
        let before = |ip| if ip == self.ip { Some(0) } else { self.instructions_before(&block, ip) };
        // No further back than the PSB before it said.
        let proven = self.further_on().and_then(before);
        if mode_fits && before(ip).is_some_and(|here| proven.is_none_or(|proven| proven <= here)) {
            self.pending = None;
            self.followed = self.events.offset;
            self.bypassed = false;
            // What runs from here on would run again.
            self.events.passed_psb = None;
            self.forget_calls();
            self.hare.rest();
            if S::DIVIDED {
                return self.divide(ip);
            }
            if self.events.mode.is_some() && self.stops_at(self.events.offset) {
                self.runs_up_to(ip, None);
                return Ok(Ahead::Stopped);
            }
            // Behind an overflow the mode may have been another one than was taken for it.
            let other_code = self.events.mode.is_some_and(|(mode, _)| self.view.of_mode(mode) != self.view);
            if other_code {
                self.runs_up_to(ip, None);
            }
            self.proven = (ip != self.ip).then_some((ip, self.statistics.instructions));
            self.take_mode(Some(ip), true);
            self.tell_held();
            if other_code {
                self.go(ip)?;
            }
            return Ok(Ahead::Moved);
        }
        match block.exit {
            Exit::Linear | Exit::Jump | Exit::Call if mode_fits => Ok(Ahead::Run),
            // Where it went is not traced, as wherever it needs a packet.
            Exit::Cond if mode_fits && self.config.without_tnt => Ok(Ahead::Run),
            _ => Err(self.fault(Reason::BadStatus)),
        }
    }

    /// No return is compressed over a PSB (SDM section "Indirect Transfer Compression for Returns").
    pub(super) fn forget_calls(&mut self) {
        self.returns.clear();
        self.program_calls = Default::default();
    }

    /// Tells what ran up to a PSB that nothing followed.
    #[cold]
    pub(super) fn tell_proven(&mut self) {
        if let Some(ip) = self.further_on().filter(|&ip| self.enabled && self.runs_up_to(ip, None)) {
            self.ip = ip;
        }
    }

    /// Where execution is by a PSB, in front of which not all was told.
    pub(super) fn further_on(&self) -> Option<u64> {
        self.proven.filter(|&(_, told)| told == self.statistics.instructions).map(|(ip, _)| ip)
    }

    /// The block about to run ends where the PSB stands, and another one begins.
    fn divide(&mut self, ip: u64) -> Result<Ahead, Fault> {
        self.runs_up_to(ip, None);
        let says_mode = self.events.mode.is_some();
        self.take_mode(Some(ip), true);
        self.tell_held();
        self.fresh = true;
        if self.at != SCRATCH || ip != self.ip {
            self.go(ip)?;
        }
        // Code that is not kept is nothing to go on from.
        if self.at == SCRATCH {
            return Ok(Ahead::Moved);
        }
        let next = told(self.code, self.code.block(self.at), BlockKind::Linear, 0, self.epoch);
        self.sink.psb(&next, self.events.time.now());
        let stops = says_mode && self.pending.is_none() && self.stops_at(self.events.offset);
        Ok(if stops { Ahead::Stopped } else { Ahead::Moved })
    }

    /// The flow is that of the part before, which leads to `ip`.
    #[cold]
    pub(super) fn join(&mut self, ip: u64) -> Result<(), Fault> {
        self.joined = Some(Box::new(self.events.time.clone()));
        (self.enabled, self.fresh) = (true, true);
        self.tell_held();
        self.go(ip)?;
        if self.at == SCRATCH {
            self.joined = None;
            return Ok(());
        }
        let next = told(self.code, self.code.block(self.at), BlockKind::Linear, 0, self.epoch);
        self.sink.joined(&next, self.events.time.now());
        Ok(())
    }

    /// Whether the flow ends at the PSB, which fits it and says what whoever goes on from there has to know.
    pub(super) fn stops_at(&mut self, psb: usize) -> bool {
        let whole = !self.events.busy
            && !self.events.is_behind_overflow()
            && self.epochs.first().is_none_or(|(from, _)| from > self.events.last_offset);
        if !whole || self.events.psb_at != psb || self.stops.binary_search(&psb).is_err() {
            return false;
        }
        self.stopped = Some(self.stopped_at_psb(psb, true));
        true
    }

    pub(super) fn stopped_at_psb(&self, psb: usize, fits: bool) -> Stopped {
        let before = Box::new(self.events.time_before_psb.clone());
        Stopped { psb, fits, before, behind: Box::new(self.events.time.clone()) }
    }
}

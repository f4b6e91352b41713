//! A stream from PSB to PSB: what cannot be decoded between them is lost.

use super::Walk;
use crate::event::Fault;
use crate::{CodeMemory, Loss, Reason, Sink};
use pt_packet::{find_psb, PSB};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// To the end, or to where the walk pauses; on from there.
    pub(super) fn stream(&mut self) {
        loop {
            self.psb_to_psb(self.events.reader.data());
            if self.pauses || self.stopped.is_some() {
                return;
            }
            if !self.pass_missing() {
                break;
            }
        }
        // What was lost may have been in any of those that are left.
        self.enter_epoch(self.events.whole.len());
        self.pauses = false;
    }

    fn psb_to_psb(&mut self, data: &[u8]) {
        let mut going = if std::mem::take(&mut self.pauses) { Some(self.run()) } else { self.begin(data) };
        while let Some(ended) = going {
            let (ended, now) = self.go_on_behind(ended, data);
            let Err(fault) = ended else { return };
            if self.stopped.is_some() {
                return;
            }
            self.joins = None;
            let hidden = matches!(fault.reason, Reason::NoCode | Reason::NoKernelCode);
            // A packet that was cut short may have taken the first bytes of the next PSB for its own.
            let bad = fault.offset.min(self.events.position()).max(self.events.endless_psb);
            self.from = self.again().unwrap_or(bad.saturating_sub(PSB.len() - 1).max(self.followed + 1));
            self.read_on(find_psb(data, self.from).unwrap_or(data.len()));
            self.lost = Loss {
                offset: fault.offset,
                size: 0,
                reason: fault.reason,
                address: if self.enabled || hidden { self.ip } else { 0 },
                epoch: self.epoch,
                tsc0: now,
                tsc1: now,
            };
            self.statistics.errors += 1;
            going = self.begin(data);
        }
    }

    /// Goes on from the next PSB. `None` where there is none, and where the part ends there.
    fn begin(&mut self, data: &[u8]) -> Option<Result<(), Fault>> {
        let psb = find_psb(data, self.from);
        let end = psb.unwrap_or(data.len());
        let offset = self.lost.offset.min(end);
        let lost = Loss { offset, size: end - offset, ..self.lost };
        let Some(psb) = psb else {
            self.lose(lost);
            self.tell_around(None);
            // What looked for a way around may have come to another epoch, but nothing goes on there.
            self.pauses = false;
            return None;
        };
        self.forget();
        self.followed = psb;
        self.enter_epoch(psb);
        let synchronized = self.events.synchronize(psb);
        self.lose(lost);
        self.tell_around(Some(psb));
        if self.events.psb_at == psb && self.stops.binary_search(&psb).is_ok() {
            self.stopped = Some(self.stopped_at_psb(psb, false));
            return None;
        }
        Some(match synchronized {
            Ok(event) => self.flow(event),
            Err(fault) => self.end(fault),
        })
    }

    /// Goes on behind code that does not fit the packets, as long as that is possible. With the time where it ended.
    fn go_on_behind(&mut self, ended: Result<(), Fault>, data: &[u8]) -> (Result<(), Fault>, u64) {
        let (mut ended, mut now) = (ended, self.events.time.now());
        while let (Err(fault), true) = (ended, self.in_code) {
            self.in_code = false;
            self.pass_held();
            if self.config.resume_at_address || fault.reason == Reason::NotTraced {
                ended = self.resume(fault, data.len()).and_then(|going| if going { self.run() } else { Ok(()) });
                now = self.events.time.now();
            } else if self.again().is_none() && self.may_bypass(&fault) {
                ended = self.bypass(fault);
                if ended.is_ok() {
                    ended = self.run();
                    now = self.events.time.now();
                }
            }
        }
        (ended, now)
    }

    /// A PSB that was passed before what went on from there could be followed.
    fn again(&self) -> Option<usize> {
        self.events.passed_psb.filter(|&passed| passed > self.followed)
    }

    pub(super) fn lose(&mut self, lost: Loss) {
        let end = self.events.whole.len().saturating_sub(self.config.appended);
        let lost = Loss { size: lost.size.min(end.saturating_sub(lost.offset)), ..lost };
        if lost.reason == Reason::BeforeFirstPsb {
            if lost.size == 0 {
                return;
            }
            // No fault has ended the flow here that would be counted.
            self.statistics.errors += 1;
        }
        self.statistics.lost_bytes += lost.size as u64;
        self.sink.loss(&Loss { tsc1: self.events.time.now(), ..lost });
    }

    fn forget(&mut self) {
        self.forget_calls();
        self.hare.rest();
        (self.enabled, self.pending, self.stopped_at, self.ip) = (false, None, None, 0);
        (self.mode, self.interrupt_flag, self.fresh) = (None, None, false);
        (self.in_code, self.bypassed, self.postponed) = (false, false, None);
        self.held.clear();
    }
}

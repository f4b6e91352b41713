//! A stream from PSB to PSB: what cannot be decoded between them is lost.

use super::Walk;
use crate::{CodeMemory, Loss, Reason, Sink};
use pt_packet::{find_psb, PSB};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    pub(super) fn stream(&mut self, data: &[u8], from: usize) {
        let mut lost = Loss {
            offset: 0,
            size: 0,
            reason: Reason::BeforeFirstPsb,
            address: 0,
            epoch: self.epochs.first().map_or(0, |&(_, epoch)| epoch),
            tsc0: 0,
            tsc1: 0,
        };
        let mut from = from;
        lost.offset = from;
        loop {
            let psb = find_psb(data, from);
            let end = psb.unwrap_or(data.len());
            lost.offset = lost.offset.min(end);
            lost.size = end - lost.offset;
            let Some(psb) = psb else {
                return self.lose(lost);
            };
            self.forget();
            self.enter_epoch(psb);
            let synchronized = self.events.synchronize(psb);
            self.lose(lost);
            if self.events.psb_at == psb && self.stops.binary_search(&psb).is_ok() {
                self.stopped = Some(self.stopped_at_psb(psb, false));
                return;
            }
            let mut ended = synchronized.and_then(|event| self.flow(event));
            while self.config.resume_at_address || self.config.without_tnt {
                if !self.config.resume_at_address && ended.is_err_and(|fault| fault.reason != Reason::NotTraced) {
                    break;
                }
                let (Err(fault), true) = (ended, self.in_code) else { break };
                self.in_code = false;
                ended = self.resume(fault, data.len()).and_then(|going| if going { self.run() } else { Ok(()) });
            }
            let Err(fault) = ended else { return };
            if self.stopped.is_some() {
                return;
            }
            let now = self.events.time.now();
            let joins = self.joins.take();
            let again = self.events.passed_psb.filter(|&passed| passed > psb || joins == Some(passed));
            // A packet that was cut short may have taken the first bytes of the next PSB for its own.
            let bad = fault.offset.min(self.events.position());
            self.astray |= again == Some(psb);
            from = again.unwrap_or(bad.saturating_sub(PSB.len() - 1).max(psb + 1));
            lost = Loss {
                offset: fault.offset,
                size: 0,
                reason: fault.reason,
                address: self.ip,
                epoch: self.epoch,
                tsc0: now,
                tsc1: now,
            };
            self.statistics.errors += 1;
        }
    }

    pub(super) fn lose(&mut self, lost: Loss) {
        if lost.reason == Reason::BeforeFirstPsb && lost.size == 0 {
            return;
        }
        self.statistics.lost_bytes += lost.size as u64;
        self.sink.loss(&Loss { tsc1: self.events.time.now(), ..lost });
    }

    fn forget(&mut self) {
        self.returns.clear();
        self.hare.rest();
        (self.enabled, self.pending, self.stopped_at, self.ip) = (false, None, None, 0);
        (self.mode, self.interrupt_flag, self.fresh, self.in_code) = (None, None, false, false);
        self.held.clear();
    }
}

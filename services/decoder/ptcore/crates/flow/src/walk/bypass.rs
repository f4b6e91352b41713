//! Going on behind code that is not known, before the next PSB.
//!
//! A TIP.PGE, a FUP with its TIP and an OVF come behind all branches before them (SDM section "Deferred TIPs"): from there
//! on no packet belongs to what was not followed. A TIP alone may come behind branches that follow it.

use super::Walk;
use crate::event::{Event, Fault};
use crate::view::View;
use crate::{CodeMemory, Loss, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Whether the flow may go on behind the fault without a PSB: the packets are whole.
    pub(super) fn may_bypass(&self, fault: &Fault) -> bool {
        match fault.reason {
            Reason::NoCode => true,
            // Of a call by code that is not known.
            Reason::EmptyReturnStack => self.bypassed,
            _ => false,
        }
    }

    /// Goes on where execution is in known code again. False when a PSB comes before, or the end.
    #[cold]
    pub(super) fn bypass(&mut self, fault: Fault) -> bool {
        let (address, epoch, now) = (self.ip, self.epoch, self.events.time.now());
        let counts = (self.events.packets, self.events.psb, self.events.tnt_bits);
        let Some(event) = self.known_again() else {
            (self.events.packets, self.events.psb, self.events.tnt_bits) = counts;
            return false;
        };
        self.events.tnt_bits = counts.2;
        self.statistics.errors += 1;
        let size = self.events.offset.saturating_sub(fault.offset);
        self.lose(Loss { offset: fault.offset, size, reason: fault.reason, address, epoch, tsc0: now, tsc1: now });
        self.returns.clear();
        self.held.clear();
        self.hare.rest();
        (self.enabled, self.stopped_at, self.fresh) = (false, None, false);
        self.events.passed_psb = None;
        self.bypassed = true;
        self.pending = Some(event);
        if let Event::AsyncBranch { from, .. } = event {
            self.stand_nowhere(from);
        }
        true
    }

    fn known_again(&mut self) -> Option<Event> {
        let mut mode = None;
        loop {
            let event = match self.pending.take() {
                Some(event) => event,
                None => {
                    self.events.count = 0;
                    self.events.next().ok()?
                }
            };
            mode = self.events.mode.or(mode);
            let known = match event {
                Event::Enable { ip: Some(ip) } | Event::AsyncBranch { to: Some(ip), .. } => {
                    self.enter_epoch(self.events.last_offset);
                    let view = mode.map_or(self.view, |(mode, _)| View::new(self.epoch, mode));
                    self.code.find(self.memory, view, ip).is_ok()
                }
                Event::Overflow { .. } => true,
                Event::Status { .. } | Event::End => return None,
                _ => false,
            };
            if known {
                self.events.count = 0;
                self.events.mode = mode;
                return Some(event);
            }
        }
    }
}

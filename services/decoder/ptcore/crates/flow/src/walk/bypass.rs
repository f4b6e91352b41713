//! Going on behind code that is not known, before the next PSB.
//!
//! A TIP.PGE, a FUP with its TIP and an OVF come behind all branches before them (SDM section "Deferred TIPs"): from there
//! on no packet belongs to what was not followed. A TIP alone may come behind branches that follow it. What packets say besides
//! the flow needs no code: it is told behind the loss.

use super::Walk;
use crate::event::{Event, Fault};
use crate::{CodeMemory, Loss, NoticeKind, Reason, Sink};
use pt_packet::Execution;

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
        self.enabled = false;
        self.tell_around(None);
        self.returns.clear();
        self.hare.rest();
        (self.stopped_at, self.fresh) = (None, false);
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
        // By a packet of its own.
        let mut noted: Option<Execution> = None;
        loop {
            let event = match self.pending.take() {
                Some(event) => event,
                None => {
                    self.events.count = 0;
                    self.events.next().ok()?
                }
            };
            if self.events.mode.is_some() {
                (mode, noted) = (self.events.mode, None);
            }
            let known = match event {
                Event::Enable { ip: Some(ip) } | Event::AsyncBranch { to: Some(ip), .. } => {
                    self.enter_epoch(self.events.last_offset);
                    let execution = noted.or(mode.map(|(execution, _)| execution));
                    let view = execution.map_or(self.view, |execution| self.view.of_mode(execution));
                    self.code.find(self.memory, view, ip).is_ok()
                }
                Event::Overflow { .. } => true,
                Event::Note => {
                    let placed = self.events.note.take();
                    if let Some(NoticeKind::ExecutionMode(execution)) = placed.map(|placed| placed.notice.kind) {
                        (mode, noted) = (None, Some(execution));
                    }
                    self.pass_note(placed);
                    false
                }
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

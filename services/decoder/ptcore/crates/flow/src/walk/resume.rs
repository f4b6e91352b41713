//! Going on behind code that does not fit the packets.

use super::Walk;
use crate::event::{Event, Fault};
use crate::notice::{Place, Placed};
use crate::{CodeMemory, DisableKind, Loss, Notice, NoticeKind, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Goes on at the next packet that says where, behind code that does not fit the packets. False at the end.
    #[cold]
    pub(super) fn resume(&mut self, fault: Fault, end: usize) -> Result<bool, Fault> {
        let now = self.events.time.now();
        self.forget_calls();
        self.hare.rest();
        self.enabled = false;
        let traced = fault.reason != Reason::NotTraced;
        let event = loop {
            // Branches that are left do not fit either.
            self.events.count = 0;
            let event = match self.pending.take() {
                // Its place was not found from its own address on.
                Some(Event::Note) if std::mem::take(&mut self.resumed_at_note) => {
                    let placed = self.events.note.take();
                    self.pass_note(placed);
                    continue;
                }
                Some(event) => event,
                // What follows is one loss with this.
                None => self.events.next().map_err(|bad| if traced { fault } else { bad })?,
            };
            match event {
                Event::Branches | Event::Target { ip: None } | Event::AsyncBranch { to: None, .. } => {}
                Event::Note => match self.events.note {
                    Some(Placed { notice: Notice { ip: None, .. }, .. }) => {
                        self.pass_note(self.events.note);
                    }
                    _ => break event,
                },
                _ => break event,
            }
        };
        let resumed = if event == Event::End { end } else { self.events.offset };
        let size = if traced { resumed.saturating_sub(fault.offset) } else { 0 };
        self.statistics.errors += u64::from(traced);
        let (address, epoch) = (self.ip, self.epoch);
        self.lose(Loss { offset: fault.offset, size, reason: fault.reason, address, epoch, tsc0: now, tsc1: now });
        self.tell_around(None);
        match event {
            Event::Target { ip: Some(ip) } | Event::Status { ip: Some(ip) } => {
                if let Event::Status { .. } = event {
                    self.followed = self.events.offset;
                }
                self.events.passed_psb = None;
                self.take_mode(Some(ip), false);
                self.enter_epoch(self.events.last_offset);
                self.stand_at(ip)?;
            }
            Event::AsyncBranch { from: ip, .. } | Event::AsyncDisable { at: ip, .. } => {
                self.stand_nowhere(ip);
                self.pending = Some(event);
            }
            Event::Note => {
                let Some(placed) = self.events.note else { return Ok(true) };
                let Placed { notice, place, .. } = placed;
                let ip = notice.ip.unwrap_or(0);
                self.notice(Notice { kind: NoticeKind::Standing, ip: Some(ip), status: true });
                self.enabled = true;
                self.sink.enabled(ip, false, self.events.time.now());
                if place == Place::Before(ip) {
                    self.notice(notice);
                }
                self.fresh = true;
                let goes = self.go(ip);
                if goes.is_err() && place != Place::Before(ip) {
                    self.pass_note(Some(placed));
                }
                goes?;
                if place != Place::Before(ip) {
                    match self.pending {
                        None => (self.pending, self.resumed_at_note) = (Some(event), true),
                        // The code that it stands behind is not known.
                        Some(_) => self.notice(notice),
                    }
                }
            }
            Event::Enable { .. } => {
                let mode = self.events.mode;
                self.stop(DisableKind::Synchronous, 0, None, 0);
                self.events.mode = mode;
                self.pending = Some(event);
            }
            Event::Disable { ip } => self.stop(DisableKind::Synchronous, 0, ip, 0),
            Event::End => return Ok(false),
            _ => self.pending = Some(event),
        }
        Ok(true)
    }
}

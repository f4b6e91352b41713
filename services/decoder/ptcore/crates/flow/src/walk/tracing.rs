//! Where tracing begins, ends and is disabled.

use super::Walk;
use crate::event::{Event, Fault};
use crate::view::is_kernel;
use crate::{CodeMemory, DisableKind, Notice, NoticeKind, Sink};
use pt_packet::Execution;

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// While tracing is disabled.
    pub(super) fn idle(&mut self) -> Result<bool, Fault> {
        let event = match self.pending.take() {
            Some(event) => event,
            None => {
                self.pass_times();
                self.events.next()?
            }
        };
        if let Event::Status { .. } = event {
            self.forget_calls();
        }
        match event {
            Event::Enable { ip: Some(ip) } => {
                self.take_mode(Some(ip), false);
                self.enter_epoch(self.events.last_offset);
                let ip = self.stands_at(ip);
                self.enable(ip)?;
            }
            Event::Status { ip: Some(ip) } => {
                self.followed = self.events.offset;
                self.take_mode(Some(ip), true);
                self.enter_epoch(self.events.last_offset);
                if S::DIVIDED && self.joins == Some(self.events.offset) {
                    self.join(ip)?;
                    return Ok(true);
                }
                self.stand_at(ip)?;
            }
            Event::Overflow { ip } => self.overflow(ip)?,
            Event::Note => {
                if let Some(placed) = self.events.note.take().filter(|placed| !self.was_told(placed)) {
                    self.notice(placed.notice);
                }
            }
            Event::End => return Ok(false),
            Event::Status { ip: None } | Event::Disable { .. } => {
                let status = matches!(event, Event::Status { .. });
                self.take_mode(None, status);
                self.tell_held();
                if status {
                    // From there on the same would follow.
                    self.events.passed_psb = None;
                }
                // What comes next says where it is, but need not say in which mode.
                let usual = self.view.execution() == Execution::Bits64;
                if status && usual && !S::DIVIDED && self.stops_at(self.events.offset) {
                    return Ok(false);
                }
            }
            _ => return Err(self.unexpected(&event)),
        }
        Ok(true)
    }

    fn enable(&mut self, ip: u64) -> Result<(), Fault> {
        (self.enabled, self.proven) = (true, None);
        if !is_kernel(ip) {
            self.leaves_kernel();
        }
        self.hare.rest();
        self.events.passed_psb = None;
        let resumed = self.stopped_at.take() == Some(ip);
        self.sink.enabled(ip, resumed, self.events.time.now());
        self.tell_held();
        self.fresh = true;
        self.go(ip)
    }

    /// Execution is known to be at `ip` without a TIP.PGE.
    pub(super) fn stand_at(&mut self, ip: u64) -> Result<(), Fault> {
        self.notice(Notice { kind: NoticeKind::Standing, ip: Some(ip), status: true });
        self.enable(ip)
    }

    /// Execution is known to be at `ip`, which it leaves at once: only what happens there is of interest, not the code.
    pub(super) fn stand_nowhere(&mut self, ip: u64) {
        self.notice(Notice { kind: NoticeKind::Standing, ip: Some(ip), status: true });
        self.sink.enabled(ip, false, self.events.time.now());
        (self.enabled, self.ip, self.at) = (true, ip, self.code.nowhere(ip));
    }

    pub(super) fn overflow(&mut self, ip: Option<u64>) -> Result<(), Fault> {
        self.pending = None;
        if self.enabled {
            self.tell_proven();
            self.tell_held();
        }
        let from = self.enabled.then_some(self.ip);
        self.sink.overflow(self.events.offset, from, self.events.time.now());
        self.forget_calls();
        (self.mode, self.interrupt_flag) = (None, None);
        self.take_mode(ip, false);
        self.enter_epoch(self.events.last_offset);
        (self.enabled, self.stopped_at) = (false, None);
        ip.map_or(Ok(()), |ip| self.stand_at(ip))
    }

    pub(super) fn stop(&mut self, kind: DisableKind, at: u64, target: Option<u64>, stopped_at: u64) {
        self.pending = None;
        self.enabled = false;
        self.pauses |= self.is_trial;
        self.stopped_at = Some(stopped_at);
        self.hare.rest();
        self.tell_held();
        self.take_mode(None, false);
        self.enter_epoch(self.events.last_offset);
        self.sink.disabled(kind, at, target, self.events.time.now());
        self.tell_held();
    }
}

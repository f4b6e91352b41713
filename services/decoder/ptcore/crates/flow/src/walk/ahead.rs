//! The next event, which may concern the block about to run.

use super::{Ahead, Walk};
use crate::code_block::{Exit, Mark};
use crate::event::{Event, Fault};
use crate::{BlockKind, CodeMemory, DisableKind, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Looks at the next event when no branches are left: it may concern the block about to run.
    pub(super) fn ahead(&mut self) -> Result<Ahead, Fault> {
        let event = match self.pending {
            Some(event) => event,
            None => {
                let event = self.events.next()?;
                if event == Event::Branches {
                    return self.taken_up(self.ip).map(|()| Ahead::Moved);
                }
                self.pending = Some(event);
                event
            }
        };
        match self.at_current_ip(event) {
            Event::Target { .. } => Ok(Ahead::Run),
            Event::End if self.stops_at_last_packet() => Ok(Ahead::Stopped),
            Event::Disable { ip: None } if self.code.block(self.at).has(Mark::Cr3) => Ok(self.disabled_by_cr3()),
            Event::Disable { .. } | Event::End => Ok(Ahead::Run),
            Event::Note => self.note(),
            Event::AsyncBranch { from, to } if self.runs_up_to(from, to) => {
                let Some(to) = to else { return Err(self.fault(Reason::SuppressedTarget)) };
                self.pauses |= self.is_trial;
                self.crosses(from, to);
                if self.enters_hidden(from, to) {
                    return Err(self.leave_for_hidden(DisableKind::Asynchronous, from, to, from));
                }
                self.tell_held();
                self.sink.interrupt(from, to, self.events.time.now());
                self.taken_up(to).map(|()| Ahead::Moved)
            }
            Event::AsyncDisable { at, ip } if self.enters_vm(at) => {
                self.pending = Some(Event::Disable { ip });
                Ok(Ahead::Run)
            }
            Event::AsyncDisable { at, ip } if at == self.ip || self.runs_up_to(at, ip) => {
                self.ip = at;
                self.stop(DisableKind::Asynchronous, at, ip, at);
                Ok(Ahead::Stopped)
            }
            Event::AsyncBranch { .. } | Event::AsyncDisable { .. } => Ok(Ahead::Run),
            Event::Overflow { ip } => self.overflow(ip).map(|()| Ahead::Stopped),
            Event::Status { ip } => self.status(ip),
            Event::Enable { .. } | Event::Branches => Err(self.unexpected(&event)),
        }
    }

    /// An interruption with the address of the branch where it was, of which the FUP may have the one behind it: that is not come
    /// to without a target ([`pt_packet::Errata::fup_with_nlip`]).
    #[inline(always)]
    fn at_current_ip(&self, event: Event) -> Event {
        if !self.config.errata.fup_with_nlip {
            return event;
        }
        let block = self.code.block(self.at);
        let needs_target =
            block.exit.is_far() || matches!(block.exit, Exit::IndirectJump | Exit::IndirectCall | Exit::Return);
        match event {
            Event::AsyncBranch { from, to } if needs_target && from == block.end => {
                Event::AsyncBranch { from: block.last, to }
            }
            Event::AsyncDisable { at, ip } if needs_target && at == block.end => {
                Event::AsyncDisable { at: block.last, ip }
            }
            event => event,
        }
    }

    /// Whether what looks like an interrupt is the VM entry with which the block about to run ends.
    fn enters_vm(&self, at: u64) -> bool {
        let block = self.code.block(self.at);
        self.config.errata.skd022 && block.last == at && block.has(Mark::VmEntry)
    }

    /// A TIP.PGD without address may also be of an instruction that changes CR3.
    #[cold]
    fn disabled_by_cr3(&mut self) -> Ahead {
        let block = *self.code.block(self.at);
        let Some(count) = self.code.behind(self.memory, self.view, &block, Mark::Cr3) else { return Ahead::Run };
        let end = self.tell_first(&block, count, BlockKind::Far, 0);
        let last = end - u64::from(self.code.lengths(&block)[usize::from(count) - 1]);
        self.stop(DisableKind::Synchronous, last, None, end);
        Ahead::Stopped
    }

    /// The pending event is used up; execution goes on at `ip`.
    pub(super) fn taken_up(&mut self, ip: u64) -> Result<(), Fault> {
        let branches = self.pending.take().is_none();
        self.events.passed_psb = None;
        self.fresh = true;
        if self.events.mode.is_some() || !self.held.is_empty() {
            self.take_mode(Some(ip), false);
            self.tell_held();
        }
        let view = self.view;
        self.enter_epoch(self.events.last_offset);
        if branches && view == self.view {
            return Ok(());
        }
        self.hare.rest();
        self.go(ip)
    }
}

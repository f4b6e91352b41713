//! Going on behind code that is not known, before the next PSB.
//!
//! A TIP.PGE, a FUP with its TIP and an OVF come behind all branches before them (SDM section "Deferred TIPs"): from there
//! on no packet belongs to what was not followed. A TIP alone may come behind branches that follow it, of which `deferred.rs` finds out
//! how many. What packets say besides the flow needs no code: it is told behind the loss.

use super::deferred::{Branches, Reached};
use super::Walk;
use crate::code::is_extensible;
use crate::event::{Event, Fault, Mode};
use crate::view::is_kernel;
use crate::{CodeMemory, Loss, NoticeKind, Reason, Sink};
use pt_packet::Execution;

/// What trials may read for each byte that is passed, and besides: a crafted stream is decoded that much more slowly at most.
const TRIALS: usize = 32;
const FIRST_TRIALS: usize = 1 << 8;

/// What was passed.
#[derive(Default)]
struct Passed {
    /// Where in the kernel it ended, if it did.
    in_kernel: Option<u64>,
    /// The program may have run.
    program_ran: bool,
    /// Of the kernel, too, more is known than where the program went.
    in_known_kernel: bool,
    /// Those that may have run behind the next target, and whether they were read here.
    branches: Branches,
    read: bool,
    /// What trials read.
    tried: usize,
    /// The mode as a packet behind which an address comes says it, or one by itself.
    mode: Option<Mode>,
    noted: Option<Execution>,
    /// Packets up to the last PSB.
    packets: u64,
}

impl Passed {
    /// Whether something of the program may be in it: a kernel that is hidden as a whole is as if it was not traced.
    fn of_program(&self) -> bool {
        self.program_ran || self.in_known_kernel
    }
}

/// Why no more is passed.
enum Found {
    /// Execution is in known code again, as the event says, with these branches behind it.
    Known(Event, Branches),
    /// Another thread runs in the kernel from the event on.
    Other(Event),
    /// A PSB, the end, or what is no packet.
    Nothing,
}

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Whether the flow may go on behind the fault without a PSB: the packets are whole.
    pub(super) fn may_bypass(&self, fault: &Fault) -> bool {
        match fault.reason {
            Reason::NoCode | Reason::NoKernelCode => true,
            // What is no instruction at all is rather where the flow has gone astray, by the code, a packet or the mode.
            Reason::BadInstruction => self.mode.is_some() && self.may_be_newer(),
            // Of a call by code that is not known.
            Reason::EmptyReturnStack => self.bypassed,
            _ => false,
        }
    }

    /// Whether what stands at the address that could not be read may be an instruction that came after the disassembler.
    fn may_be_newer(&self) -> bool {
        self.memory.read(self.view.epoch(), self.ip).is_some_and(|code| is_extensible(code.bytes))
    }

    /// Goes on where execution is in known code again, or in the kernel where another thread runs. Fails when a PSB comes before,
    /// or the end.
    #[cold]
    pub(super) fn bypass(&mut self, fault: Fault) -> Result<(), Fault> {
        let (address, epoch, now) = (self.ip, self.epoch, self.events.time.now());
        let mut passed = Passed {
            in_kernel: Some(address).filter(|&address| is_kernel(address)),
            program_ran: !is_kernel(address),
            in_known_kernel: fault.reason != Reason::NoKernelCode,
            branches: Branches::of(&self.events),
            packets: self.events.packets,
            ..Passed::default()
        };
        let tnt_bits = self.events.tnt_bits;
        let found = self.known_again(&fault, &mut passed);
        let reason = match fault.reason {
            Reason::NoKernelCode if passed.of_program() => Reason::NoCode,
            reason => reason,
        };
        let (event, branches) = match found {
            Found::Known(event, branches) => (event, branches),
            Found::Other(event) => (event, passed.branches),
            Found::Nothing => {
                self.events.packets = passed.packets;
                self.events.tnt_bits = tnt_bits;
                return Err(Fault { reason, ..fault });
            }
        };
        self.events.tnt_bits = tnt_bits + if passed.read { branches.count.into() } else { 0 };
        let size = self.events.offset.saturating_sub(fault.offset);
        if size != 0 || reason != Reason::NoKernelCode {
            self.statistics.errors += 1;
            self.lose(Loss { offset: fault.offset, size, reason, address, epoch, tsc0: now, tsc1: now });
        }
        self.enabled = false;
        self.tell_around(None);
        if reason != Reason::NoKernelCode {
            self.stopped_at = None;
        }
        self.hare.rest();
        self.fresh = false;
        (self.events.passed_psb, self.events.mode) = (None, passed.mode);
        (self.events.bits, self.events.count) = (branches.bits, branches.count);
        self.pending = Some(event);
        match (found, event) {
            (Found::Other(_), _) => {
                self.forget_calls();
                (self.stopped_at, self.bypassed) = (None, true);
                self.ip = passed.in_kernel.unwrap_or(address);
                self.postponed = Some(self.fault(Reason::NoKernelCode));
                self.sink.loss_ends();
                self.enter_epoch(self.events.last_offset);
            }
            (_, Event::AsyncBranch { from, .. }) => self.stand_nowhere(from),
            _ => {}
        }
        Ok(())
    }

    /// Where no more is passed.
    fn known_again(&mut self, fault: &Fault, passed: &mut Passed) -> Found {
        loop {
            let event = self.pending.take().map_or_else(|| self.next_without_branches(), Ok);
            let Ok(event) = event else {
                passed.program_ran = true;
                return Found::Nothing;
            };
            if self.events.mode.is_some() {
                (passed.mode, passed.noted) = (self.events.mode, None);
            }
            if event == Event::Branches {
                (passed.branches, passed.read) = (Branches::of(&self.events), true);
            }
            let is_end = matches!(event, Event::Status { .. } | Event::End);
            if !is_end && passed.in_kernel.is_some() && self.enter_epoch_of_thread(self.events.last_offset) {
                return Found::Other(event);
            }
            if let Some(found) = self.pass(event, fault, passed) {
                return found;
            }
        }
    }

    /// Passes an event; where no more is passed, why.
    fn pass(&mut self, event: Event, fault: &Fault, passed: &mut Passed) -> Option<Found> {
        if !matches!(event, Event::Branches | Event::Target { .. } | Event::Note) {
            passed.branches = Branches::default();
        }
        match event {
            Event::Target { ip: Some(ip) } => {
                let count = self.arrives(ip, fault, passed)?;
                return Some(Found::Known(Event::Enable { ip: Some(ip) }, passed.branches.last(count)));
            }
            Event::Enable { ip: Some(ip) } | Event::AsyncBranch { to: Some(ip), .. } => {
                if let Event::AsyncBranch { from, .. } = event {
                    passed.program_ran |= !is_kernel(from);
                }
                self.arrives(ip, fault, passed)?;
                return Some(Found::Known(event, Branches::default()));
            }
            Event::Overflow { .. } => {
                passed.program_ran = true;
                return Some(Found::Known(event, Branches::default()));
            }
            Event::Note => {
                let placed = self.events.note.take();
                self.pass_note(placed);
                match placed?.notice.kind {
                    NoticeKind::ExecutionMode(execution) => (passed.mode, passed.noted) = (None, Some(execution)),
                    // What stood in front of it ran there.
                    NoticeKind::Paging { .. } => passed.branches = Branches::default(),
                    _ => {}
                }
            }
            // Of the program it says nothing but that there are no calls to return from.
            Event::Status { ip: Some(ip) } if self.is_hidden(ip) => {
                passed.in_kernel = Some(ip);
                passed.packets = self.events.packets;
                self.forget_calls();
                (self.followed, self.bypassed) = (self.events.offset, false);
            }
            Event::Status { ip } => {
                passed.program_ran |= ip.is_some();
                return Some(Found::Nothing);
            }
            Event::End => return Some(Found::Nothing),
            Event::AsyncDisable { at: from, .. } | Event::AsyncBranch { from, to: None } => {
                passed.program_ran |= !is_kernel(from);
            }
            Event::Target { ip: None } | Event::Enable { ip: None } => passed.program_ran = true,
            Event::Branches | Event::Disable { .. } => {}
        }
        None
    }

    fn next_without_branches(&mut self) -> Result<Event, Fault> {
        self.events.count = 0;
        self.events.next()
    }

    /// How many of the branches in front ran behind the arrival at `ip`, where it is certain that the flow goes on there.
    fn arrives(&mut self, ip: u64, fault: &Fault, passed: &mut Passed) -> Option<u32> {
        self.enter_epoch(self.events.last_offset);
        let execution = passed.noted.or(passed.mode.map(|(execution, _)| execution));
        let view = execution.map_or(self.view, |execution| self.view.of_mode(execution));
        let is_known = self.code.find(self.memory, view, ip).is_ok();
        passed.in_known_kernel |= is_known && is_kernel(ip);
        if !is_known {
            passed.in_kernel = Some(ip).filter(|&ip| is_kernel(ip));
            passed.program_ran |= !is_kernel(ip);
            return None;
        }
        // What the kernel calls returns in it.
        if passed.of_program() {
            if passed.program_ran || !self.goes_on_behind_kernel(ip) {
                self.forget_calls();
            }
            self.bypassed = true;
        }
        let bytes = self.events.position().saturating_sub(fault.offset);
        let room = (FIRST_TRIALS + TRIALS * bytes).saturating_sub(passed.tried);
        let mut left = room;
        let target = Reached { ip, view, branches: passed.branches, from_kernel: passed.in_kernel.is_some() };
        let behind = self.deferred(target, &mut left);
        passed.tried += room - left;
        passed.program_ran |= behind.is_none() && !is_kernel(ip);
        behind
    }
}

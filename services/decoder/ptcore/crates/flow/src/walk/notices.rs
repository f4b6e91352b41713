//! Notices in their places among the instructions.

use super::{Ahead, Walk};
use crate::code_block::{Exit, Mark};
use crate::event::{Event, Fault};
use crate::events::MOST_NOTES;
use crate::notice::{Place, Placed};
use crate::{BlockKind, CodeMemory, Notice, NoticeKind, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// A pending note in its place among the instructions of the block about to run.
    #[cold]
    pub(super) fn note(&mut self) -> Result<Ahead, Fault> {
        let Some(placed) = self.events.note else {
            self.pending = None;
            return Ok(Ahead::Moved);
        };
        if std::mem::take(&mut self.fresh) {
            self.mark = self.statistics.instructions;
        }
        let block = *self.code.block(self.at);
        let direct = matches!(block.exit, Exit::Linear | Exit::Jump | Exit::Call);
        let count = match placed.place {
            // A PSB may have said that some of the block ran.
            Place::Here => self.further_on().and_then(|ip| self.instructions_before(&block, ip)).or(Some(0)),
            Place::Before(ip) if ip == self.ip => Some(0),
            Place::Before(ip) => self.instructions_before(&block, ip),
            Place::Behind(ip) => self.instructions_before(&block, ip).map(|before| before + 1),
            Place::PtWrite => self.code.behind(self.memory, self.view, &block, Mark::PtWrite),
            Place::Cr3 if !block.exit.is_far() || block.has(Mark::Cr3) => {
                self.code.behind(self.memory, self.view, &block, Mark::Cr3)
            }
            Place::Vmcs if !block.exit.is_far() || block.has(Mark::Vmcs) => {
                self.code.behind(self.memory, self.view, &block, Mark::Vmcs)
            }
            Place::Branch | Place::Cr3 | Place::Vmcs => (!direct).then_some(block.instructions),
            Place::After(number) => {
                let left = (self.mark + u64::from(number)).saturating_sub(self.statistics.instructions);
                (left < u64::from(block.instructions)).then_some(left as u16)
            }
        };
        let count = match count {
            Some(within) if within < block.instructions => count,
            // No more runs than its branch.
            _ if self.disables_behind_notes(&block) => Some(0),
            _ => count,
        };
        match count {
            None => Ok(Ahead::Run),
            Some(0) => {
                (self.pending, self.resumed_at_note) = (None, false);
                if placed.psb.is_some() && matches!(placed.notice.kind, NoticeKind::Maintenance(_)) {
                    self.maintained = placed.psb;
                }
                self.notice_ahead(placed.notice)?;
                Ok(Ahead::Moved)
            }
            Some(count) if count < block.instructions || block.exit == Exit::Linear => {
                (self.pending, self.resumed_at_note) = (None, false);
                let next = self.tell_first(&block, count, BlockKind::Linear, 0);
                self.ip = next;
                if placed.place == Place::Cr3 {
                    // No packet need tell that another thread runs from there on.
                    self.enter_epoch(self.events.last_offset);
                }
                if placed.place == Place::PtWrite {
                    let last = next - u64::from(self.code.lengths(&block)[usize::from(count) - 1]);
                    self.sink.notice(&Notice { ip: Some(last), ..placed.notice }, self.events.time.now());
                } else {
                    self.notice(placed.notice);
                }
                self.go(next)?;
                Ok(Ahead::Moved)
            }
            // Behind the last instruction, which leads elsewhere.
            Some(_) if direct => {
                self.events.note = Some(Placed { place: Place::Before(block.target), ..placed });
                Ok(Ahead::Run)
            }
            Some(_) => {
                (self.pending, self.resumed_at_note) = (None, false);
                if self.held.len() < MOST_NOTES {
                    self.held.push(placed.notice);
                }
                Ok(Ahead::Moved)
            }
        }
    }

    /// An MNT of a PSB that the flow came by and did not fit, from which it goes on.
    #[cold]
    pub(super) fn was_told(&self, placed: &Placed) -> bool {
        let of_psb = placed.psb.is_some() && placed.psb == self.maintained;
        of_psb && matches!(placed.notice.kind, NoticeKind::Maintenance(_))
    }

    /// A pending note of which the place did not come by.
    #[cold]
    pub(super) fn late_note(&mut self) -> Result<Ahead, Fault> {
        (self.pending, self.resumed_at_note) = (None, false);
        let Some(Placed { notice, .. }) = self.events.note.take() else { return Ok(Ahead::Moved) };
        // The branch before an abort may be recorded wrongly: execution is where the abort was.
        if let NoticeKind::Transaction { aborted: true, .. } = notice.kind {
            if let Some(ip) = notice.ip.filter(|_| self.config.errata.bdm64) {
                self.notice(notice);
                self.go(ip)?;
                return Ok(Ahead::Moved);
            }
        }
        self.notice_ahead(notice)?;
        Ok(Ahead::Moved)
    }

    /// Tells a notice in front of the block about to run, which in another mode is another one.
    fn notice_ahead(&mut self, notice: Notice) -> Result<(), Fault> {
        let view = self.view;
        self.notice(notice);
        if self.view == view {
            return Ok(());
        }
        self.go(self.ip)
    }

    /// A note where the flow is lost, which is told behind the loss; of too many the first ones.
    #[cold]
    pub(super) fn pass_note(&mut self, placed: Option<Placed>) {
        let now = self.events.time.now();
        self.around.extend(placed.filter(|_| self.around.len() < MOST_NOTES).map(|placed| (placed, now)));
    }

    /// The notes of a branch that is lost.
    #[cold]
    pub(super) fn pass_held(&mut self) {
        for notice in std::mem::take(&mut self.held) {
            self.pass_note(Some(Placed { notice, place: Place::Here, psb: None }));
        }
    }

    /// Tells what was passed where the flow was lost, up to the PSB where it goes on.
    #[cold]
    pub(super) fn tell_around(&mut self, psb: Option<usize>) {
        for (Placed { notice, psb: of, .. }, tsc) in std::mem::take(&mut self.around) {
            if psb.is_none() || of != psb {
                self.notice_at(notice, tsc);
            }
        }
    }

    /// Tells a notice; a mode is taken over.
    #[cold]
    pub(super) fn notice(&mut self, notice: Notice) {
        self.notice_at(notice, self.events.time.now());
    }

    fn notice_at(&mut self, notice: Notice, tsc: u64) {
        let mut notice = notice;
        match notice.kind {
            NoticeKind::ExecutionMode(mode) => {
                if self.mode.replace(mode) == Some(mode) {
                    return;
                }
                self.look_in(self.view.of_mode(mode));
            }
            NoticeKind::InterruptFlag(flag) if self.interrupt_flag.replace(flag) == Some(flag) => return,
            NoticeKind::Trigger { .. } => {
                notice.ip = notice.ip.or(self.enabled.then_some(self.ip));
                self.mark = self.statistics.instructions;
            }
            _ => {}
        }
        if notice.ip.is_some() {
            self.mark = self.statistics.instructions;
        }
        self.sink.notice(&notice, tsc);
    }

    #[cold]
    pub(super) fn tell_held(&mut self) {
        if !self.held.is_empty() {
            for notice in std::mem::take(&mut self.held) {
                self.sink.notice(&notice, self.events.time.now());
            }
        }
    }

    /// Tells a pending notice that stands in front of the instruction at `address`, which need not be known.
    pub(super) fn tells_before(&mut self, address: u64) -> bool {
        let pending = self.events.note.filter(|_| self.pending == Some(Event::Note));
        let Some(Placed { notice, .. }) = pending.filter(|note| note.place == Place::Before(address)) else {
            return false;
        };
        (self.pending, self.resumed_at_note, self.events.note) = (None, false, None);
        self.notice(notice);
        true
    }

    /// Tells a pending uncertainty of the clock, which no code is needed to place.
    pub(super) fn tells_uncertainty(&mut self) -> bool {
        let Some(Placed { notice, .. }) = self.events.note.filter(|_| self.pending == Some(Event::Note)) else {
            return false;
        };
        if !matches!(notice.kind, NoticeKind::Uncertainty(_)) {
            return false;
        }
        (self.pending, self.resumed_at_note, self.events.note) = (None, false, None);
        self.notice(notice);
        true
    }
}

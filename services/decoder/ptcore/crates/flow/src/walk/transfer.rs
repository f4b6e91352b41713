//! Branches that need more than a bit: targets and what disables tracing.

use super::{Ahead, Walk};
use crate::code_block::{CodeBlock, Exit};
use crate::event::{Event, Fault};
use crate::{BlockKind, CodeMemory, DisableKind, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// A branch that needs a packet other than the branches at hand.
    pub(super) fn transfer(&mut self, number: u32, block: &CodeBlock) -> Result<Ahead, Fault> {
        let event = match self.pending {
            Some(event) => event,
            // Targets may stand behind branches that come after them (SDM section "Deferred TIPs").
            None => {
                let next = self.events.next();
                if next.is_err() {
                    self.tell_before_last(block);
                }
                *self.pending.insert(next?)
            }
        };
        let led = match event {
            Event::Disable { ip } => ip.or_else(|| self.way_out(block)),
            _ => None,
        };
        let kind = match block.exit {
            Exit::Cond if led == Some(block.end) => BlockKind::CondNotTaken,
            Exit::Cond => BlockKind::CondTaken,
            Exit::Return => BlockKind::Return,
            Exit::IndirectCall => BlockKind::IndirectCall,
            Exit::IndirectJump => BlockKind::IndirectJump,
            Exit::FarCall => BlockKind::FarCall,
            _ => BlockKind::Far,
        };
        match event {
            Event::Target { ip: Some(ip) } if block.exit != Exit::Cond => {
                self.tell(block, kind, ip);
                if block.exit.is_far() {
                    self.pauses |= self.is_trial;
                    self.crosses(block.last, ip);
                    if self.enters_hidden(block.last, ip) {
                        return Err(self.leave_for_hidden(DisableKind::Synchronous, block.last, ip, block.end));
                    }
                }
                match kind {
                    BlockKind::IndirectCall => self.returns.push(block.end, number),
                    // Each near return takes one from the stack (SDM section "Indirect Transfer Compression for Returns").
                    BlockKind::Return => drop(self.returns.pop()),
                    _ => {}
                }
                self.hare.rest();
                self.taken_up(ip)?;
                Ok(Ahead::Moved)
            }
            Event::Target { ip: None } if block.exit != Exit::Cond => {
                self.tell_before_last(block);
                Err(self.fault(Reason::SuppressedTarget))
            }
            Event::End => {
                self.tell_before_last(block);
                Ok(Ahead::Stopped)
            }
            // Targets that were to come behind these branches were lost.
            Event::Overflow { ip } => {
                self.tell_before_last(block);
                self.overflow(ip).map(|()| Ahead::Stopped)
            }
            Event::Note => self.late_note(),
            _ if block.exit == Exit::Cond && self.config.without_tnt => {
                self.tell_before_last(block);
                Err(self.fault(Reason::NotTraced))
            }
            Event::Disable { ip } if self.events.count == 0 => {
                self.tell(block, kind, led.unwrap_or(0));
                if kind == BlockKind::Return {
                    self.returns.pop();
                }
                self.stop(DisableKind::Synchronous, block.last, ip, block.end);
                Ok(Ahead::Stopped)
            }
            Event::Status { .. } => Err(self.fault(Reason::BadStatus)),
            _ => {
                self.tell_before_last(block);
                Err(self.unexpected(&event))
            }
        }
    }

    /// Whether a direct branch is what disables tracing.
    #[inline(always)]
    pub(super) fn disables(&mut self, block: &CodeBlock) -> bool {
        match self.pending {
            Some(Event::Disable { ip }) => self.disabled_by(block, ip),
            _ => false,
        }
    }

    /// The same where notes wait in front of what disables it.
    pub(super) fn disables_behind_notes(&self, block: &CodeBlock) -> bool {
        matches!(block.exit, Exit::Jump | Exit::Call)
            && self.events.disable_ahead().is_some_and(|ip| self.leaves(block, ip))
    }

    /// Whether direct branches may disable tracing and not say where they lead: out of the filtered addresses alone.
    pub(super) fn direct_branches_disable(&self) -> bool {
        self.config.errata.skl014 && !self.config.filter.is_empty()
    }

    /// Where a conditional branch led that disabled tracing: packets do not say, but one way alone may leave the filtered
    /// addresses.
    fn way_out(&self, block: &CodeBlock) -> Option<u64> {
        let filter = &self.config.filter;
        match (block.exit, filter.traces(block.target), filter.traces(block.end)) {
            (Exit::Cond, false, true) => Some(block.target),
            (Exit::Cond, true, false) => Some(block.end),
            _ => None,
        }
    }

    /// Whether a direct branch leads to where tracing was disabled.
    pub(super) fn leaves(&self, block: &CodeBlock, ip: Option<u64>) -> bool {
        match ip {
            Some(ip) => ip == block.target,
            None => self.direct_branches_disable() && !self.config.filter.traces(block.target),
        }
    }

    #[cold]
    fn disabled_by(&mut self, block: &CodeBlock, ip: Option<u64>) -> bool {
        if !self.leaves(block, ip) || self.events.count != 0 {
            return false;
        }
        let kind = if block.exit == Exit::Call { BlockKind::Call } else { BlockKind::Jump };
        self.tell(block, kind, block.target);
        self.stop(DisableKind::Synchronous, block.last, ip, block.end);
        true
    }
}

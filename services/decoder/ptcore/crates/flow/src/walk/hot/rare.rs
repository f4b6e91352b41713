//! Along leads that hardly came before: block by block, as most of them do not come again.

use super::Walk;
use crate::code_block::{Exit, Way, SCRATCH};
use crate::cond_branches::CondBranches;
use crate::lead::Lead;
use crate::path::told;
use crate::returns::Open;
use crate::tally::MOST_STEPS;
use crate::{BlockKind, CodeMemory, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Runs the blocks that the lead leads through, up to what a path cannot go over, if it hardly came before; returns what is
    /// left of it.
    #[cold]
    #[inline(never)]
    pub(super) fn run_while_rare(&mut self, lead: Lead, now: u64) -> Lead {
        if !self.code.paths.is_rare(self.at, lead) {
            return lead;
        }
        let is_told = lead.told_target().is_some();
        let (mut left, mut direct) = (lead.count(), 0);
        loop {
            if !is_told && self.code.block(self.at).exit == Exit::Cond {
                left = self.run_conditions(lead, left, now);
            }
            if !is_told && left == 0 {
                return Lead::NONE;
            }
            let Some((kind, next)) = self.branch(lead, left) else { break };
            if matches!(kind, BlockKind::Linear | BlockKind::Jump | BlockKind::Call) {
                if direct == 0 {
                    direct = self.direct_run(next);
                }
                // Runs that are longer than a path are left to where cycles are looked for.
                let Some(rest) = direct.checked_sub(1) else { break };
                direct = rest;
            }
            self.run_block(kind, next, is_told, now);
            match kind {
                BlockKind::Linear | BlockKind::Jump | BlockKind::Call => {}
                _ if is_told => return Lead::NONE,
                _ => left -= 1,
            }
        }
        if is_told {
            lead
        } else {
            lead.behind(left as u8)
        }
    }

    /// Goes on over conditional branches, which most are; returns how many are left.
    #[inline(always)]
    fn run_conditions(&mut self, lead: Lead, count: u32, now: u64) -> u32 {
        let mut branches = CondBranches::new(self.code, (self.view, self.epoch), lead, self.at, count);
        self.sink.cond_branches(&mut branches, now);
        let (instructions, CondBranches { at, left, .. }) = (branches.instructions(), branches);
        let used = u64::from(count - left);
        self.at = at;
        self.statistics.instructions += instructions;
        self.statistics.conditional_branches += used;
        self.events.tnt_bits += used;
        left
    }

    /// How the block is left, and for which one; `None` when the lead does not say so, or that block is none that is kept.
    #[inline(always)]
    fn branch(&mut self, lead: Lead, left: u32) -> Option<(BlockKind, u32)> {
        let at = self.at;
        let (kind, way, from) = match (self.code.block(at).exit, lead.told_target()) {
            _ if at == SCRATCH => return None,
            (Exit::IndirectJump, Some(target)) => return Some((BlockKind::IndirectJump, target)),
            (Exit::IndirectCall, Some(target)) => return Some((BlockKind::IndirectCall, target)),
            (Exit::Return, Some(target)) => return Some((BlockKind::Return, target)),
            (Exit::Cond, None) if lead.taken(left) => (BlockKind::CondTaken, Way::Target, at),
            (Exit::Cond, None) => (BlockKind::CondNotTaken, Way::Next, at),
            (Exit::Return, None) if lead.taken(left) => match self.returns.peek() {
                Some(Open::Block(call)) => (BlockKind::Return, Way::Next, call),
                _ => return None,
            },
            (Exit::Linear, _) => (BlockKind::Linear, Way::Next, at),
            (Exit::Jump, _) => (BlockKind::Jump, Way::Target, at),
            (Exit::Call, _) => (BlockKind::Call, Way::Target, at),
            _ => return None,
        };
        let next = self.code.step(self.memory, self.view, from, way)?;
        (next != SCRATCH).then_some((kind, next))
    }

    /// How many blocks, with the one before this, are left without a branch that needs a packet; 0 when there is no end of them
    /// in sight.
    fn direct_run(&mut self, mut at: u32) -> usize {
        for blocks in 1..MOST_STEPS {
            let way = match self.code.block(at).exit {
                Exit::Linear => Way::Next,
                Exit::Jump | Exit::Call => Way::Target,
                _ => return blocks,
            };
            match self.code.step(self.memory, self.view, at, way) {
                Some(next) if next != SCRATCH => at = next,
                _ => return blocks,
            }
        }
        0
    }

    /// Runs the block at hand. `is_told`: by a packet, where the target of its branch may be.
    #[inline(always)]
    fn run_block(&mut self, kind: BlockKind, next: u32, is_told: bool, now: u64) {
        let code = &*self.code;
        let block = code.block(self.at);
        let sum = &mut self.statistics;
        sum.instructions += u64::from(block.instructions);
        match kind {
            BlockKind::CondTaken | BlockKind::CondNotTaken => {
                sum.conditional_branches += 1;
                self.events.tnt_bits += 1;
            }
            BlockKind::Call | BlockKind::IndirectCall => {
                sum.calls += 1;
                if kind == BlockKind::IndirectCall || block.target != block.end {
                    self.returns.push_kept(self.at);
                }
            }
            BlockKind::Return => {
                sum.returns += 1;
                sum.compressed_returns += u64::from(!is_told);
                self.events.tnt_bits += u64::from(!is_told);
                self.returns.pop();
            }
            _ => {}
        }
        self.sink.run(&told(code, block, kind, code.block(next).start, self.epoch), now);
        self.at = next;
    }
}

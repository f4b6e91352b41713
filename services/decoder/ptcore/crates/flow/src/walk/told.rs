//! Blocks and parts of blocks as the sink is told.

use super::Walk;
use crate::code_block::CodeBlock;
use crate::path::told;
use crate::{BlockKind, CodeMemory, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    #[inline(always)]
    pub(super) fn tell(&mut self, block: &CodeBlock, kind: BlockKind, target: u64) {
        self.statistics.instructions += u64::from(block.instructions);
        match kind {
            BlockKind::CondTaken | BlockKind::CondNotTaken => self.statistics.conditional_branches += 1,
            BlockKind::Return => self.statistics.returns += 1,
            BlockKind::Call | BlockKind::IndirectCall => self.statistics.calls += 1,
            _ => {}
        }
        self.sink.block(&told(self.code, block, kind, target, self.epoch), self.events.time.now());
    }

    fn tell_part(&mut self, block: &CodeBlock, count: u16, last: u64, end: u64, target: u64) {
        self.tell(&block.prefix(count, last, end), BlockKind::Interrupted, target);
    }

    /// The instructions of a block but its branch, which cannot be followed.
    pub(super) fn tell_before_last(&mut self, block: &CodeBlock) {
        let count = block.instructions - 1;
        if count == 0 {
            return;
        }
        let before = u64::from(self.code.lengths(block)[usize::from(count) - 1]);
        self.tell_part(block, count, block.last - before, block.last, block.last);
        self.ip = block.last;
    }

    /// Tells the first `count` instructions of the block, at most all; returns where the next one is, which is the
    /// target of a linear end.
    pub(super) fn tell_first(&mut self, block: &CodeBlock, count: u16, kind: BlockKind, target: u64) -> u64 {
        let (mut last, mut end) = (block.start, block.start);
        for &length in self.code.lengths(block).iter().take(count.into()) {
            last = end;
            end += u64::from(length);
        }
        if count > 0 {
            let target = if kind == BlockKind::Linear { end } else { target };
            self.tell(&block.prefix(count, last, end), kind, target);
        }
        end
    }

    /// Tells the instructions before `at` when it is in the block about to run.
    pub(super) fn runs_up_to(&mut self, at: u64, target: Option<u64>) -> bool {
        let block = *self.code.block(self.at);
        let Some(count) = self.instructions_before(&block, at) else { return false };
        self.tell_first(&block, count, BlockKind::Interrupted, target.unwrap_or(0));
        true
    }

    /// How many instructions of the block stand before the one at `at`.
    pub(super) fn instructions_before(&self, block: &CodeBlock, at: u64) -> Option<u16> {
        if at == block.start {
            return Some(0);
        }
        if at < block.start || at > block.last {
            return None;
        }
        let (mut count, mut end) = (0, block.start);
        for &length in self.code.lengths(block) {
            if end >= at {
                break;
            }
            end += u64::from(length);
            count += 1;
        }
        (end == at).then_some(count)
    }
}

//! How often each block ran.

use crate::known::FEWEST_BLOCKS;
use crate::numbered::Numbered;
use pt_flow::{Block, BlockKind};
use std::collections::HashMap;

/// Some first instructions of a block, and how often they ran and no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCount {
    /// The block's number in its `Flow`; `u32::MAX` for one that is not kept.
    pub id: u32,
    pub start: u64,
    pub instructions: u32,
    /// An epoch in which it ran.
    pub epoch: u32,
    pub count: u64,
}

/// Counts by block. What is known of a block stays when the counts are taken.
pub struct Blocks {
    /// By number: the whole block.
    whole: Numbered<BlockCount>,
    /// By number, start and length: blocks that were left between two instructions, and those that are not kept.
    others: HashMap<(u32, u64, u32), BlockCount>,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks { whole: Numbered::new(UNKNOWN, FEWEST_BLOCKS), others: HashMap::new() }
    }
}

const UNKNOWN: BlockCount = BlockCount { id: u32::MAX, start: 0, instructions: 0, epoch: 0, count: 0 };

impl Blocks {
    #[inline(always)]
    pub fn count(&mut self, block: &Block<'_>) {
        match self.whole.get_mut(block.id) {
            Some(known) if known.instructions == block.instructions => known.count = known.count.wrapping_add(1),
            _ => {
                let Block { id, start, instructions, epoch, kind, .. } = *block;
                self.count_other(id, start, instructions, epoch, id != u32::MAX && kind != BlockKind::Interrupted);
            }
        }
    }

    /// The block, which was counted before, did not run.
    pub fn uncount(&mut self, block: &Block<'_>) {
        let known = match self.whole.get_mut(block.id) {
            Some(known) if known.instructions == block.instructions => Some(known),
            _ => self.others.get_mut(&(block.id, block.start, block.instructions)),
        };
        if let Some(known) = known {
            known.count = known.count.wrapping_sub(1);
        }
    }

    /// Whether the block ran before as a whole.
    #[inline(always)]
    pub fn knows(&self, block: &Block<'_>) -> bool {
        self.whole.get(block.id).is_some_and(|known| known.instructions == block.instructions)
    }

    /// The block, which ran before as a whole, ran again so many times.
    #[inline(always)]
    pub fn add(&mut self, id: u32, count: u64) {
        if let Some(known) = self.whole.get_mut(id) {
            known.count = known.count.wrapping_add(count);
        }
    }

    /// One by one: what is written in parts and read as a whole right away waits until all of it is.
    #[cold]
    #[inline(never)]
    fn count_other(&mut self, id: u32, start: u64, instructions: u32, epoch: u32, is_whole: bool) {
        let counted = BlockCount { id, start, instructions, epoch, count: 1 };
        if is_whole && self.whole.get(id).is_none_or(|known| known.instructions < instructions) {
            let before = std::mem::replace(self.whole.put(id), counted);
            if before.count != 0 {
                self.add_other(before);
            }
            return;
        }
        self.add_other(counted);
    }

    fn add_other(&mut self, counted: BlockCount) {
        let key = (counted.id, counted.start, counted.instructions);
        let known = self.others.entry(key).or_insert(BlockCount { count: 0, ..counted });
        known.count = known.count.wrapping_add(counted.count);
    }

    /// Whatever ran; counts begin anew.
    pub fn take(&mut self) -> Vec<BlockCount> {
        self.join();
        let ran = self.whole.iter_mut().map(|(_, known)| known).filter(|known| known.count != 0);
        let mut taken: Vec<_> =
            ran.map(|known| BlockCount { count: std::mem::take(&mut known.count), ..*known }).collect();
        let others = self.others.drain().map(|(_, known)| known).filter(|known| known.count != 0);
        let mut others: Vec<_> = others.collect();
        others.sort_unstable_by_key(|known| (known.id, known.start, known.instructions));
        taken.extend(others);
        taken
    }

    /// A block may have been interrupted behind its last instruction before it was known to be whole. What is taken away later is
    /// taken from the whole one.
    fn join(&mut self) {
        for other in self.others.values_mut() {
            let whole = self.whole.get_mut(other.id);
            if let Some(whole) = whole.filter(|whole| whole.instructions == other.instructions) {
                whole.count = whole.count.wrapping_add(std::mem::take(&mut other.count));
            }
        }
    }

    pub fn memory(&self) -> usize {
        self.whole.memory() + self.others.capacity() * (size_of::<BlockCount>() + 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: BlockKind) -> Block<'static> {
        Block {
            id: 0,
            start: 0x1000,
            last: 0x1000,
            end: 0x1001,
            instructions: 1,
            kind,
            target: 0,
            epoch: 0,
            lengths: &[1],
        }
    }

    #[test]
    fn a_block_that_turns_out_to_be_longer_keeps_what_was_counted() {
        let mut blocks = Blocks::default();
        blocks.count(&block(BlockKind::Interrupted));
        blocks.count(&block(BlockKind::Linear));
        blocks.count(&Block { instructions: 2, ..block(BlockKind::Return) });
        let counts: Vec<_> = blocks.take().iter().map(|known| (known.instructions, known.count)).collect();
        assert_eq!(counts, [(2, 1), (1, 2)]);
    }

    #[test]
    fn what_did_not_run_after_all_has_no_count_whatever_it_was_counted_as() {
        let mut blocks = Blocks::default();
        let (cut, whole) = (block(BlockKind::Interrupted), block(BlockKind::Return));
        blocks.count(&cut);
        blocks.count(&whole);
        blocks.uncount(&cut);
        assert_eq!(blocks.take().iter().map(|known| known.count).collect::<Vec<_>>(), [1]);
        blocks.count(&whole);
        blocks.uncount(&whole);
        assert_eq!(blocks.take(), []);
    }
}

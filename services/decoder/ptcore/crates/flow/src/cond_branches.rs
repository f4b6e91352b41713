//! Conditional branches one behind the other, as sinks are told.

use crate::block::{Block, BlockKind};
use crate::code::CodeCache;
use crate::code_block::CodeBlock;
use crate::lead::Lead;
use crate::path::told;
use crate::view::View;

/// Blocks that end with conditional branches, as long as the next ones are linked.
pub struct CondBranches<'a> {
    code: &'a CodeCache,
    blocks: &'a [CodeBlock],
    view: View,
    epoch: u32,
    /// Which ways the branches go, the next one in the highest bit.
    ways: u32,
    /// The next block, and how many branches of the lead are left.
    pub(crate) at: u32,
    pub(crate) left: u32,
    /// Instructions of those that were told.
    instructions: u64,
}

/// One of them.
#[derive(Clone, Copy)]
pub struct CondBranch {
    /// The cached block.
    pub id: u32,
    /// 1 when it is taken, else 0.
    pub way: usize,
    pub instructions: u32,
}

impl<'a> CondBranches<'a> {
    /// From the block `at` on along the last `left` branches of the lead.
    #[inline(always)]
    pub(crate) fn new(code: &'a CodeCache, (view, epoch): (View, u32), lead: Lead, at: u32, left: u32) -> Self {
        CondBranches { code, blocks: code.blocks(), view, epoch, ways: lead.first(left), at, left, instructions: 0 }
    }

    /// The code image that they were found in.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Where the next one's block begins.
    pub fn next_start(&self) -> u64 {
        self.code.block(self.at).start
    }

    /// How many may be told yet.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Of all that were told.
    #[inline(always)]
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The block that was told.
    #[inline(always)]
    pub fn block(&self, branch: CondBranch) -> Block<'a> {
        let block = self.code.block(branch.id);
        let (kind, target) = match branch.way {
            0 => (BlockKind::CondNotTaken, block.end),
            _ => (BlockKind::CondTaken, block.target),
        };
        told(self.code, block, kind, target, self.epoch)
    }
}

impl Iterator for CondBranches<'_> {
    type Item = CondBranch;

    #[inline(always)]
    fn next(&mut self) -> Option<CondBranch> {
        if self.left == 0 {
            return None;
        }
        let block = &self.blocks[self.at as usize];
        let way = (self.ways >> 31) as usize;
        let next = block.behind_condition(way, self.view)?;
        let branch = CondBranch { id: self.at, way, instructions: block.instructions.into() };
        (self.at, self.ways, self.left) = (next, self.ways << 1, self.left - 1);
        self.instructions += u64::from(block.instructions);
        Some(branch)
    }
}

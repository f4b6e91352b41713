//! Conditional branches one behind the other, as sinks are told.

use crate::block::{Block, BlockKind};
use crate::code::CodeCache;
use crate::lead::Lead;
use crate::path::told;
use crate::view::View;

/// Blocks that end with conditional branches, as long as the next ones are linked.
pub struct CondBranches<'a> {
    pub(crate) code: &'a CodeCache,
    pub(crate) view: View,
    pub(crate) lead: Lead,
    /// The next block, and how many branches of the lead are left.
    pub(crate) at: u32,
    pub(crate) left: u32,
    /// Instructions of those that were told.
    pub(crate) instructions: u64,
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
    /// The code image that they were found in.
    pub fn epoch(&self) -> u32 {
        self.view.epoch()
    }

    /// The block that was told.
    #[inline(always)]
    pub fn block(&self, branch: CondBranch) -> Block<'a> {
        let block = self.code.block(branch.id);
        let (kind, target) = match branch.way {
            0 => (BlockKind::CondNotTaken, block.end),
            _ => (BlockKind::CondTaken, block.target),
        };
        told(self.code, block, kind, target, self.epoch())
    }
}

impl Iterator for CondBranches<'_> {
    type Item = CondBranch;

    #[inline(always)]
    fn next(&mut self) -> Option<CondBranch> {
        if self.left == 0 {
            return None;
        }
        let block = self.code.block(self.at);
        let way = self.lead.way(self.left);
        let next = block.behind_condition(way, self.view)?;
        let branch = CondBranch { id: self.at, way, instructions: block.instructions.into() };
        (self.at, self.left) = (next, self.left - 1);
        self.instructions += u64::from(block.instructions);
        Some(branch)
    }
}

//! A path as sinks are told.

use crate::block::{Block, BlockKind};
use crate::code::CodeCache;
use crate::code_block::CodeBlock;
use crate::paths::{Entry, Step};
use crate::Statistics;

/// Blocks that run one after another whenever branches go one way.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    /// Dense: one number, one list of blocks within a generation (see [`Sink::paths`]).
    pub id: u32,
    /// Where it went when its last block is the return from a call before it. Everything else about a path is the same
    /// whenever it runs.
    pub returns_to: Option<u64>,
    pub(crate) code: &'a CodeCache,
    pub(crate) entry: &'a Entry,
    pub(crate) epoch: u32,
}

impl Path<'_> {
    /// The code image it was found in.
    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl<'a> Path<'a> {
    #[inline(always)]
    pub(crate) fn new(code: &'a CodeCache, entry: &'a Entry, epoch: u32, returns_to: Option<u64>) -> Self {
        Path { id: entry.id, returns_to, code, entry, epoch }
    }

    /// What of a stream's statistics its blocks are.
    pub fn statistics(&self) -> Statistics {
        let [conditional_branches, compressed_returns, calls, returns, instructions] = self.entry.tally.split();
        let returns = compressed_returns + returns;
        Statistics { instructions, conditional_branches, returns, compressed_returns, calls, ..Statistics::default() }
    }

    /// The cached block that it begins with.
    #[inline(always)]
    pub fn first(&self) -> u32 {
        self.entry.key.block().block()
    }

    /// The cached blocks in the order in which they run, and how each is left.
    #[inline(always)]
    pub fn steps(&self) -> &'a [Step] {
        self.code.paths.steps(self.entry)
    }

    /// The block of the step, and the steps behind it.
    #[inline(always)]
    pub fn block(&self, step: &Step, behind: &[Step]) -> Block<'a> {
        let next = match (behind.first(), self.returns_to) {
            (None, Some(target)) => target,
            (None, None) => self.code.block(self.entry.end.block()).start,
            (Some(next), _) => self.code.block(next.block).start,
        };
        told(self.code, self.code.block(step.block), step.kind, next, self.epoch)
    }

    /// The blocks in the order in which they run.
    #[inline(always)]
    pub fn blocks(&self) -> impl Iterator<Item = Block<'a>> + 'a {
        let path = *self;
        let mut steps = path.steps();
        std::iter::from_fn(move || {
            let (step, behind) = steps.split_first()?;
            steps = behind;
            Some(path.block(step, behind))
        })
    }
}

/// A block as sinks are told.
#[inline(always)]
pub fn told<'b>(code: &'b CodeCache, block: &CodeBlock, kind: BlockKind, target: u64, epoch: u32) -> Block<'b> {
    Block {
        id: block.id,
        start: block.start,
        last: block.last,
        end: block.end,
        instructions: block.instructions.into(),
        kind,
        epoch,
        target,
        lengths: code.lengths(block),
    }
}

//! A path as sinks are told.

use crate::block::{Block, BlockKind};
use crate::code::CodeCache;
use crate::code_block::CodeBlock;
use crate::paths::Entry;

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

    /// The cached block that it begins with.
    #[inline(always)]
    pub fn first(&self) -> u32 {
        self.entry.key.block().block()
    }

    /// The blocks in the order in which they run.
    #[inline(always)]
    pub fn blocks(&self) -> impl Iterator<Item = Block<'a>> + 'a {
        let (code, epoch) = (self.code, self.epoch);
        let behind = self.returns_to.unwrap_or_else(|| code.block(self.entry.end.block()).start);
        let mut steps = code.paths.steps(self.entry).iter();
        let mut ahead = steps.next().map(|step| (step.kind, code.block(step.block)));
        std::iter::from_fn(move || {
            let (kind, block) = ahead?;
            ahead = steps.next().map(|step| (step.kind, code.block(step.block)));
            let target = ahead.map_or(behind, |(_, next)| next.start);
            Some(told(code, block, kind, target, epoch))
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

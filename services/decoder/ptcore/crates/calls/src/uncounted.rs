//! Counts of what turns out not to count.

use crate::blocks::Blocks;
use crate::edges::Edges;
use pt_flow::{Block, DisableKind, Loss, Sink};

/// Takes away what was counted of the flow that it is told. Times are looked at as they were then: they say where a part
/// ends.
pub struct Uncounted<'c> {
    pub edges: &'c mut Edges,
    pub blocks: &'c mut Blocks,
}

impl Sink for Uncounted<'_> {
    const DIVIDED: bool = true;

    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        self.edges.uncount(block);
        self.blocks.uncount(block);
    }

    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

//! Counts of what turns out not to count.

use crate::blocks::Blocks;
use crate::edges::Edges;
use crate::plan::Plans;
use pt_flow::{Block, DisableKind, Loss, Path, Sink};

/// Takes away what was counted of the flow that it is told. Times are looked at as they were then: they say where a part
/// ends.
pub struct Uncounted<'c> {
    pub edges: &'c mut Edges,
    pub blocks: &'c mut Blocks,
    pub plans: &'c mut Plans,
}

impl Sink for Uncounted<'_> {
    const DIVIDED: bool = true;

    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        self.edges.uncount(block);
        self.blocks.uncount(block);
    }

    /// By its plan, as it was counted; where it was not, the sum is the same.
    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        let Some(last) = self.plans.uncount(path.id) else {
            return path.blocks().for_each(|block| self.block(&block, tsc));
        };
        if let Some(target) = path.returns_to {
            let slot = self.edges.slot_of_return(last, target);
            self.edges.add(slot, u64::MAX);
        }
    }

    fn paths(&mut self, generation: u64) {
        if self.plans.generation != generation {
            self.plans.begin(generation, self.edges, self.blocks);
        }
    }

    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

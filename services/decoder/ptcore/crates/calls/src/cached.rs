//! Cached blocks: in which function they are, and how often they ran along direct branches.

use crate::blocks::Blocks;
use crate::edges::{way, Edges};
use crate::known::{Known, FEWEST_BLOCKS};
use crate::numbered::Numbered;
use pt_flow::{Block, CondBranch, CondBranches};

/// One of them; what is looked at for each block that runs by itself stands side by side.
#[derive(Clone, Copy)]
struct Cached {
    known: Known,
    /// By way of its direct branch: its instructions, once it ran that way and was counted by block and edge.
    instructions: [u16; 2],
    /// How often it ran that way besides.
    counts: [u64; 2],
}

const UNKNOWN: Cached = Cached { known: Known::NOTHING, instructions: [0; 2], counts: [0; 2] };

/// By number of the block.
pub struct CachedBlocks {
    list: Numbered<Cached>,
    /// There is something to gather.
    ran: bool,
}

impl Default for CachedBlocks {
    fn default() -> Self {
        CachedBlocks { list: Numbered::new(UNKNOWN, FEWEST_BLOCKS), ran: false }
    }
}

impl CachedBlocks {
    /// What is known of the block, unless that is to be asked anew.
    #[inline(always)]
    pub fn known(&self, id: u32) -> Option<&Known> {
        self.list.get(id).map(|cached| &cached.known).filter(|known| known.function != u32::MAX)
    }

    pub fn known_mut(&mut self, id: u32) -> Option<&mut Known> {
        self.list.get_mut(id).map(|cached| &mut cached.known).filter(|known| known.function != u32::MAX)
    }

    #[inline(always)]
    pub fn know(&mut self, id: u32, Known { function, called, entry, stub, within }: Known) {
        let known = &mut self.list.put(id).known;
        // One by one: to be moved right behind its being written in parts, it would wait until all of them are.
        (known.function, known.called) = (function, called);
        (known.entry, known.stub, known.within) = (entry, stub, within);
    }

    pub fn forget(&mut self, id: u32) {
        self.know(id, Known::NOTHING);
    }

    /// Counts a block of which the direct branch went to its own target. False when it is to be counted by block and edge, and
    /// then to be remembered.
    #[inline(always)]
    pub fn count(&mut self, block: &Block<'_>) -> bool {
        let way = way(block.kind);
        let Some(cached) = self.list.get_mut(block.id).filter(|_| way <= 1) else { return false };
        let is_remembered = u32::from(cached.instructions[way & 1]) == block.instructions;
        cached.counts[way & 1] = cached.counts[way & 1].wrapping_add(is_remembered.into());
        self.ran |= is_remembered;
        is_remembered
    }

    /// Counts conditional branches as long as they are in the function; returns the first one that is to be run, and the last
    /// one that was counted.
    #[inline(always)]
    pub fn count_within(
        &mut self,
        function: u32,
        branches: &mut CondBranches<'_>,
    ) -> (Option<CondBranch>, Option<CondBranch>) {
        let list = self.list.near();
        let mut last = None;
        loop {
            let Some(branch) = branches.next() else { return (None, last) };
            let way = branch.way & 1;
            match list.get_mut(branch.id as usize) {
                Some(cached)
                    if cached.known.function == function
                        && u32::from(cached.instructions[way]) == branch.instructions =>
                {
                    cached.counts[way] = cached.counts[way].wrapping_add(1);
                }
                _ => return (Some(branch), last),
            }
            last = Some(branch);
        }
    }

    /// How many instructions the block has, if it is one of the function, of no stub, and its branch that way is remembered.
    #[inline(always)]
    pub fn within(&self, function: u32, id: u32, way: usize) -> Option<u32> {
        let cached = self.list.get(id)?;
        let instructions = *cached.instructions.get(way)?;
        let is_within = cached.known.function == function && !cached.known.stub && instructions != 0;
        is_within.then_some(instructions.into())
    }

    /// Something was counted within a function.
    pub fn ran(&mut self) {
        self.ran = true;
    }

    /// The block, which is a whole one, was counted by block and edge.
    #[inline(always)]
    pub fn remember(&mut self, block: &Block<'_>) {
        let way = way(block.kind);
        if let (0..=1, Some(cached)) = (way, self.list.get_mut(block.id)) {
            cached.instructions[way] = block.instructions.try_into().unwrap_or_default();
        }
    }

    /// Counts become counts of blocks and edges.
    pub fn gather(&mut self, blocks: &mut Blocks, edges: &mut Edges) {
        if !std::mem::take(&mut self.ran) {
            return;
        }
        for (id, cached) in self.list.iter_mut() {
            for (way, count) in
                std::mem::take(&mut cached.counts).into_iter().enumerate().filter(|&(_, count)| count != 0)
            {
                blocks.add(id, count);
                edges.add_direct(id, way, count);
            }
        }
    }

    pub fn memory(&self) -> usize {
        self.list.memory()
    }
}

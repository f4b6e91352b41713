//! Edge counts alone.

use crate::edges::{Edge, Edges};
use pt_flow::{Block, DisableKind, Loss, Path, Sink};

/// Counts how often each branch went where, and nothing else; after `finish` for another stream through the same `Flow`.
#[derive(Default)]
pub struct Coverage {
    edges: Edges,
    generation: u64,
    /// By number of the path: how often it ran. By themselves eight of them stand in a line of the cache.
    counts: Vec<u64>,
    /// Likewise: what it counts for.
    paths: Vec<Counted>,
    slots: Vec<u32>,
}

/// Where in `slots` the edges of a path stand, but that of a return out of it.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// The branch at its end.
    last: u64,
    /// Where it returned to last, and the slot of that edge.
    returned_to: u64,
    returned_by: u32,
    from: u32,
    to: u32,
}

impl Coverage {
    /// All edges with their counts, in order.
    pub fn finish(&mut self) -> Vec<(Edge, u64)> {
        self.settle();
        self.edges.take()
    }

    /// Counts of paths become counts of their edges.
    fn settle(&mut self) {
        for (path, count) in self.paths.iter().zip(&mut self.counts).filter(|(_, count)| **count != 0) {
            self.edges.add_all(&self.slots[path.from as usize..path.to as usize], std::mem::take(count));
        }
    }

    /// A path that did not run in this stream yet.
    fn first(&mut self, path: &Path<'_>) {
        let index = path.id as usize;
        if self.paths.get(index).is_none_or(|known| known.last == 0) {
            self.get_to_know(path);
        }
        self.counts[index] = 1;
    }

    #[cold]
    #[inline(never)]
    fn get_to_know(&mut self, path: &Path<'_>) {
        let index = path.id as usize;
        if self.paths.len() <= index {
            self.paths.resize(index + 1, Counted::default());
            self.counts.resize(index + 1, 0);
        }
        let from = self.slots.len() as u32;
        let mut last = 0;
        for block in path.blocks() {
            self.slots.extend(self.edges.slot_on_path(&block));
            last = block.last;
        }
        // It goes elsewhere every time.
        let returned = path.returns_to.and_then(|target| Some((target, self.slots.pop()?)));
        let (returned_to, returned_by) = returned.unwrap_or_default();
        Edges::fill(&mut self.slots, from as usize);
        self.paths[index] = Counted { last, returned_to, returned_by, from, to: self.slots.len() as u32 };
    }
}

impl Sink for Coverage {
    const TIMED: bool = false;

    #[inline(always)]
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        self.edges.count(block);
    }

    #[inline(always)]
    fn run(&mut self, block: &Block<'_>, _tsc: u64) {
        self.edges.count_on_path(block);
    }

    #[inline(always)]
    fn path(&mut self, path: &Path<'_>, _tsc: u64) {
        match self.counts.get_mut(path.id as usize) {
            Some(count) if *count != 0 => *count += 1,
            _ => self.first(path),
        }
        if let (Some(target), Some(known)) = (path.returns_to, self.paths.get_mut(path.id as usize)) {
            if known.returned_to != target {
                (known.returned_to, known.returned_by) = (target, self.edges.slot_of_return(known.last, target));
            }
            self.edges.add(known.returned_by, 1);
        }
    }

    fn paths(&mut self, generation: u64) {
        if self.generation != generation {
            self.settle();
            *self = Coverage { edges: std::mem::take(&mut self.edges), generation, ..Coverage::default() };
        }
    }

    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

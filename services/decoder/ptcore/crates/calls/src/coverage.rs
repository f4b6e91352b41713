//! Edge counts alone.

use crate::edges::{Edge, Edges};
use pt_flow::{Block, DisableKind, Loss, Path, Sink};

/// Counts how often each branch went where, and nothing else; after `finish` for another stream through the same `Flow`.
#[derive(Default)]
pub struct Coverage {
    edges: Edges,
    generation: u64,
    /// By number of the path: how often it ran, and where in `slots` its edges stand.
    counts: Vec<u64>,
    places: Vec<(u32, u32)>,
    slots: Vec<u32>,
}

impl Coverage {
    /// All edges with their counts, in order.
    pub fn finish(&mut self) -> Vec<(Edge, u64)> {
        self.settle();
        self.edges.take()
    }

    /// Counts of paths become counts of their edges.
    fn settle(&mut self) {
        for (count, &(from, to)) in self.counts.iter_mut().zip(&self.places).filter(|(count, _)| **count != 0) {
            for &slot in &self.slots[from as usize..to as usize] {
                self.edges.add(slot, *count);
            }
            *count = 0;
        }
    }

    /// A path that did not run in this stream yet.
    fn first(&mut self, path: &Path<'_>) {
        let index = path.id as usize;
        match self.places.get(index) {
            Some((from, to)) if from != to => self.counts[index] = 1,
            _ => self.get_to_know(path),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_to_know(&mut self, path: &Path<'_>) {
        let index = path.id as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
            self.places.resize(index + 1, (0, 0));
        }
        let from = self.slots.len() as u32;
        for block in path.blocks() {
            self.slots.extend(self.edges.slot(&block));
        }
        self.places[index] = (from, self.slots.len() as u32);
        self.counts[index] = 1;
    }
}

impl Sink for Coverage {
    #[inline(always)]
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        self.edges.count(block);
    }

    #[inline(always)]
    fn path(&mut self, path: &Path<'_>, _tsc: u64) {
        match self.counts.get_mut(path.id as usize) {
            Some(count) if *count != 0 => *count += 1,
            _ => self.first(path),
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

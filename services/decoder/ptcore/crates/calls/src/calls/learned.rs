//! What is known of the blocks and paths of one flow.

use super::Calls;
use crate::blocks::Blocks;
use crate::cached::CachedBlocks;
use crate::edges::Edges;
use crate::extents::Extents;
use crate::members::Members;
use crate::numbered::Numbered;
use crate::output::Output;
use crate::plan::Plans;
use pt_flow::Travels;
use pt_image::Symbols;
use std::mem::swap;

/// By their numbers, and how often they ran.
pub struct Learned {
    edges: Edges,
    blocks: Blocks,
    cached: CachedBlocks,
    starts: Numbered<u64>,
    members: Members,
    extents: Extents,
    plans: Plans,
    /// As functions were divided when it was put away.
    version: u32,
}

impl Default for Learned {
    fn default() -> Self {
        Learned {
            edges: Edges::default(),
            blocks: Blocks::default(),
            cached: CachedBlocks::default(),
            starts: Numbered::new(u64::MAX, 0),
            members: Members::default(),
            extents: Extents::default(),
            plans: Plans::of(0),
            version: 0,
        }
    }
}

impl<S: Symbols, O: Output> Travels for Calls<S, O> {
    type Learned = Learned;

    fn exchange(&mut self, learned: &mut Learned) {
        swap(&mut self.edges, &mut learned.edges);
        swap(&mut self.blocks, &mut learned.blocks);
        swap(&mut self.cached, &mut learned.cached);
        swap(&mut self.starts, &mut learned.starts);
        swap(&mut self.members, &mut learned.members);
        swap(&mut self.extents, &mut learned.extents);
        swap(&mut self.plans, &mut learned.plans);
        let version = self.stack.functions.version;
        if std::mem::replace(&mut learned.version, version) != version {
            self.members.take_all(|id| self.cached.forget(id));
            self.extents.clear();
        }
    }
}

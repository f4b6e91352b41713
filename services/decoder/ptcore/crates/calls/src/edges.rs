//! How often each branch went where.

use pt_flow::{Block, BlockKind};
use std::collections::HashMap;

/// Kinds of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EdgeKind {
    CondTaken = 0,
    CondNotTaken = 1,
    Jump = 2,
    IndirectJump = 3,
    Call = 4,
    IndirectCall = 5,
    Return = 6,
    Far = 7,
}

impl EdgeKind {
    fn of(kind: BlockKind) -> Option<EdgeKind> {
        Some(match kind {
            BlockKind::CondTaken => EdgeKind::CondTaken,
            BlockKind::CondNotTaken => EdgeKind::CondNotTaken,
            BlockKind::Jump => EdgeKind::Jump,
            BlockKind::IndirectJump => EdgeKind::IndirectJump,
            BlockKind::Call => EdgeKind::Call,
            BlockKind::IndirectCall => EdgeKind::IndirectCall,
            BlockKind::Return => EdgeKind::Return,
            BlockKind::Far => EdgeKind::Far,
            BlockKind::Linear | BlockKind::Interrupted => return None,
        })
    }
}

/// From a branch instruction to where it went (0: not recorded).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    pub from: u64,
    pub to: u64,
    pub kind: EdgeKind,
}

/// Counts of the branch at the end of one cached block, for the target it last had.
#[derive(Clone, Copy)]
pub struct Branch {
    from: u64,
    end: u64,
    target: u64,
    taken: u64,
    not_taken: u64,
    kind: EdgeKind,
}

impl Branch {
    /// Of a block that ends in a branch; nothing is counted.
    pub fn of(block: &Block<'_>) -> Option<Branch> {
        let kind = match EdgeKind::of(block.kind)? {
            EdgeKind::CondNotTaken => EdgeKind::CondTaken,
            kind => kind,
        };
        Some(Branch { from: block.last, end: block.end, target: block.target, taken: 0, not_taken: 0, kind })
    }

    #[inline(always)]
    pub fn count_not_taken(&mut self) {
        self.not_taken += 1;
    }

    /// Counts the branch when it goes where it went the last time. False otherwise: nothing was counted.
    #[inline(always)]
    pub fn count_taken(&mut self, target: u64) -> bool {
        let same = self.target == target;
        self.taken += u64::from(same);
        same
    }
}

/// Counts of edges that are not counted at their block.
#[derive(Default)]
pub struct Edges(HashMap<Edge, u64>);

impl Edges {
    /// Counts an edge of a block that is not kept.
    #[cold]
    pub fn count(&mut self, block: &Block<'_>) {
        if let Some(kind) = EdgeKind::of(block.kind) {
            *self.0.entry(Edge { from: block.last, to: block.target, kind }).or_default() += 1;
        }
    }

    /// Goes over to another target and counts it.
    pub fn retarget(&mut self, branch: &mut Branch, target: u64) {
        self.gather(&Branch { not_taken: 0, ..*branch });
        (branch.target, branch.taken) = (target, 1);
    }

    /// Takes over the counts of a block.
    pub fn gather(&mut self, branch: &Branch) {
        let Branch { from, end, target, taken, not_taken, kind } = *branch;
        if taken > 0 {
            *self.0.entry(Edge { from, to: target, kind }).or_default() += taken;
        }
        if not_taken > 0 {
            *self.0.entry(Edge { from, to: end, kind: EdgeKind::CondNotTaken }).or_default() += not_taken;
        }
    }

    /// All edges with their counts, in order.
    pub fn sorted(self) -> Vec<(Edge, u64)> {
        let mut edges: Vec<_> = self.0.into_iter().collect();
        edges.sort_unstable();
        edges
    }
}

//! How often each branch went where.

use pt_flow::{Block, BlockKind};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub from: u64,
    pub to: u64,
    pub kind: EdgeKind,
}

impl std::hash::Hash for Edge {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.from);
        state.write_u64(self.to ^ (self.kind as u64) << 56);
    }
}

/// Multiplicative: addresses are no adversaries beyond slowness.
#[derive(Default)]
pub struct EdgeHasher(u64);

impl Hasher for EdgeHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// The slot of no edge.
const NONE: u32 = u32::MAX;
/// Places in front of the map for branches with many targets.
const FRONT: usize = 1 << 12;

#[derive(Clone, Copy)]
struct Front {
    edge: Edge,
    slot: u32,
}

/// Counts of edges, each in its slot. Slots stay when the counts are taken.
pub struct Edges {
    /// By slot.
    edges: Vec<Edge>,
    counts: Vec<u64>,
    slots: HashMap<Edge, u32, BuildHasherDefault<EdgeHasher>>,
    /// By cached block: the slots of its direct branch when it is taken and when it is not.
    direct: Vec<[u32; 2]>,
    front: Vec<Front>,
    /// Slots by edge.
    order: Vec<u32>,
}

impl Default for Edges {
    fn default() -> Self {
        Edges {
            edges: Vec::new(),
            counts: Vec::new(),
            slots: HashMap::default(),
            direct: Vec::new(),
            front: vec![Front { edge: Edge { from: 0, to: 0, kind: EdgeKind::Far }, slot: NONE }; FRONT],
            order: Vec::new(),
        }
    }
}

impl Edges {
    /// The slot of the branch at the end of a block; `None` when it has none.
    #[inline(always)]
    pub fn slot(&mut self, block: &Block<'_>) -> Option<u32> {
        let way = match block.kind {
            BlockKind::CondTaken | BlockKind::Jump | BlockKind::Call => 0,
            BlockKind::CondNotTaken => 1,
            BlockKind::Linear | BlockKind::Interrupted => return None,
            _ => return self.slot_of_many(block),
        };
        if let Some(&slot) = self.direct.get(block.id as usize).map(|slots| &slots[way]) {
            // Where a disabled trace does not say where a branch went, its target is not the usual one.
            if self.edges.get(slot as usize).is_some_and(|known| known.to == block.target) {
                return Some(slot);
            }
        }
        self.new_direct(block, way)
    }

    #[cold]
    fn new_direct(&mut self, block: &Block<'_>, way: usize) -> Option<u32> {
        let slot = self.look_up(Edge { from: block.last, to: block.target, kind: EdgeKind::of(block.kind)? });
        let index = block.id as usize;
        if block.id != u32::MAX {
            if self.direct.len() <= index {
                self.direct.resize(index + 1, [NONE; 2]);
            }
            self.direct[index][way] = slot;
        }
        Some(slot)
    }

    #[inline(always)]
    fn slot_of_many(&mut self, block: &Block<'_>) -> Option<u32> {
        Some(self.slot_by_target(Edge { from: block.last, to: block.target, kind: EdgeKind::of(block.kind)? }))
    }

    #[inline(always)]
    fn slot_by_target(&mut self, edge: Edge) -> u32 {
        let place = (edge.to ^ edge.from.wrapping_mul(0x9e37_79b9) >> 7) as usize % FRONT;
        let front = self.front[place];
        if front.edge == edge && front.slot != NONE {
            return front.slot;
        }
        let slot = self.look_up(edge);
        self.front[place] = Front { edge, slot };
        slot
    }

    #[inline(never)]
    fn look_up(&mut self, edge: Edge) -> u32 {
        let (edges, counts) = (&mut self.edges, &mut self.counts);
        *self.slots.entry(edge).or_insert_with(|| {
            edges.push(edge);
            counts.push(0);
            (edges.len() - 1) as u32
        })
    }

    /// Counts the return at `from`.
    #[inline(always)]
    pub fn count_return(&mut self, from: u64, to: u64) {
        let slot = self.slot_of_return(from, to);
        self.add(slot, 1);
    }

    /// The slot of the return at `from`.
    #[inline(always)]
    pub fn slot_of_return(&mut self, from: u64, to: u64) -> u32 {
        self.slot_by_target(Edge { from, to, kind: EdgeKind::Return })
    }

    #[inline(always)]
    pub fn add(&mut self, slot: u32, count: u64) {
        // What was counted too much is taken away by what is too large for a count.
        let sum = &mut self.counts[slot as usize];
        *sum = sum.wrapping_add(count);
    }

    /// Counts the branch at the end of a block.
    #[inline(always)]
    pub fn count(&mut self, block: &Block<'_>) {
        if let Some(slot) = self.slot(block) {
            self.add(slot, 1);
        }
    }

    /// Counts the branch at the end of a block once less.
    pub fn uncount(&mut self, block: &Block<'_>) {
        if let Some(slot) = self.slot(block) {
            self.add(slot, u64::MAX);
        }
    }

    /// All edges with their counts, in order; counts begin anew.
    pub fn take(&mut self) -> Vec<(Edge, u64)> {
        if self.order.len() != self.edges.len() {
            self.order = (0..self.edges.len() as u32).collect();
            let edges = &self.edges;
            self.order.sort_unstable_by_key(|&slot| edges[slot as usize]);
        }
        let mut taken = Vec::with_capacity(self.order.len());
        for &slot in &self.order {
            let count = std::mem::take(&mut self.counts[slot as usize]);
            if count > 0 {
                taken.push((self.edges[slot as usize], count));
            }
        }
        taken
    }

    pub fn memory(&self) -> usize {
        self.edges.capacity() * (size_of::<Edge>() + 8 + 4)
            + self.slots.capacity() * size_of::<(Edge, u64)>()
            + self.direct.capacity() * 8
            + self.front.capacity() * size_of::<Front>()
    }
}

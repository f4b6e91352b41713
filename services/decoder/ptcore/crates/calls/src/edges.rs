//! How often each branch went where.

use crate::known::FEWEST_BLOCKS;
use crate::numbered::Numbered;
use pt_flow::{AddressHasher, Block, BlockKind};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Kinds of branches. As wide as an address: to move an edge with padding in it, right behind its being written, waits until all of
/// it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u64)]
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
            BlockKind::Far | BlockKind::FarCall => EdgeKind::Far,
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

impl Hash for Edge {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.from);
        state.write_u64(self.to ^ (self.kind as u64) << 56);
    }
}

/// Which of two ways the direct branch at the end of a block went; another number where it is none. By a table, as jumps by the kind of
/// a block are seldom foretold.
#[inline(always)]
pub fn way(kind: BlockKind) -> usize {
    const WAYS: [u8; 11] = {
        let mut ways = [u8::MAX; 11];
        ways[BlockKind::CondNotTaken as usize] = 0;
        ways[BlockKind::CondTaken as usize] = 1;
        ways[BlockKind::Jump as usize] = 1;
        ways[BlockKind::Call as usize] = 1;
        ways
    };
    WAYS[kind as usize].into()
}

/// The slot of no edge.
const NONE: u32 = u32::MAX;
/// The slot of what is counted and never told: it makes lists of slots as long as they are counted at a time.
const NOBODY: u32 = 0;
const NOBODYS: Edge = Edge { from: 0, to: 0, kind: EdgeKind::Far };
const AT_A_TIME: usize = 4;
/// Places in front of the map for branches with many targets: the most, and with how many it begins.
const FRONT: usize = 1 << 12;
const FIRST_FRONT: usize = 1 << 6;

#[derive(Clone, Copy)]
struct Front {
    edge: Edge,
    slot: u32,
}

const NOTHING: Front = Front { edge: NOBODYS, slot: NONE };

/// Counts of edges, each in its slot. Slots stay when the counts are taken.
pub struct Edges {
    /// By slot.
    edges: Vec<Edge>,
    counts: Vec<u64>,
    slots: HashMap<Edge, u32, BuildHasherDefault<AddressHasher>>,
    /// By cached block: the slots of its direct branch when it is not taken and when it is, as it went on a path. The same edge may
    /// have other slots.
    direct: Numbered<[u32; 2]>,
    front: Vec<Front>,
    /// What is taken, in order, without its counts.
    ordered: Vec<(Edge, u64)>,
    /// By place there: the slot that it is counted in.
    order: Vec<u32>,
    /// Further slots of edges, each with the one that is in `order`.
    further: Vec<(u32, u32)>,
}

impl Default for Edges {
    fn default() -> Self {
        let (mut edges, mut counts) = (Vec::with_capacity(2 * FEWEST_BLOCKS), Vec::with_capacity(2 * FEWEST_BLOCKS));
        edges.push(NOBODYS);
        counts.push(0);
        Edges {
            edges,
            counts,
            slots: HashMap::default(),
            direct: Numbered::new([NONE; 2], FEWEST_BLOCKS),
            front: vec![NOTHING; FIRST_FRONT],
            ordered: Vec::new(),
            order: Vec::new(),
            further: Vec::new(),
        }
    }
}

impl Edges {
    /// The slot of the branch at the end of a block; `None` when it has none.
    #[inline(always)]
    pub fn slot(&mut self, block: &Block<'_>) -> Option<u32> {
        // Where a disabled trace does not say where a branch went, its target is not the usual one.
        match self.direct_slot(block) {
            Some(slot) if self.edges.get(slot as usize).is_some_and(|known| known.to == block.target) => Some(slot),
            _ => self.slot_of_many(block),
        }
    }

    /// The same for a block of a path: there direct branches always go to their own targets.
    #[inline(always)]
    pub fn slot_on_path(&mut self, block: &Block<'_>) -> Option<u32> {
        match self.direct_slot(block) {
            Some(slot) if slot != NONE => Some(slot),
            Some(_) => self.new_direct(block.id, block.last, block.target, block.kind),
            None => self.slot_of_many(block),
        }
    }

    /// The slot of a direct branch that was counted.
    #[inline(always)]
    pub fn slot_of_direct(&self, id: u32, way: usize) -> u32 {
        self.direct.get(id).map_or(NOBODY, |slots| slots[way])
    }

    /// The direct branch of the cached block went `way` again, so many times.
    pub fn add_direct(&mut self, id: u32, way: usize, count: u64) {
        self.add(self.slot_of_direct(id, way), count);
    }

    /// The slot of a direct branch, or `NONE` where there is none yet.
    #[inline(always)]
    fn direct_slot(&self, block: &Block<'_>) -> Option<u32> {
        let way = way(block.kind);
        (way <= 1).then(|| self.direct.get(block.id).map_or(NONE, |slots| slots[way]))
    }

    /// Without a look at whether another block that ends with the same branch has a slot for it: that is for `take` to see.
    #[cold]
    #[inline(never)]
    fn new_direct(&mut self, id: u32, from: u64, to: u64, kind: BlockKind) -> Option<u32> {
        let kind_of_edge = EdgeKind::of(kind)?;
        if id == u32::MAX {
            return Some(self.look_up(Edge { from, to, kind: kind_of_edge }));
        }
        let slot = self.edges.len() as u32;
        self.direct.put(id)[way(kind)] = slot;
        self.edges.push(Edge { from, to, kind: kind_of_edge });
        self.counts.push(0);
        Some(slot)
    }

    #[inline(always)]
    fn slot_of_many(&mut self, block: &Block<'_>) -> Option<u32> {
        Some(self.slot_by_target(Edge { from: block.last, to: block.target, kind: EdgeKind::of(block.kind)? }))
    }

    #[inline(always)]
    fn slot_by_target(&mut self, edge: Edge) -> u32 {
        let place = self.place_in_front(&edge);
        let front = self.front[place];
        if front.edge == edge && front.slot != NONE {
            return front.slot;
        }
        self.slot_behind_front(edge)
    }

    #[inline(always)]
    fn place_in_front(&self, edge: &Edge) -> usize {
        (edge.to ^ edge.from.wrapping_mul(0x9e37_79b9) >> 7) as usize & (self.front.len() - 1)
    }

    #[inline(never)]
    fn slot_behind_front(&mut self, edge: Edge) -> u32 {
        let slot = self.look_up(edge);
        // Of a thread that runs little it is small: a core may have had thousands.
        if self.slots.len() > self.front.len() && self.front.len() < FRONT {
            self.front = vec![NOTHING; FRONT];
        }
        let place = self.place_in_front(&edge);
        self.front[place] = Front { edge, slot };
        slot
    }

    fn look_up(&mut self, edge: Edge) -> u32 {
        let (edges, counts) = (&mut self.edges, &mut self.counts);
        *self.slots.entry(edge).or_insert_with(|| {
            edges.push(edge);
            counts.push(0);
            (edges.len() - 1) as u32
        })
    }

    /// The slot of the return at `from`.
    #[inline(always)]
    pub fn slot_of_return(&mut self, from: u64, to: u64) -> u32 {
        self.slot_by_target(Edge { from, to, kind: EdgeKind::Return })
    }

    /// All of the slots, as [`fill`](Edges::fill) made them, were counted so many times more.
    #[inline(always)]
    pub fn add_all(&mut self, slots: &[u32], count: u64) {
        let counts = &mut self.counts[..];
        let mut add = |slot: u32| counts[slot as usize] = counts[slot as usize].wrapping_add(count);
        for some in slots.chunks_exact(AT_A_TIME).filter_map(|some| some.first_chunk::<AT_A_TIME>()) {
            some.iter().for_each(|&slot| add(slot));
        }
    }

    /// Makes the list that begins at `from` one that is counted some slots at a time, without a rest: where a list ends is seldom
    /// foretold, and so is how long its rest is.
    pub fn fill(slots: &mut Vec<u32>, from: usize) {
        let length = (slots.len() - from).next_multiple_of(AT_A_TIME);
        slots.resize(from + length, NOBODY);
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

    /// Counts the branch at the end of a block of a path.
    #[inline(always)]
    pub fn count_on_path(&mut self, block: &Block<'_>) {
        if let Some(slot) = self.slot_on_path(block) {
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
        if self.order.len() + self.further.len() + 1 != self.edges.len() {
            self.put_in_order();
        }
        for &(further, slot) in &self.further {
            let count = std::mem::take(&mut self.counts[further as usize]);
            let sum = &mut self.counts[slot as usize];
            *sum = sum.wrapping_add(count);
        }
        let (mut taken, mut all) = (self.ordered.clone(), true);
        let counts = &mut self.counts[..];
        for ((_, count), &slot) in taken.iter_mut().zip(&self.order) {
            *count = std::mem::take(&mut counts[slot as usize]);
            all &= *count != 0;
        }
        if !all {
            taken.retain(|&(_, count)| count != 0);
        }
        taken
    }

    fn put_in_order(&mut self) {
        let edges = &self.edges[..];
        self.ordered.clear();
        self.order.clear();
        self.further.clear();
        self.ordered.reserve(edges.len());
        self.order.reserve(edges.len());
        let mut order = slots_by_source(edges);
        for same in order.chunk_by_mut(|&one, &other| edges[one as usize].from == edges[other as usize].from) {
            if same.len() > 1 {
                same.sort_unstable_by_key(|&slot| edges[slot as usize]);
            }
            for &slot in &*same {
                let edge = edges[slot as usize];
                match (self.ordered.last(), self.order.last()) {
                    (Some(&(last, _)), Some(&first)) if last == edge => self.further.push((slot, first)),
                    _ => {
                        self.ordered.push((edge, 0));
                        self.order.push(slot);
                    }
                }
            }
        }
    }

    pub fn memory(&self) -> usize {
        self.edges.capacity() * (size_of::<Edge>() + 8)
            + self.slots.capacity() * size_of::<(Edge, u64)>()
            + self.direct.memory()
            + self.front.capacity() * size_of::<Front>()
            + self.ordered.capacity() * (size_of::<(Edge, u64)>() + 4)
            + self.further.capacity() * 8
    }
}

/// Slots, but nobody's, in the order of where their edges come from. By one number that has the slot in it, where all fit into one:
/// comparing more is a branch that is seldom foretold.
fn slots_by_source(edges: &[Edge]) -> Vec<u32> {
    // What differs of canonical addresses are 48 bits, which leaves 16 for the slot.
    let canonical = |edge: &Edge| ((edge.from << 16) as i64 >> 16) as u64 == edge.from;
    if edges.len() <= 1 << 16 && edges.iter().all(canonical) {
        let mut keys: Vec<_> = edges.iter().zip(0..).skip(1).map(|(edge, slot)| edge.from << 16 | slot).collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| (key as u16).into()).collect()
    } else {
        let mut order: Vec<_> = edges.iter().zip(0..).skip(1).map(|(edge, slot)| (edge.from, slot)).collect();
        order.sort_unstable_by_key(|&(from, _)| from);
        order.into_iter().map(|(_, slot)| slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(id: u32, kind: BlockKind, target: u64) -> Block<'static> {
        let (start, last, end) = (0x1000 + u64::from(id), 0x1010, 0x1012);
        Block { id, start, last, end, instructions: 1, kind, target, epoch: 0, lengths: &[] }
    }

    fn edge(to: u64) -> Edge {
        Edge { from: 0x1010, to, kind: EdgeKind::CondTaken }
    }

    #[test]
    fn blocks_that_end_with_one_branch_have_one_edge() {
        let mut edges = Edges::default();
        edges.count_on_path(&block(0, BlockKind::CondTaken, 0x2000));
        edges.count_on_path(&block(1, BlockKind::CondTaken, 0x2000));
        edges.count(&block(2, BlockKind::CondTaken, 0x2000));
        assert_eq!(edges.take(), [(edge(0x2000), 3)]);
        assert_eq!(edges.take(), []);
    }

    #[test]
    fn edges_are_taken_in_order_wherever_they_come_from_and_however_many_they_are() {
        let from_kernel_down = [0xffff_8000_0000_0010, 0x7fff_ffff_ffff, 0x10, 0];
        let canonical = from_kernel_down.map(|from| Edge { from, ..edge(0x2000) });
        let not_canonical =
            [Edge { from: 0x8000_0000_0000_0000, ..edge(0x2000) }, Edge { from: 1 << 48 | 1, ..edge(0x2000) }];
        let many: Vec<_> = (0..=1 << 16).rev().map(|from| Edge { from, ..edge(0x2000) }).collect();
        for told in
            [&canonical[..], &[canonical, canonical].concat(), &[&canonical[..], &not_canonical].concat(), &many]
        {
            let mut edges = Edges::default();
            told.iter().for_each(|&edge| {
                let slot = edges.look_up(edge);
                edges.add(slot, 1);
            });
            let taken: Vec<_> = edges.take().into_iter().map(|(edge, _)| edge).collect();
            let mut in_order = told.to_vec();
            in_order.sort_unstable();
            in_order.dedup();
            assert_eq!(taken, in_order);
        }
    }

    #[test]
    fn all_slots_of_a_list_are_counted_however_long_it_is() {
        for length in 0..10 {
            let mut edges = Edges::default();
            let mut slots: Vec<_> = (0..length).map(|to| edges.look_up(edge(to))).collect();
            let mut half = slots[..slots.len() / 2].to_vec();
            half.insert(0, NONE);
            Edges::fill(&mut slots, 0);
            Edges::fill(&mut half, 1);
            edges.add_all(&slots, 3);
            edges.add_all(&half[1..], 2);
            let counts = (0..length).map(|to| (edge(to), if to < length / 2 { 5 } else { 3 }));
            assert_eq!(edges.take(), counts.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_branch_that_nobody_knows_the_target_of_is_another_edge() {
        let mut edges = Edges::default();
        edges.count(&block(0, BlockKind::CondTaken, 0));
        edges.count_on_path(&block(0, BlockKind::CondTaken, 0x2000));
        edges.count(&block(0, BlockKind::CondTaken, 0));
        assert_eq!(edges.take(), [(edge(0), 2), (edge(0x2000), 1)]);
    }

    #[test]
    fn what_is_taken_away_elsewhere_than_where_it_was_counted_is_away() {
        let mut edges = Edges::default();
        edges.count(&block(1, BlockKind::CondTaken, 0x2000));
        edges.count_on_path(&block(0, BlockKind::CondTaken, 0x2000));
        edges.uncount(&block(0, BlockKind::CondTaken, 0x2000));
        edges.uncount(&block(0, BlockKind::CondTaken, 0x2000));
        assert_eq!(edges.take(), []);
    }
}

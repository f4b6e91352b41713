//! Paths as what they do to the stack of calls.

use crate::blocks::Blocks;
use crate::calls::{Arrival, Known};
use crate::edges::Edges;
use crate::stack::Entry;
use pt_flow::Block;
use std::ops::Range;

/// One change of the stack, `run` instructions behind the last one.
pub enum Move {
    Push {
        run: u32,
        entry: Entry,
    },
    Pop {
        run: u32,
    },
    /// A tail call; who it returns to is taken over.
    Replace {
        run: u32,
        entry: Entry,
    },
}

/// What a path does when it begins in the function that its first block is in, that block having been reached.
pub struct Plan {
    pub known: Known,
    /// The first block.
    pub first: u32,
    pub start: u64,
    pub moves: Vec<Move>,
    pub edges: Vec<u32>,
    pub blocks: Vec<u32>,
    /// Instructions behind the last move.
    pub run: u32,
    /// Of the last block.
    pub end: u64,
    pub arrival: Arrival,
}

impl Plan {
    pub fn of(known: Known, first: &Block<'_>) -> Plan {
        Plan {
            known,
            first: first.id,
            start: first.start,
            moves: Vec::new(),
            edges: Vec::new(),
            blocks: Vec::new(),
            run: 0,
            end: first.end,
            arrival: Arrival::Jump,
        }
    }
}

/// A plan whose lists stand in those of all.
pub struct Kept {
    pub known: Known,
    pub first: u32,
    pub start: u64,
    pub count: u64,
    pub end: u64,
    pub moves: Range<u32>,
    edges: Range<u32>,
    pub run: u32,
    version: u32,
    state: State,
    pub arrival: Arrival,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    /// Ran once.
    Seen,
    /// No plan can be made of it.
    Hopeless,
    Fits,
}

/// Plans by the number of their path.
#[derive(Default)]
pub struct Plans {
    pub generation: u64,
    plans: Vec<Kept>,
    pub moves: Vec<Move>,
    edges: Vec<u32>,
    /// The blocks of each path, and where they stand.
    blocks: Vec<u32>,
    ran: Vec<(u32, u32)>,
}

/// Moves and edges of plans that were given up are forgotten with all others when there are this many.
const MOST: usize = 1 << 23;

impl Plans {
    /// None yet, of paths of the generation.
    pub fn of(generation: u64) -> Plans {
        Plans { generation, ..Plans::default() }
    }

    /// The plan of the path, when there is one of this version.
    #[inline(always)]
    pub fn fitting(&mut self, path: u32, version: u32) -> Option<&mut Kept> {
        self.plans.get_mut(path as usize).filter(|plan| plan.state == State::Fits && plan.version == version)
    }

    /// Whether the path ran often enough for a plan, and none was refused.
    pub fn is_worth_it(&mut self, path: u32, version: u32) -> bool {
        let index = path as usize;
        if self.plans.len() <= index {
            self.plans.resize_with(index + 1, Kept::new);
        }
        let plan = &mut self.plans[index];
        match plan.state {
            State::New => {
                plan.state = State::Seen;
                false
            }
            State::Seen => true,
            State::Hopeless | State::Fits => plan.version != version,
        }
    }

    pub fn keep(&mut self, path: u32, version: u32, plan: Option<Plan>) {
        let Some(kept) = self.plans.get_mut(path as usize) else { return };
        kept.version = version;
        kept.state = if plan.is_some() { State::Fits } else { State::Hopeless };
        let Some(plan) = plan else { return };
        (kept.known, kept.first, kept.start) = (plan.known, plan.first, plan.start);
        (kept.end, kept.run, kept.arrival) = (plan.end, plan.run, plan.arrival);
        let (moves, edges) = (self.moves.len() as u32, self.edges.len() as u32);
        self.moves.extend(plan.moves);
        kept.moves = moves..self.moves.len() as u32;
        // Where the path goes does not depend on functions.
        if kept.edges.is_empty() {
            self.edges.extend(plan.edges);
            kept.edges = edges..self.edges.len() as u32;
        }
        self.keep_blocks(path, &plan.blocks);
    }

    fn keep_blocks(&mut self, path: u32, blocks: &[u32]) {
        let index = path as usize;
        if self.ran.len() <= index {
            self.ran.resize(index + 1, (0, 0));
        }
        // Which blocks a path has does not depend on functions.
        if self.ran[index] == (0, 0) {
            let first = self.blocks.len() as u32;
            self.blocks.extend(blocks);
            self.ran[index] = (first, self.blocks.len() as u32);
        }
    }

    /// Counts of the plans become counts of their edges and blocks.
    pub fn gather(&mut self, edges: &mut Edges, blocks: &mut Blocks) {
        for (plan, &(first, end)) in self.plans.iter_mut().zip(&self.ran).filter(|(plan, _)| plan.count != 0) {
            for &id in &self.blocks[first as usize..end as usize] {
                blocks.add(id, plan.count);
            }
            for &slot in &self.edges[plan.edges.start as usize..plan.edges.end as usize] {
                edges.add(slot, plan.count);
            }
            plan.count = 0;
        }
        if self.moves.len() > MOST {
            *self = Plans::of(self.generation);
        }
    }

    pub fn memory(&self) -> usize {
        self.plans.capacity() * size_of::<Kept>()
            + self.moves.capacity() * size_of::<Move>()
            + (self.edges.capacity() + self.blocks.capacity()) * 4
            + self.ran.capacity() * 8
    }
}

impl Kept {
    fn new() -> Kept {
        Kept {
            known: Known { function: u32::MAX, called: u32::MAX, entry: false, stub: false },
            first: u32::MAX,
            start: 0,
            count: 0,
            end: 0,
            moves: 0..0,
            edges: 0..0,
            run: 0,
            version: 0,
            state: State::New,
            arrival: Arrival::Jump,
        }
    }
}

//! Paths as what they do to the stack of calls.

use crate::arrival::Arrival;
use crate::blocks::Blocks;
use crate::edges::Edges;
use crate::functions::NO_VERSION;
use crate::known::Known;
use crate::numbered::Numbered;
use crate::stack::{Entry, NO_ADDRESS};
use pt_flow::Block;

/// One change of the stack, `run` instructions behind the last one. Two of them fit into a line of the cache.
#[derive(Clone, Copy)]
pub struct Move {
    pub run: u32,
    /// Which function is entered; `NONE` for the end of a call.
    pub function: u32,
    pub call_address: u64,
    pub target: u64,
    /// `TAIL` for a tail call, which takes over who it returns to, and where there is none.
    pub returns_to: u64,
}

/// In place of a function.
pub const NONE: u32 = u32::MAX;
/// In place of a return address.
pub const TAIL: u64 = NO_ADDRESS;

impl Move {
    pub fn pop(run: u32) -> Move {
        Move { run, function: NONE, call_address: 0, target: 0, returns_to: TAIL }
    }

    /// The entry is one without flags other than those that its kind has.
    pub fn enter(run: u32, entry: &Entry) -> Move {
        let Entry { function, call_address, target, returns_to, .. } = *entry;
        Move { run, function, call_address, target, returns_to }
    }
}

/// What a path does when it begins in the function that its first block is in, that block having been reached.
pub struct Plan {
    pub known: Known,
    pub start: u64,
    /// Instructions behind the last move.
    pub run: u32,
    /// Of the last block.
    pub last: u64,
    pub end: u64,
    pub arrival: Arrival,
    /// Where a path that ends with a return went when the plan was made, and the slot of that edge.
    pub returned: (u64, u32),
}

impl Plan {
    pub fn of(known: Known, first: &Block<'_>) -> Plan {
        let (start, last, end) = (first.start, first.last, first.end);
        Plan { known, start, run: 0, last, end, arrival: Arrival::Jump, returned: (0, 0) }
    }
}

/// A plan whose lists stand in those of all, in one line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Kept {
    pub start: u64,
    /// Of the last block.
    pub last: u64,
    pub end: u64,
    pub count: u64,
    /// Where it returned to last, and the slot of that edge.
    pub returned_to: u64,
    pub returned_by: u32,
    /// The function that its first block is in.
    pub function: u32,
    /// The version that it is of, or `NO_VERSION`.
    fits: u32,
    pub run: u32,
    first_move: u32,
    moves: u8,
    /// Whether a call of the first block enters its function.
    pub is_entry: bool,
    /// Behind the path.
    pub arrival: Arrival,
}

/// Plans by the number of their path.
pub struct Plans {
    pub generation: u64,
    plans: Numbered<Kept>,
    /// Of which version what was tried last was, by path.
    tried: Numbered<u32>,
    pub moves: Vec<Move>,
    pub edges: Vec<u32>,
    /// The blocks of each path.
    blocks: Vec<u32>,
    ran: Numbered<Ran>,
    /// Calls that are open where a plan is being made: functions, and where they return to.
    pub open: Vec<(u32, u64)>,
}

/// Where the lists of a plan begin that is being made. They grow where they are to stay: to be moved right behind their being written,
/// they would wait until all of them are.
pub struct Begun {
    moves: usize,
    edges: usize,
    blocks: usize,
}

/// How often a path ran up to the last gathering and was not counted for its blocks; where those and its edges stand.
#[derive(Clone, Copy, Default)]
struct Ran {
    first: u32,
    end: u32,
    first_edge: u32,
    edges: u32,
    count: u64,
}

/// Moves of plans that were given up are forgotten with all others when there are this many.
const MOST: usize = 1 << 23;

/// There is room for so many from the outset.
const FEWEST_PATHS: usize = 1 << 11;

impl Plans {
    pub fn of(generation: u64) -> Plans {
        Plans {
            generation,
            plans: Numbered::new(Kept::NOTHING, FEWEST_PATHS),
            tried: Numbered::new(NO_VERSION, FEWEST_PATHS),
            moves: Vec::with_capacity(FEWEST_PATHS),
            edges: Vec::with_capacity(FEWEST_PATHS * 4),
            blocks: Vec::with_capacity(FEWEST_PATHS * 4),
            ran: Numbered::new(Ran::default(), FEWEST_PATHS),
            open: Vec::new(),
        }
    }

    /// The plan of the path, when there is one of this version.
    #[inline(always)]
    pub fn fitting(&mut self, path: u32, version: u32) -> Option<&mut Kept> {
        self.plans.get_mut(path).filter(|plan| plan.fits == version)
    }

    #[inline(always)]
    pub fn of_path(&mut self, path: u32) -> Option<&mut Kept> {
        self.plans.get_mut(path)
    }

    /// The path, which was counted before, did not run. Its last branch; `None` when its edges are not known here.
    pub fn uncount(&mut self, path: u32) -> Option<u64> {
        self.ran.get(path).filter(|ran| ran.end != 0)?;
        let plan = self.plans.get_mut(path)?;
        plan.count = plan.count.wrapping_sub(1);
        Some(plan.last)
    }

    /// Whether no plan of the path was refused in this version.
    pub fn may_fit(&mut self, path: u32, version: u32) -> bool {
        self.plans.put(path);
        *self.tried.put(path) != version
    }

    /// A plan is being made from now on.
    pub fn begin_plan(&self) -> Begun {
        Begun { moves: self.moves.len(), edges: self.edges.len(), blocks: self.blocks.len() }
    }

    /// A block of it runs, and so does its edge when it has one.
    #[inline(always)]
    pub fn push(&mut self, block: u32, edge: Option<u32>) {
        self.blocks.push(block);
        if let Some(slot) = edge {
            self.edges.push(slot);
        }
    }

    /// The plan that was begun is that of the path, or none was made, or one of too many moves. Whether it has one.
    pub fn keep(&mut self, path: u32, version: u32, begun: &Begun, plan: Option<&Plan>) -> bool {
        *self.tried.put(path) = version;
        let kept = self.plans.put(path);
        let moves = u8::try_from(self.moves.len() - begun.moves);
        let (Some(plan), Ok(moves)) = (plan, moves) else {
            kept.fits = NO_VERSION;
            self.moves.truncate(begun.moves);
            self.forget_blocks(begun);
            return false;
        };
        kept.fits = version;
        let Known { function, called, entry, .. } = plan.known;
        (kept.function, kept.is_entry) = (function, entry && called == function);
        (kept.start, kept.last, kept.end, kept.run) = (plan.start, plan.last, plan.end, plan.run);
        (kept.returned_to, kept.returned_by) = plan.returned;
        kept.arrival = plan.arrival;
        (kept.first_move, kept.moves) = (begun.moves as u32, moves);
        // Which blocks a path has and where it goes does not depend on functions.
        let ran = self.ran.put(path);
        if ran.end != 0 {
            self.forget_blocks(begun);
            return true;
        }
        Edges::fill(&mut self.edges, begun.edges);
        (ran.first, ran.end) = (begun.blocks as u32, self.blocks.len() as u32);
        (ran.first_edge, ran.edges) = (begun.edges as u32, (self.edges.len() - begun.edges) as u32);
        true
    }

    fn forget_blocks(&mut self, begun: &Begun) {
        self.edges.truncate(begun.edges);
        self.blocks.truncate(begun.blocks);
    }

    /// Counts of the plans become counts of their edges.
    pub fn gather(&mut self, edges: &mut Edges) {
        for (path, plan) in self.plans.iter_mut() {
            let count = std::mem::take(&mut plan.count);
            let Some(ran) = self.ran.get_mut(path).filter(|_| count != 0) else { continue };
            ran.count = ran.count.wrapping_add(count);
            let first = ran.first_edge as usize;
            edges.add_all(&self.edges[first..first + ran.edges as usize], count);
        }
    }

    /// Counts that were gathered become counts of blocks as well.
    pub fn gather_blocks(&mut self, blocks: &mut Blocks) {
        for (_, ran) in self.ran.iter_mut().filter(|(_, ran)| ran.count != 0) {
            for &id in &self.blocks[ran.first as usize..ran.end as usize] {
                blocks.add(id, ran.count);
            }
            ran.count = 0;
        }
    }

    /// Plans are of paths of another generation from now on; what was counted stays.
    pub fn begin(&mut self, generation: u64, edges: &mut Edges, blocks: &mut Blocks) {
        self.gather(edges);
        self.gather_blocks(blocks);
        *self = Plans::of(generation);
    }

    /// Whether it is time to begin anew.
    pub fn is_full(&self) -> bool {
        self.moves.len() + usize::from(u8::MAX) > MOST
    }

    pub fn memory(&self) -> usize {
        self.plans.memory()
            + self.moves.capacity() * size_of::<Move>()
            + (self.edges.capacity() + self.blocks.capacity()) * 4
            + self.ran.memory()
            + self.tried.memory()
    }
}

impl Kept {
    const NOTHING: Kept = Kept {
        start: 0,
        last: 0,
        end: 0,
        count: 0,
        returned_to: 0,
        returned_by: 0,
        function: NONE,
        fits: NO_VERSION,
        run: 0,
        first_move: 0,
        moves: 0,
        is_entry: false,
        arrival: Arrival::Jump,
    };

    /// Where its moves stand.
    #[inline(always)]
    pub fn moves(&self) -> std::ops::Range<usize> {
        let first = self.first_move as usize;
        first..first + usize::from(self.moves)
    }
}

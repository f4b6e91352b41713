//! Paths: what runs from a block on, given the next branches.
//!
//! A path is found once by going along blocks and kept by (first block, branches). It goes over conditional and direct
//! branches and over returns whose call it holds; it ends where the branches are used up, with a return to a call before
//! it, or in front of whatever needs more than them: an indirect branch, a far transfer. Another kind of path is kept by
//! (first block, target): it goes over direct branches to the branch that a TIP packet tells the target of.

use crate::code::{CodeBlock, CodeCache, Exit, View, Way, SCRATCH};
use crate::{Block, BlockKind, CodeMemory, Path};
use std::sync::atomic::{AtomicU64, Ordering};

/// Branches that a path may use.
pub const WINDOW: u32 = 15;
/// In place of branches, with the number of the block that a target is in.
const TARGET: u32 = 1 << 31;
/// Blocks of one path: bounds runs of direct jumps.
const MOST_STEPS: usize = 64;
/// Calls of one path that it does not return from.
const MOST_PUSHES: usize = 3;
/// All paths are forgotten when there are this many: 64 bytes each, and their steps.
const MOST_PATHS: usize = 1 << 18;
const FEWEST_SLOTS: usize = 1 << 10;
const EMPTY: u64 = u64::MAX;

/// One block of a path. It went to where the next one starts.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub block: u32,
    pub kind: BlockKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The branches are used up.
    Used,
    /// Behind a return whose call is not part of the path: the stack of returns knows where.
    Return,
    /// In front of anything else that the path cannot go over.
    Other,
}

/// How many of what a path holds, in 16 bits each so that paths add up in one addition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally(u64);

impl Tally {
    /// Sums may hold this many paths.
    pub const MOST: u32 = u16::MAX as u32 / MOST_STEPS as u32;

    fn of(conditional: u16, compressed: u16, calls: u16, returns: u16) -> Tally {
        let [conditional, compressed, calls, returns] = [conditional, compressed, calls, returns].map(u64::from);
        Tally(conditional | compressed << 16 | calls << 32 | returns << 48)
    }

    #[inline(always)]
    pub fn add(&mut self, other: Tally) {
        self.0 += other.0;
    }

    /// Conditional branches, compressed returns, calls, other returns.
    pub fn split(self) -> [u64; 4] {
        [0, 16, 32, 48].map(|at| self.0 >> at & 0xffff)
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Entry {
    key: u64,
    pub tally: Tally,
    view: View,
    /// The block behind the path; none where that is for the stack of returns to tell.
    pub end: u32,
    /// `end`, mixed.
    pub next: u64,
    pub id: u32,
    pub instructions: u32,
    first: u32,
    pub steps: u8,
    /// Branches that it used.
    pub used: u8,
    pub stop: Stop,
    /// The most calls that were open at a time.
    pub high: u8,
    /// Blocks of the calls that are open at its end.
    pub pushes: [u32; MOST_PUSHES],
    pub pushed: u8,
}

/// Paths by block and branches, open addressing.
pub struct Paths {
    /// No two are alike.
    pub generation: u64,
    numbers: u32,
    slots: Vec<Entry>,
    shift: u32,
    steps: Vec<Step>,
    count: usize,
}

const VACANT: Entry = Entry {
    key: EMPTY,
    tally: Tally(0),
    view: View::NONE,
    end: SCRATCH,
    next: 0,
    id: u32::MAX,
    instructions: 0,
    first: 0,
    steps: 0,
    used: 0,
    stop: Stop::Other,
    high: 0,
    pushes: [SCRATCH; MOST_PUSHES],
    pushed: 0,
};

/// What says where a path goes from its first block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead(u32);

impl Lead {
    /// Nothing: as far as blocks lead by themselves.
    pub const NONE: Lead = Lead(1);

    /// `size` branches, the oldest in the highest bit.
    #[inline(always)]
    pub fn branches(bits: u64, size: u32) -> Lead {
        Lead((bits & ((1 << size) - 1)) as u32 | 1 << size)
    }

    /// The next branch that has its target told goes to the block of this number.
    #[inline(always)]
    pub fn target(block: u32) -> Lead {
        Lead(TARGET | block)
    }

    fn told_target(self) -> Option<u32> {
        (self.0 & TARGET != 0).then_some(self.0 & !TARGET)
    }

    fn count(self) -> u32 {
        if self.0 & TARGET != 0 {
            0
        } else {
            self.0.ilog2()
        }
    }

    /// Whether the branch with `left - 1` others behind it is taken.
    fn taken(self, left: u32) -> bool {
        self.0 >> (left - 1) & 1 != 0
    }
}

#[inline(always)]
fn key(block: u32, lead: Lead) -> u64 {
    u64::from(block) << 32 | u64::from(lead.0)
}

/// The block's part of a key's hash: kept with the paths that lead to it, so that finding the next one need not wait for
/// a multiplication.
#[inline(always)]
pub fn mixed(block: u32) -> u64 {
    u64::from(block).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn hash(mixed: u64, lead: Lead) -> u64 {
    mixed ^ u64::from(lead.0).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Paths {
    pub fn new() -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        Paths {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            numbers: 0,
            slots: vec![VACANT; FEWEST_SLOTS],
            shift: shift(FEWEST_SLOTS),
            steps: Vec::new(),
            count: 0,
        }
    }

    /// The path from `block` on, when it is known in this view.
    #[inline(always)]
    pub fn find(&self, view: View, block: u32, mixed: u64, lead: Lead) -> Option<&Entry> {
        let entry = &self.slots[self.place(key(block, lead), hash(mixed, lead))];
        (entry.key == key(block, lead) && entry.view == view).then_some(entry)
    }

    fn place_of(&self, key: u64) -> usize {
        self.place(key, hash(mixed((key >> 32) as u32), Lead(key as u32)))
    }

    #[inline(always)]
    pub fn steps(&self, entry: &Entry) -> &[Step] {
        let first = entry.first as usize;
        &self.steps[first..first + usize::from(entry.steps)]
    }

    /// Bytes that the paths take.
    pub fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Entry>() + self.steps.capacity() * size_of::<Step>()
    }

    /// Whether it is time to begin anew.
    pub fn is_full(&self) -> bool {
        self.count >= MOST_PATHS || self.steps.len() >= MOST_PATHS * 16
    }

    /// Where the key is, or where it would be.
    #[inline(always)]
    fn place(&self, key: u64, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let found = self.slots[at & mask].key;
            if found == key || found == EMPTY {
                return at & mask;
            }
            at += 1;
        }
    }

    fn insert(&mut self, entry: Entry) {
        let at = self.place_of(entry.key);
        if self.slots[at].key == EMPTY {
            self.count += 1;
        }
        self.slots[at] = entry;
        if self.count * 2 > self.slots.len() {
            let more = self.slots.len() * 2;
            let old = std::mem::replace(&mut self.slots, vec![VACANT; more]);
            self.shift = shift(more);
            for entry in old.into_iter().filter(|entry| entry.key != EMPTY) {
                let at = self.place_of(entry.key);
                self.slots[at] = entry;
            }
        }
    }
}

fn shift(slots: usize) -> u32 {
    u64::BITS - slots.trailing_zeros()
}

/// A path that is being found.
struct Finder {
    steps: Vec<Step>,
    open: Vec<u32>,
    high: usize,
    instructions: u32,
    conditional: u16,
    compressed: u16,
    calls: u16,
    returns: u16,
}

impl Finder {
    /// A call out of the block that may be returned from.
    fn call(&mut self, block: u32) {
        self.calls += 1;
        self.open.push(block);
        self.high = self.high.max(self.open.len());
    }
}

impl CodeCache {
    /// Finds and keeps the path. `None` when code on the way cannot be read: the walk will tell why.
    #[cold]
    pub fn find_path<M: CodeMemory>(&mut self, memory: &M, view: View, block: u32, lead: Lead) -> Option<Entry> {
        if block == SCRATCH {
            return None;
        }
        let known = self.paths.slots[self.paths.place_of(key(block, lead))];
        let entry = self.trace(memory, view, block, lead)?;
        let Entry { key, .. } = entry;
        // Of a view before: the same as long as every block on the way is.
        if known.key == key && self.same(&known, &entry) {
            self.paths.steps.truncate(entry.first as usize);
            let entry = Entry { view, ..known };
            self.paths.insert(entry);
            return Some(entry);
        }
        let entry = Entry { id: self.paths.numbers, ..entry };
        self.paths.numbers += u32::from(entry.steps != 0);
        self.paths.insert(entry);
        Some(entry)
    }

    fn same(&self, one: &Entry, other: &Entry) -> bool {
        let steps = |entry| self.paths.steps(entry).iter().map(|step| (step.block, step.kind));
        one.end == other.end && one.stop == other.stop && steps(one).eq(steps(other))
    }

    fn trace<M: CodeMemory>(&mut self, memory: &M, view: View, first: u32, lead: Lead) -> Option<Entry> {
        let count = lead.count();
        let mut left = count;
        let mut path = Finder {
            steps: Vec::with_capacity(MOST_STEPS),
            open: Vec::new(),
            high: 0,
            instructions: 0,
            conditional: 0,
            compressed: 0,
            calls: 0,
            returns: 0,
        };
        let mut at = first;
        let mut end = None;
        let stop = loop {
            // Without any branch it leads up to where one is needed.
            if left == 0 && count != 0 {
                break Stop::Used;
            }
            let block = *self.block(at);
            if path.steps.len() == MOST_STEPS || at == SCRATCH {
                break Stop::Other;
            }
            let indirect = match block.exit {
                Exit::IndirectJump => Some(BlockKind::IndirectJump),
                Exit::IndirectCall if path.open.len() < MOST_PUSHES => Some(BlockKind::IndirectCall),
                Exit::Return => Some(BlockKind::Return),
                _ => None,
            };
            if let (Some(kind), Some(target)) = (indirect, lead.told_target()) {
                path.steps.push(Step { block: at, kind });
                path.instructions += u32::from(block.instructions);
                path.returns += u16::from(kind == BlockKind::Return);
                if kind == BlockKind::IndirectCall {
                    path.call(at);
                }
                end = Some(target);
                break Stop::Used;
            }
            let (kind, way, from) = match block.exit {
                Exit::Cond if left != 0 && lead.taken(left) => (BlockKind::CondTaken, Way::Target, at),
                Exit::Cond if left != 0 => (BlockKind::CondNotTaken, Way::Next, at),
                Exit::Linear => (BlockKind::Linear, Way::Next, at),
                Exit::Jump => (BlockKind::Jump, Way::Target, at),
                Exit::Call if path.open.len() < MOST_PUSHES || block.target == block.end => {
                    (BlockKind::Call, Way::Target, at)
                }
                Exit::Return if left != 0 && lead.taken(left) => match path.open.last() {
                    Some(&call) => (BlockKind::Return, Way::Next, call),
                    None => {
                        path.steps.push(Step { block: at, kind: BlockKind::Return });
                        path.instructions += u32::from(block.instructions);
                        (left, path.compressed) = (left - 1, path.compressed + 1);
                        end = Some(SCRATCH);
                        break Stop::Return;
                    }
                },
                _ => break Stop::Other,
            };
            let next = self.step(memory, view, from, way)?;
            if next == SCRATCH {
                break Stop::Other;
            }
            path.steps.push(Step { block: at, kind });
            path.instructions += u32::from(block.instructions);
            match kind {
                BlockKind::CondTaken | BlockKind::CondNotTaken => {
                    (left, path.conditional) = (left - 1, path.conditional + 1)
                }
                BlockKind::Return => {
                    path.open.pop();
                    (left, path.compressed) = (left - 1, path.compressed + 1);
                }
                BlockKind::Call if block.target == block.end => path.calls += 1,
                BlockKind::Call => path.call(at),
                _ => {}
            }
            at = next;
        };
        let end = end.unwrap_or(at);
        let mut pushes = [SCRATCH; MOST_PUSHES];
        pushes[..path.open.len()].copy_from_slice(&path.open);
        let entry = Entry {
            key: key(first, lead),
            tally: Tally::of(path.conditional, path.compressed, path.calls, path.returns),
            view,
            end,
            next: mixed(end),
            id: u32::MAX,
            instructions: path.instructions,
            first: self.paths.steps.len() as u32,
            steps: path.steps.len() as u8,
            used: (count - left) as u8,
            stop,
            high: path.high as u8,
            pushes,
            pushed: path.open.len() as u8,
        };
        self.paths.steps.extend(path.steps);
        Some(entry)
    }

    /// The block that follows on `way`; `None` when it cannot be read.
    fn step<M: CodeMemory>(&mut self, memory: &M, view: View, from: u32, way: Way) -> Option<u32> {
        let block = self.block(from);
        match block.linked(way, view) {
            Some(number) => Some(number),
            None => {
                let address = if way == Way::Target { block.target } else { block.end };
                self.link(memory, view, from, way, address).ok()
            }
        }
    }
}

impl<'a> Path<'a> {
    #[inline(always)]
    pub(crate) fn new(code: &'a CodeCache, entry: &'a Entry, epoch: u32, returns_to: Option<u64>) -> Self {
        Path { id: entry.id, instructions: entry.instructions, returns_to, code, entry, epoch }
    }

    /// The cached block that it begins with.
    #[inline(always)]
    pub fn first(&self) -> u32 {
        (self.entry.key >> 32) as u32
    }

    /// The blocks in the order in which they run.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = Block<'a>> + 'a {
        let (code, epoch) = (self.code, self.epoch);
        let end = self.returns_to.unwrap_or_else(|| code.block(self.entry.end).start);
        let steps = code.paths.steps(self.entry);
        steps.iter().enumerate().map(move |(index, step)| {
            let target = steps.get(index + 1).map_or(end, |next| code.block(next.block).start);
            told(code, code.block(step.block), step.kind, target, epoch)
        })
    }
}

/// A block as sinks are told.
#[inline(always)]
pub fn told<'b>(code: &'b CodeCache, block: &CodeBlock, kind: BlockKind, target: u64, epoch: u32) -> Block<'b> {
    Block {
        id: block.id,
        start: block.start,
        last: block.last,
        end: block.end,
        instructions: block.instructions.into(),
        kind,
        epoch,
        target,
        lengths: code.lengths(block),
    }
}

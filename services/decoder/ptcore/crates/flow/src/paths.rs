//! Paths: what runs from a block on, given the next branches.
//!
//! A path is found once by going along blocks and kept by (first block, branches). It goes over conditional and direct
//! branches and over returns whose call it holds; it ends where the branches are used up, with a return to a call before
//! it, or in front of whatever needs more than them: an indirect branch, a far transfer. Another kind of path is kept by
//! (first block, target): it goes over direct branches to the branch that a TIP packet tells the target of.

use crate::block::BlockKind;
use crate::code_block::SCRATCH;
use crate::cold_path::cold_path;
use crate::lead::{Key, Lead, Mixed};
use crate::tally::Tally;
use crate::view::View;
use std::sync::atomic::{AtomicU64, Ordering};

/// Branches that a path may use.
pub const WINDOW: u32 = 18;
/// Calls of one path that it does not return from.
pub const MOST_PUSHES: usize = 3;
/// All paths are forgotten when there are this many.
const MOST_PATHS: usize = 1 << 18;
const FEWEST_SLOTS: usize = 1 << 12;
/// There is room for so many from the outset.
const FEWEST_PATHS: usize = FEWEST_SLOTS / 2;

/// Counts of two bits that say how often paths were asked for. Where so many were that most counts are full, paths are found when
/// they are asked for first, as those are whose hashes are alike by chance.
const ASKED: usize = 1 << 16;

/// One block of a path. It went to where the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What is needed of each path that runs: two of them fit into a line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Entry {
    pub key: Key,
    pub tally: Tally,
    /// The block behind the path; none where that is for the stack of returns to tell.
    pub end: Mixed,
    pub id: u32,
    pub view: View,
    /// Branches that it left.
    pub left: u8,
    pub stop: Stop,
    /// The most calls that were open at a time; with `RETURNED` the path ends with the return, whose target is told, of a call
    /// before it.
    pub high: u8,
    /// Calls that are open at its end.
    pub pushed: u8,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// See [`Entry::high`]: more than there are calls in a path.
pub const RETURNED: u8 = 1 << 7;
const _: () = assert!(crate::tally::MOST_STEPS < RETURNED as usize);

/// What is needed of some.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    pub first: u32,
    pub steps: u8,
    /// The blocks of the calls that are open at its end.
    pub pushes: [u32; MOST_PUSHES],
}

/// Paths by block and branches, open addressing.
#[derive(Default)]
pub struct Paths {
    /// No two are alike.
    pub generation: u64,
    pub slots: Vec<Entry>,
    /// By number.
    pub rests: Vec<Rest>,
    shift: u32,
    pub steps: Vec<Step>,
    count: usize,
    /// By the hash of a key.
    asked: Vec<u64>,
}

/// The paths, to look them up many times.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    slots: &'a [Entry],
    shift: u32,
}

impl<'a> Table<'a> {
    #[inline(always)]
    pub fn find(self, key: Key) -> Option<&'a Entry> {
        let mut at = (key.hash() >> self.shift) as usize;
        loop {
            // Behind the last slot comes the first one.
            let Some(entry) = self.slots.get(at) else {
                cold_path();
                at = 0;
                continue;
            };
            if entry.key == key {
                return Some(entry);
            }
            if entry.key == Key::NONE {
                cold_path();
                return None;
            }
            at += 1;
        }
    }
}

pub const VACANT: Entry = Entry {
    key: Key::NONE,
    tally: Tally::NONE,
    end: Mixed::of(SCRATCH),
    id: u32::MAX,
    view: View::NONE,
    left: 0,
    stop: Stop::Other,
    high: 0,
    pushed: 0,
};

impl Paths {
    pub fn new() -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        Paths {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            slots: vec![VACANT; FEWEST_SLOTS],
            rests: Vec::with_capacity(FEWEST_PATHS),
            shift: shift(FEWEST_SLOTS),
            steps: Vec::with_capacity(FEWEST_PATHS * 8),
            count: 0,
            asked: vec![0; ASKED / 32],
        }
    }

    /// Whether the path was not asked for twice before: most are not worth finding, as they hardly come again.
    pub fn is_rare(&mut self, block: u32, lead: Lead) -> bool {
        let hash = Key::new(Mixed::of(block), lead).hash();
        let at = (hash >> (u32::BITS - ASKED.trailing_zeros())) as usize;
        let (word, shift) = (&mut self.asked[at / 32], at % 32 * 2);
        let is_rare = *word >> shift & 3 < 2;
        *word += u64::from(is_rare) << shift;
        is_rare
    }

    /// The path from `block` on, when it is known in this view.
    #[inline(always)]
    pub fn find(&self, view: View, block: u32, lead: Lead) -> Option<&Entry> {
        let key = Key::new(Mixed::of(block), lead);
        let entry = &self.slots[self.place(key)];
        (entry.key == key && entry.view == view).then_some(entry)
    }

    /// Of a path that is kept.
    #[inline(always)]
    pub fn rest(&self, entry: &Entry) -> &Rest {
        &self.rests[entry.id as usize]
    }

    #[inline(always)]
    pub fn steps(&self, entry: &Entry) -> &[Step] {
        let rest = self.rest(entry);
        let first = rest.first as usize;
        &self.steps[first..first + usize::from(rest.steps)]
    }

    /// Bytes that the paths take.
    pub fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Entry>()
            + self.rests.capacity() * size_of::<Rest>()
            + self.steps.capacity() * size_of::<Step>()
            + size_of_val(&*self.asked)
    }

    /// Whether it is time to begin anew.
    pub fn is_full(&self) -> bool {
        self.rests.len() >= MOST_PATHS || self.steps.len() >= MOST_PATHS * 16
    }

    pub fn table(&self) -> Table<'_> {
        Table { slots: &self.slots, shift: self.shift }
    }

    /// Where the key is, or where it would be.
    #[inline(always)]
    pub fn place(&self, key: Key) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key.hash() >> self.shift) as usize;
        loop {
            let found = self.slots[at & mask].key;
            if found == key || found == Key::NONE {
                return at & mask;
            }
            at += 1;
        }
    }

    pub fn insert(&mut self, entry: Entry) {
        let at = self.place(entry.key);
        if self.slots[at].key == Key::NONE {
            self.count += 1;
        }
        self.slots[at] = entry;
        if self.count * 2 > self.slots.len() {
            let more = self.slots.len() * 2;
            let old = std::mem::replace(&mut self.slots, vec![VACANT; more]);
            self.shift = shift(more);
            for entry in old.into_iter().filter(|entry| entry.key != Key::NONE) {
                let at = self.place(entry.key);
                self.slots[at] = entry;
            }
        }
    }
}

fn shift(slots: usize) -> u32 {
    u32::BITS - slots.trailing_zeros()
}

//! Paths: what runs from a block on, given the next branches.
//!
//! A path is found once by going along blocks and kept by (first block, branches). It goes over conditional and direct
//! branches and over returns whose call it holds; it ends where the branches are used up, with a return to a call before
//! it, or in front of whatever needs more than them: an indirect branch, a far transfer. Another kind of path is kept by
//! (first block, target): it goes over direct branches to the branch that a TIP packet tells the target of.

use crate::block::BlockKind;
use crate::code_block::SCRATCH;
use crate::lead::{hash, key, mixed, Lead};
use crate::tally::Tally;
use crate::view::View;
use std::sync::atomic::{AtomicU64, Ordering};

/// Branches that a path may use.
pub const WINDOW: u32 = 18;
/// Calls of one path that it does not return from.
pub const MOST_PUSHES: usize = 3;
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

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Entry {
    pub key: u64,
    pub tally: Tally,
    pub view: View,
    /// The block behind the path; none where that is for the stack of returns to tell.
    pub end: u32,
    /// `end`, mixed.
    pub next: u64,
    pub id: u32,
    pub instructions: u32,
    pub first: u32,
    pub steps: u8,
    /// Branches that it used, and those that it left.
    pub used: u8,
    pub left: u8,
    pub stop: Stop,
    /// The most calls that were open at a time.
    pub high: u8,
    /// Calls that are open at its end, and their blocks.
    pub pushed: u8,
    pub pushes: [u32; MOST_PUSHES],
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Paths by block and branches, open addressing.
pub struct Paths {
    /// No two are alike.
    pub generation: u64,
    pub numbers: u32,
    pub slots: Vec<Entry>,
    shift: u32,
    pub steps: Vec<Step>,
    count: usize,
}

/// The paths, to look them up many times.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    slots: &'a [Entry],
    shift: u32,
}

impl<'a> Table<'a> {
    #[inline(always)]
    pub fn find(self, key: u64, hash: u64) -> Option<&'a Entry> {
        let mut at = (hash >> self.shift) as usize;
        loop {
            // Behind the last slot comes the first one.
            let Some(entry) = self.slots.get(at) else {
                at = 0;
                continue;
            };
            if entry.key == key {
                return Some(entry);
            }
            if entry.key == EMPTY {
                return None;
            }
            at += 1;
        }
    }
}

const VACANT: Entry = Entry {
    key: EMPTY,
    tally: Tally::NONE,
    view: View::NONE,
    end: SCRATCH,
    next: 0,
    id: u32::MAX,
    instructions: 0,
    first: 0,
    steps: 0,
    used: 0,
    left: 0,
    stop: Stop::Other,
    high: 0,
    pushes: [SCRATCH; MOST_PUSHES],
    pushed: 0,
};

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

    pub fn place_of(&self, key: u64) -> usize {
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

    pub fn table(&self) -> Table<'_> {
        Table { slots: &self.slots, shift: self.shift }
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

    pub fn insert(&mut self, entry: Entry) {
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

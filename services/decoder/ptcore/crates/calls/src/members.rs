//! Which blocks are in functions of code that nothing divides.

use crate::numbered::Numbered;
use std::collections::BTreeSet;

/// Blocks by function: each leads to the one that was put in before it.
pub struct Members {
    /// By function; `NOBODY` of one without, `ORDERED` where they are in order.
    last: Vec<u32>,
    /// By block: where it starts, and which comes next.
    blocks: Numbered<(u64, u32)>,
    /// Function, where the block starts, and the block: of functions of which many stayed when some were taken out.
    ordered: BTreeSet<(u32, u64, u32)>,
}

const NOBODY: u32 = u32::MAX;
const ORDERED: u32 = u32::MAX - 1;
/// So many are looked at quickly each time; to keep all in order takes a fifth of a first pass through code without symbols.
const MANY: usize = 1 << 10;

impl Default for Members {
    fn default() -> Self {
        Members { last: Vec::new(), blocks: Numbered::new((0, NOBODY), 0), ordered: BTreeSet::new() }
    }
}

impl Members {
    /// Puts a block in that is in no function.
    pub fn put(&mut self, function: u32, block: u32, start: u64) {
        let index = function as usize;
        if self.last.len() <= index {
            self.last.resize(index + 1, NOBODY);
        }
        let last = &mut self.last[index];
        if *last == ORDERED {
            self.ordered.insert((function, start, block));
            return;
        }
        let before = std::mem::replace(last, block);
        *self.blocks.put(block) = (start, before);
    }

    /// Takes out the blocks of the function that start at `from` or behind.
    pub fn take(&mut self, function: u32, from: u64, mut taken: impl FnMut(u32)) {
        let Some(last) = self.last.get_mut(function as usize) else { return };
        if *last == ORDERED {
            while let Some(&member) = self.ordered.range((function, from, 0)..=(function, u64::MAX, NOBODY)).next() {
                self.ordered.remove(&member);
                taken(member.2);
            }
            return;
        }
        let mut next = std::mem::replace(last, NOBODY);
        let mut stay = 0;
        while let Some(member) = self.blocks.get_mut(next) {
            let (start, before) = *member;
            if start < from {
                member.1 = std::mem::replace(last, next);
                stay += 1;
            } else {
                taken(next);
            }
            next = before;
        }
        if stay > MANY {
            let mut next = std::mem::replace(last, ORDERED);
            while let Some(&(start, before)) = self.blocks.get(next) {
                self.ordered.insert((function, start, next));
                next = before;
            }
        }
    }

    /// Takes out all.
    pub fn take_all(&mut self, mut taken: impl FnMut(u32)) {
        for function in 0..self.last.len() as u32 {
            self.take(function, 0, &mut taken);
        }
        self.last.clear();
    }

    /// About: nodes of what is in order are at least half full.
    pub fn memory(&self) -> usize {
        self.last.capacity() * 4 + self.blocks.memory() + self.ordered.len() * 2 * size_of::<(u32, u64, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(members: &mut Members, function: u32, from: u64) -> Vec<u32> {
        let mut taken = Vec::new();
        members.take(function, from, |block| taken.push(block));
        taken.sort_unstable();
        taken
    }

    #[test]
    fn what_starts_behind_is_taken_out_and_the_rest_stays() {
        let mut members = Members::default();
        for (function, block, start) in [(3, 7, 0x1000), (3, 1, 0x1020), (0, 2, 0x1030), (3, 4, 0x1010)] {
            members.put(function, block, start);
        }
        assert_eq!(taken(&mut members, 3, 0x1010), [1, 4]);
        assert_eq!(taken(&mut members, 3, 0), [7]);
        assert_eq!(taken(&mut members, 3, 0), []);
        assert_eq!(taken(&mut members, 9, 0), []);
        members.put(3, 7, 0x1000);
        let mut all = Vec::new();
        members.take_all(|block| all.push(block));
        all.sort_unstable();
        assert_eq!(all, [2, 7]);
    }

    #[test]
    fn of_any_number_those_behind_are_taken_out() {
        let (mut members, mut plain) = (Members::default(), Vec::new());
        for block in 0..4 * MANY as u32 {
            let start = u64::from(block.wrapping_mul(0x9e37) % 0x8000);
            members.put(block % 2, block, start);
            plain.push((block % 2, start, block));
            if block % 500 == 499 {
                let is_taken = |&&(function, start, _): &&(u32, u64, u32)| function == 0 && start >= 0x7000;
                let mut behind: Vec<_> = plain.iter().filter(is_taken).map(|&(.., block)| block).collect();
                behind.sort_unstable();
                assert_eq!(taken(&mut members, 0, 0x7000), behind);
                plain.retain(|member| !is_taken(&member));
            }
        }
        assert!(!members.ordered.is_empty());
        let mut all = Vec::new();
        members.take_all(|block| all.push(block));
        all.sort_unstable();
        assert_eq!(all, plain.iter().map(|&(.., block)| block).collect::<Vec<_>>());
        members.put(0, 1, 2);
        assert!(members.ordered.is_empty());
    }
}

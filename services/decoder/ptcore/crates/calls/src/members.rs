//! Which blocks are in functions of code that nothing divides.

use std::collections::BTreeSet;

/// Function, where the block starts, and the block.
#[derive(Default)]
pub struct Members(BTreeSet<(u32, u64, u32)>);

impl Members {
    /// Puts a block in that is in no function.
    pub fn put(&mut self, function: u32, block: u32, start: u64) {
        self.0.insert((function, start, block));
    }

    /// Takes out the blocks of the function that start at `from` or behind.
    pub fn take(&mut self, function: u32, from: u64, mut taken: impl FnMut(u32)) {
        while let Some(&member) = self.0.range((function, from, 0)..=(function, u64::MAX, u32::MAX)).next() {
            self.0.remove(&member);
            taken(member.2);
        }
    }

    /// Takes out all.
    pub fn take_all(&mut self, mut taken: impl FnMut(u32)) {
        std::mem::take(&mut self.0).into_iter().for_each(|(_, _, block)| taken(block));
    }

    /// About: nodes are at least half full.
    pub fn memory(&self) -> usize {
        self.0.len() * 2 * size_of::<(u32, u64, u32)>()
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
}

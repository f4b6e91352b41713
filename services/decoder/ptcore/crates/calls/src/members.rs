//! Which blocks are in functions of code that nothing divides.

use crate::known::grow;

/// Blocks by function: each leads to the one that was put in before it.
#[derive(Default)]
pub struct Members {
    /// By function; `NOBODY` of one without.
    last: Vec<u32>,
    /// By block: where it starts, and which comes next.
    blocks: Vec<(u64, u32)>,
}

const NOBODY: u32 = u32::MAX;

impl Members {
    /// Puts a block in that is in no function.
    pub fn put(&mut self, function: u32, block: u32, start: u64) {
        let before = std::mem::replace(grow(&mut self.last, function, NOBODY), block);
        *grow(&mut self.blocks, block, (0, NOBODY)) = (start, before);
    }

    /// Takes out the blocks of the function that start at `from` or behind.
    pub fn take(&mut self, function: u32, from: u64, mut taken: impl FnMut(u32)) {
        let Some(last) = self.last.get_mut(function as usize) else { return };
        let mut next = std::mem::replace(last, NOBODY);
        while let Some(&(start, before)) = self.blocks.get(next as usize) {
            if start < from {
                self.blocks[next as usize].1 = std::mem::replace(last, next);
            } else {
                taken(next);
            }
            next = before;
        }
    }

    /// Takes out all.
    pub fn take_all(&mut self, mut taken: impl FnMut(u32)) {
        for function in 0..self.last.len() as u32 {
            self.take(function, 0, &mut taken);
        }
    }

    pub fn memory(&self) -> usize {
        self.last.capacity() * 4 + self.blocks.capacity() * size_of::<(u64, u32)>()
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
        assert_eq!(all, [2, 7]);
    }
}

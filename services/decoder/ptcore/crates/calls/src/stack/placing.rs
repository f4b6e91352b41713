//! The calls of a part that was decoded by itself in their place.

use super::outer::DEPTH;
use crate::fragment::{Fragment, OpenCall};
use crate::records::{Columns, NO_PARENT};

/// Where a part begins: the next number, and the numbers of the calls that are open.
pub struct Placing<'p> {
    pub next: u64,
    pub around: &'p [u64],
    /// The first number that the part uses for its own calls.
    pub first: u64,
}

/// What a part says of the end of a call around it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelEnd {
    pub end_tsc: u64,
    pub own: u64,
    pub total: u64,
    pub flags: u8,
}

impl Placing<'_> {
    fn number(&self, call: u64) -> u64 {
        match call.checked_sub(self.first) {
            Some(index) => self.next + index,
            None => {
                let level = (self.first - 1 - call) as usize;
                let index = self.around.len().checked_sub(level + 1);
                index.map_or(NO_PARENT, |index| self.around[index])
            }
        }
    }

    fn depth(&self, depth: u32) -> u32 {
        depth.wrapping_sub(DEPTH).wrapping_add(self.around.len() as u32 - 1)
    }

    /// Gives calls that are open their numbers and depths.
    pub fn place_open(&self, call: &OpenCall) -> (u64, u64, u32) {
        (self.number(call.number), self.number(call.caller), self.depth(call.depth))
    }

    /// Gives calls that are over their numbers and depths. What is known of the ends of calls around the part is returned,
    /// by level, and does not stay among them.
    pub fn place(&self, part: &mut Fragment) -> Vec<LevelEnd> {
        let mut ends = vec![LevelEnd::default(); part.outer.levels.len()];
        let records = &mut part.records;
        let mut around = Vec::new();
        for (row, call) in records.call.iter_mut().enumerate() {
            if *call < self.first {
                around.push((row, (self.first - 1 - *call) as usize));
            } else {
                *call = *call - self.first + self.next;
            }
        }
        for parent in &mut records.parent {
            *parent = self.number(*parent);
        }
        let shift = self.depth(0);
        records.columns.depth.iter_mut().for_each(|depth| *depth = depth.wrapping_add(shift));
        for (row, level) in around.into_iter().rev() {
            ends[level] = level_end(&records.columns, row);
            records.swap_remove(row);
        }
        ends
    }
}

fn level_end(columns: &Columns, row: usize) -> LevelEnd {
    LevelEnd {
        end_tsc: columns.end_tsc[row],
        own: columns.instructions[row],
        total: columns.instructions_total[row],
        flags: columns.flags[row],
    }
}

//! Where `setjmp` returned to in calls that are open.

use super::awaited::NEAR;
use std::collections::HashMap;

/// The address behind a `setjmp`, and how many calls lie below the one that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    pub address: u64,
    pub depth: usize,
}

/// As many are remembered as calls may be open.
pub const MAX_LANDINGS: usize = 1 << 20;

/// From the outermost call on; of one call each address once.
#[derive(Debug, Default)]
pub struct Landings {
    list: Vec<Landing>,
    /// Of the first ones, by address: the last of them. By landing: the one before of its address. They are put in when one is
    /// looked for that is not among the last ones.
    last: HashMap<u64, usize>,
    before: Vec<Option<usize>>,
}

impl Landings {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Landing> {
        self.list.iter()
    }

    /// The depth of the innermost landing at `address`.
    pub fn innermost(&mut self, address: u64) -> Option<usize> {
        let is_there = |landing: &&Landing| landing.address == address;
        let near = self.list.iter().rev().take(NEAR).find(is_there);
        if near.is_some() || self.list.len() <= NEAR {
            return near.map(|landing| landing.depth);
        }
        for index in self.before.len()..self.list.len() {
            self.before.push(self.last.insert(self.list[index].address, index));
        }
        self.last.get(&address).map(|&index| self.list[index].depth)
    }

    /// One of the innermost call, unless it is known.
    pub fn remember(&mut self, landing: Landing) {
        if self.innermost(landing.address) != Some(landing.depth) && self.list.len() < MAX_LANDINGS {
            self.list.push(landing);
        }
    }

    /// Forgets those of calls that are over.
    pub fn forget_below(&mut self, depth: usize) {
        while let Some(&Landing { address, .. }) = self.list.last().filter(|landing| landing.depth > depth) {
            self.list.pop();
            if self.before.len() > self.list.len() {
                match self.before.pop().flatten() {
                    Some(before) => self.last.insert(address, before),
                    None => self.last.remove(&address),
                };
            }
        }
    }

    /// So many calls turn out to lie around all that are open.
    pub fn are_deeper_by(&mut self, calls: usize) {
        self.list.iter_mut().for_each(|landing| landing.depth += calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_is_found_among_any_number() {
        let (mut landings, mut plain) = (Landings::default(), Vec::<Landing>::new());
        for round in 0..3000 {
            // Deeper and deeper, with ways back.
            let depth = round % 500 + round / 7 % 5;
            landings.forget_below(depth);
            plain.retain(|landing| landing.depth <= depth);
            for address in [round % 13, round % 17, round % 4] {
                let landing = Landing { address: address as u64, depth };
                landings.remember(landing);
                if !plain.contains(&landing) {
                    plain.push(landing);
                }
            }
            assert!(landings.iter().eq(&plain));
            if round % 5 == 0 {
                let innermost = |address| plain.iter().rfind(|one| one.address == address).map(|one| one.depth);
                (0..18).for_each(|address| assert_eq!(landings.innermost(address), innermost(address)));
            }
        }
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut landings = Landings::default();
        (0..MAX_LANDINGS + 10).for_each(|address| landings.remember(Landing { address: address as u64, depth: 1 }));
        assert_eq!(landings.len(), MAX_LANDINGS);
        landings.forget_below(0);
        assert!(landings.last.is_empty() && landings.before.is_empty());
    }
}

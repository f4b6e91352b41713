//! Where `setjmp` returned to in calls that are open.

use super::awaited::NEAR;
use std::collections::HashMap;

/// The address behind a `setjmp`, and how many calls lie below the one that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    pub address: u64,
    pub depth: usize,
    /// A jump led there since `setjmp` was called.
    pub used: bool,
    /// It is inside of a function of that kind, which has returned by then, and then returns to here again: `sigsetjmp` of musl keeps its
    /// own return address for `siglongjmp` (src/signal/x86_64/sigsetjmp.s).
    pub returns_to: Option<u64>,
}

/// As many are remembered as calls may be open.
pub const MAX_LANDINGS: usize = 1 << 20;

/// From the outermost call on; of one call each address once.
#[derive(Debug, Default)]
pub struct Landings {
    list: Vec<Landing>,
    /// Of the first ones, by address and use: the last of them. By landing: the one before of its address and use. They are put in
    /// when one is looked for that is not among the last ones.
    last: HashMap<(u64, bool), usize>,
    before: Vec<Option<usize>>,
}

impl Landings {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Landing> {
        self.list.iter()
    }

    /// Where a jump to `address` leads to: the innermost landing that is not used, as what is caught and thrown again goes on in who
    /// tried around it; else the innermost one.
    pub fn innermost(&mut self, address: u64) -> Option<Landing> {
        let found = self.last_of(address, false).or_else(|| self.last_of(address, true));
        found.map(|index| self.list[index])
    }

    /// The landing, which is one of the innermost call, is used from now on.
    pub fn land_at(&mut self, landing: Landing) {
        self.remember(Landing { used: true, ..landing });
    }

    /// One of the innermost call; if it is known, it is as used as is said now.
    pub fn remember(&mut self, landing: Landing) {
        let last = self.last_of(landing.address, false).max(self.last_of(landing.address, true));
        match last.filter(|&index| self.list[index].depth == landing.depth) {
            Some(index) => {
                self.mark(index, landing.used);
                self.list[index].returns_to = landing.returns_to;
            }
            None if self.list.len() < MAX_LANDINGS => self.list.push(landing),
            None => {}
        }
    }

    fn last_of(&mut self, address: u64, used: bool) -> Option<usize> {
        let is_there = |landing: &Landing| landing.address == address && landing.used == used;
        let far = self.list.len().saturating_sub(NEAR);
        let near = self.list[far..].iter().rposition(is_there).map(|index| far + index);
        if near.is_some() || far == 0 {
            return near;
        }
        for index in self.before.len()..self.list.len() {
            let Landing { address, used, .. } = self.list[index];
            self.before.push(self.last.insert((address, used), index));
        }
        self.last.get(&(address, used)).copied()
    }

    /// The last one of its address is used or not.
    fn mark(&mut self, index: usize, used: bool) {
        let landing = self.list[index];
        if landing.used == used {
            return;
        }
        self.list[index].used = used;
        if let Some(&before) = self.before.get(index) {
            self.take_out(landing, before);
            self.before[index] = self.last.insert((landing.address, used), index);
        }
    }

    /// Forgets those of calls that are over.
    pub fn forget_below(&mut self, depth: usize) {
        while let Some(&landing) = self.list.last().filter(|landing| landing.depth > depth) {
            self.list.pop();
            if self.before.len() > self.list.len() {
                let before = self.before.pop().flatten();
                self.take_out(landing, before);
            }
        }
    }

    /// The landing is not the last one of its address and use any more, but the one before it is.
    fn take_out(&mut self, Landing { address, used, .. }: Landing, before: Option<usize>) {
        match before {
            Some(before) => self.last.insert((address, used), before),
            None => self.last.remove(&(address, used)),
        };
    }

    /// So many calls turn out to lie around all that are open.
    pub fn are_deeper_by(&mut self, calls: usize) {
        self.list.iter_mut().for_each(|landing| landing.depth += calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(address: u64, depth: usize) -> Landing {
        Landing { address, depth, used: false, returns_to: None }
    }

    #[test]
    fn the_innermost_that_is_not_used_is_found_among_any_number() {
        let (mut landings, mut plain) = (Landings::default(), Vec::<Landing>::new());
        let innermost = |plain: &[Landing], address| {
            let of_address = |landing: &&Landing| landing.address == address;
            let is_unused = |landing: &&Landing| of_address(landing) && !landing.used;
            plain.iter().rfind(is_unused).or_else(|| plain.iter().rfind(of_address)).copied()
        };
        for round in 0..3000 {
            // Deeper and deeper, with ways back.
            let depth = round % 500 + round / 7 % 5;
            landings.forget_below(depth);
            plain.retain(|landing| landing.depth <= depth);
            for address in [round % 13, round % 17, round % 4] {
                let landing = unused(address as u64, depth);
                landings.remember(landing);
                match plain.iter_mut().find(|one| (one.address, one.depth) == (landing.address, depth)) {
                    Some(known) => known.used = false,
                    None => plain.push(landing),
                }
            }
            if round % 5 == 0 {
                (0..18).for_each(|address| assert_eq!(landings.innermost(address), innermost(&plain, address)));
            }
            // Mostly to one near by.
            if let Some(landing) = innermost(&plain, round as u64 % 18).filter(|one| one.depth + 20 > depth) {
                landings.forget_below(landing.depth);
                landings.land_at(landing);
                plain.retain(|one| one.depth <= landing.depth);
                plain.iter_mut().filter(|one| **one == landing).for_each(|one| one.used = true);
            }
            assert!(landings.iter().eq(&plain));
        }
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut landings = Landings::default();
        (0..MAX_LANDINGS + 10).for_each(|address| landings.remember(unused(address as u64, 1)));
        assert_eq!(landings.len(), MAX_LANDINGS);
        landings.forget_below(0);
        assert!(landings.last.is_empty() && landings.before.is_empty());
    }
}

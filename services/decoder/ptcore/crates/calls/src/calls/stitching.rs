//! Parts of a stream that are decoded by themselves, and put behind one another.

use super::Calls;
use crate::arrival::Arrival;
use crate::blocks::BlockCount;
use crate::fragment::{Collected, Fragment, Knew};
use crate::functions::{FunctionKey, News, Sums};
use crate::output::Output;
use crate::records::Records;
use crate::uncounted::Uncounted;
use pt_image::{Role, Symbols};
use std::collections::{BTreeSet, HashMap, HashSet};

impl<S: Symbols> Calls<S, Collected> {
    /// Follows parts of streams by themselves.
    pub fn of_parts(symbols: S) -> Self {
        Calls::handing_out(symbols, Collected::default())
    }

    /// Begins a part, which the flow has to join. `log`: what those who put the parts together know of code that nothing
    /// divides; `judged` when they have seen all parts that were ended here.
    pub fn begin_part(&mut self, log: &[News], judged: bool) {
        self.alone = true;
        let new = log.get(self.knew.log..).unwrap_or_default();
        let told = all_told(new);
        self.knew.besides.retain(|own| !told.contains(&own.told()));
        if judged && !self.knew.besides.is_empty() || self.knew.log > log.len() {
            self.knew.besides.clear();
            self.know_only(log);
        } else {
            self.learn(new);
        }
        self.knew.log = log.len();
        self.stack.functions.news.clear();
    }

    /// Ends a part. `None` when its calls depend on those around it in a way that cannot be told from here.
    pub fn end_part(&mut self) -> Option<Fragment> {
        self.arrive_at_last();
        let (settled, arrival, passed) = (self.settled, self.arrival, self.passed);
        let (last, end) = (self.last, self.end);
        let knew = self.knew.clone();
        self.knew.besides.extend(&self.stack.functions.news);
        if self.plans.is_full() {
            self.plans.begin(self.plans.generation, &mut self.edges, &mut self.blocks);
        }
        let fragment = self.stack.end_part();
        (self.arrival, self.overflowing) = (Arrival::Begin, false);
        (self.stack.epoch, self.last, self.end, self.tsc) = (0, 0, 0, 0);
        (self.passed, self.settled) = ((0, 0), false);
        fragment.map(|fragment| Fragment { settled, arrival, last, end, passed, knew, ..fragment })
    }

    /// Takes away what was counted of the flow that it is told.
    pub(crate) fn uncounted(&mut self) -> Uncounted<'_> {
        Uncounted { edges: &mut self.edges, blocks: &mut self.blocks, plans: &mut self.plans }
    }

    /// How often each block of all parts ran, and in which function it is by what is known of code that nothing divides.
    pub fn end_parts(&mut self, log: &[News]) -> Vec<(BlockCount, FunctionKey)> {
        self.begin_part(log, true);
        self.blocks()
    }
}

impl<S: Symbols, O: Output> Calls<S, O> {
    /// What became known of code that nothing divides, in order.
    pub fn news(&self) -> &[News] {
        &self.stack.functions.news
    }

    /// Takes over a part behind the PSB that was told last, and returns columns to use again; `None` when it is not as it would
    /// be if it were decoded here.
    pub fn absorb(&mut self, part: Fragment) -> Option<Records> {
        if !self.settled || !self.stack.fits(&part) || self.knows_otherwise(&part.knew, &part.functions) {
            return None;
        }
        self.learn(&part.news);
        let functions = &mut self.stack.functions;
        let numbers = part.functions.iter().map(|&(key, role, _)| functions.number(key, role));
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        (self.arrival, self.passed) = (part.arrival, part.passed);
        (self.last, self.end) = (part.last, part.end);
        (self.tsc, self.settled) = (part.end_tsc, part.settled);
        Some(self.stack.absorb(part, &numbers))
    }

    /// Whether code that nothing divides, and that a part ran, is divided otherwise than it was there.
    fn knows_otherwise(&self, Knew { log, besides }: &Knew, functions: &[(FunctionKey, Role, Sums)]) -> bool {
        let Some(new) = self.news().get(*log..) else { return true };
        let (told_here, told_there) = (all_told(new), all_told(besides));
        let mut here: Vec<_> = new.iter().filter(|one| !told_there.contains(&one.told())).collect();
        let mut there = besides.iter().filter(|one| !told_here.contains(&one.told())).peekable();
        if here.is_empty() && there.peek().is_none() {
            return false;
        }
        let undivided = functions.iter().filter(|(key, ..)| key.function.is_none());
        let ran: BTreeSet<_> = undivided.map(|(key, ..)| (key.space, key.address)).collect();
        if there.any(|one| one.role.is_stub() || ran.contains(&(one.space, one.start))) {
            return true;
        }
        // There each of them was a part of what began before it: of the nearest that was known there, or that it found.
        let begun_there: HashSet<_> = besides.iter().map(News::begin).collect();
        let is_new = |one: &&News| one.divided != Some(one.start) && !begun_there.contains(&one.begin());
        let unknown: HashSet<_> = new.iter().filter(is_new).map(News::begin).collect();
        // One behind the other: what lies before the last one lies before this one as well.
        here.sort_unstable_by_key(|one| one.begin());
        let mut parts_of = HashMap::new();
        here.into_iter().any(|one| {
            let mut part_of = (one.space, one.first);
            for begin in self.stack.functions.before(one) {
                match parts_of.get(&(begin, one.first)) {
                    Some(&known) => part_of = known,
                    None if unknown.contains(&begin) => continue,
                    None => part_of = begin,
                }
                break;
            }
            if unknown.contains(&one.begin()) {
                parts_of.insert((one.begin(), one.first), part_of);
            }
            one.role.is_stub() || ran.range(part_of..=one.begin()).next().is_some()
        })
    }
}

fn all_told(news: &[News]) -> HashSet<(u32, u64, bool)> {
    news.iter().map(News::told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_image::Place;

    struct Undivided;

    impl Symbols for Undivided {
        fn place(&self, _epoch: u32, _address: u64) -> Place {
            Place { space: 0, function: None, start: 0, end: u64::MAX, bias: 0, entry: false, role: Role::Plain }
        }
    }

    fn begins(start: u64) -> News {
        News { space: 0, start, first: 0, called: true, divided: None, address: start, role: Role::Plain }
    }

    fn ran(function: u64) -> (FunctionKey, Role, Sums) {
        (FunctionKey { space: 0, function: None, address: function }, Role::Plain, Sums::default())
    }

    #[test]
    fn what_began_since_was_there_a_part_of_the_nearest_that_was_known_there() {
        let mut whole = Calls::handing_out(Undivided, Collected::default());
        whole.learn(&[begins(0x2000), begins(0x2800), begins(0x2600)]);
        // 0x2800 and what is behind it ran as 0x2600 there, though here it came out of 0x2000.
        let knew = Knew { log: 1, besides: vec![begins(0x2600)] };
        assert!(whole.knows_otherwise(&knew, &[ran(0x2600)]));
        assert!(!whole.knows_otherwise(&knew, &[ran(0x2000)]));
        // 0x2700 was found by the part itself.
        let knew = Knew { log: 1, besides: Vec::new() };
        assert!(whole.knows_otherwise(&knew, &[ran(0x2700)]));
        assert!(!whole.knows_otherwise(&knew, &[ran(0x2900)]));
    }
}

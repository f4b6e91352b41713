//! Whether what a part of a stream takes to lie around it does so.

use super::frame::NO_ADDRESS;
use super::handing_out::MOST_OPEN;
use super::landings::MAX_LOCALS;
use super::outer::{Level, MOST};
use super::Stack;
use crate::fragment::Fragment;
use crate::output::Output;
use crate::window::NOBODY;
use std::collections::HashMap;

impl<O: Output> Stack<O> {
    /// Whether all calls that the part touches are as it takes them to be, and those further out are of no matter to it.
    pub fn fits(&self, part: &Fragment) -> bool {
        let (levels, depth) = (part.outer.levels.len(), self.frames.len());
        if levels > depth || depth + MOST > MOST_OPEN || self.clock.waiting_rows().next().is_some() {
            return false;
        }
        let untouched = depth - levels;
        let resumptions = &part.outer.no_resumptions;
        part.outer.levels.iter().enumerate().all(|(level, known)| self.is_at(depth - 1 - level, known, part))
            && self.locals.last().is_none_or(|local| local.depth <= untouched)
            && self.locals.len() + part.outer.most_locals <= MAX_LOCALS
            && !self.landings.iter().any(|landing| part.outer.no_landings.contains(&landing.address))
            && !(self.interruptions.iter())
                .any(|known| resumptions.contains(&known.resumes) || resumptions.contains(&known.repeats))
            && (part.outer.no_returns.is_empty() || self.nobody_returns(part))
    }

    fn is_at(&self, index: usize, level: &Level, part: &Fragment) -> bool {
        let frame = &self.frames[index];
        self.functions.key(frame.function) == part.functions[level.function as usize].0
            && !frame.is_asynchronous()
            && (frame.timed == NOBODY) == (part.start_tsc == 0)
            && level.returned_to.is_none_or(|address| frame.returns_to == address)
    }

    /// No call returns to where none does so far.
    fn nobody_returns(&self, part: &Fragment) -> bool {
        let mut outermost = HashMap::new();
        for (index, frame) in self.frames.iter().enumerate().filter(|(_, frame)| frame.returns_to != NO_ADDRESS) {
            outermost.entry(frame.returns_to).or_insert(index);
        }
        let returns = |&(level, address): &(u32, u64)| {
            outermost.get(&address).is_some_and(|&index| index + (level as usize) < self.frames.len())
        };
        !part.outer.no_returns.iter().any(returns)
    }
}

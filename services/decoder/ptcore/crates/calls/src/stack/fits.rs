//! Whether what a part of a stream takes to lie around it does so.

use super::frame::{Frame, NO_ADDRESS};
use super::handing_out::MOST_OPEN;
use super::landings::MAX_LOCALS;
use super::outer::{Level, MOST};
use super::remembered::MAX_LANDINGS;
use super::Stack;
use crate::fragment::Fragment;
use crate::output::Output;
use crate::window::NOBODY;
use std::collections::HashMap;

impl<O: Output> Stack<O> {
    /// Whether all calls that the part touches are as it takes them to be, and those further out are of no matter to it.
    pub fn fits(&self, part: &Fragment) -> bool {
        let (levels, depth) = (part.outer.levels.len(), self.frames.len());
        let misses = levels > depth && !self.may_find_callers(part);
        if misses || levels.max(depth) + MOST > MOST_OPEN || self.clock.waiting_rows().next().is_some() {
            return false;
        }
        if self.suspended.is_some() {
            return false;
        }
        let untouched = depth.saturating_sub(levels);
        let resumptions = &part.outer.no_resumptions;
        part.outer.levels.iter().zip(self.frames.iter().rev()).all(|(level, frame)| self.is_as(frame, level, part))
            && self.locals.last().is_none_or(|local| local.depth <= untouched)
            && self.locals.len() + part.outer.most_locals <= MAX_LOCALS
            && self.landings.len() + part.outer.most_landings <= MAX_LANDINGS
            && !self.landings.iter().any(|landing| part.outer.no_landings.contains(&landing.address))
            && !(self.interruptions.iter())
                .any(|known| resumptions.contains(&known.resumes) || resumptions.contains(&known.repeats))
            && (part.outer.no_returns.is_empty() || self.nobody_returns(part))
            && (part.outer.not_open.is_empty() || self.none_is_open(part))
    }

    fn is_as(&self, frame: &Frame, level: &Level, part: &Fragment) -> bool {
        // Where the outermost call returns to is not known before it does.
        let outermost = part.outer.levels.len() > self.frames.len() && frame.row == self.frames[0].row;
        self.functions.key(frame.function) == part.functions[level.function as usize].0
            && !frame.is_asynchronous()
            && (frame.timed == NOBODY) == (part.start_tsc == 0)
            && level.returned_to.is_none_or(|address| outermost || frame.returns_to == address)
    }

    /// Whether callers that the part comes by, and that are not open here, can be found around all that is open.
    fn may_find_callers(&self, part: &Fragment) -> bool {
        let callers = part.outer.levels.len() - self.frames.len();
        self.frames.first().is_some_and(|frame| frame.returns_to == NO_ADDRESS)
            && !self.is_resumed
            && (self.begin_tsc == 0) == (part.start_tsc == 0)
            && (callers as u64) < self.window.may_find()
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

    /// No call is one of the functions of which none is so far.
    fn none_is_open(&self, part: &Fragment) -> bool {
        let mut outermost = HashMap::new();
        for (index, frame) in self.frames.iter().enumerate() {
            outermost.entry(self.functions.key(frame.function)).or_insert(index);
        }
        let open = |&(level, function): &(u32, u32)| {
            let key = part.functions[function as usize].0;
            outermost.get(&key).is_some_and(|&index| index + (level as usize) + 1 < self.frames.len())
        };
        !part.outer.not_open.iter().any(open)
    }
}

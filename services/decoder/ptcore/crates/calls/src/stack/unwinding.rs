//! Ends of calls that are not the return of the innermost one.

use super::awaited::NEAR;
use super::frame::{Frame, Interruption, NO_ADDRESS};
use super::Stack;
use crate::output::Output;
use crate::records::{END_TRUNCATED, UNWOUND};
use std::ops::Range;

impl<O: Output> Stack<O> {
    /// Ends calls until `depth` are left; all of them are unwound.
    pub fn unwind(&mut self, depth: usize) {
        while self.frames.len() > depth {
            self.pop(UNWOUND);
        }
    }

    /// Ends the call that returns to `address`, unwinding those below it. False when there is none.
    pub fn return_to(&mut self, address: u64) -> bool {
        let returns = |frame: &Frame| frame.returns_to == address && address != NO_ADDRESS;
        let (far, near) = self.frames.split_at(self.frames.len().saturating_sub(NEAR));
        let mut found = near.iter().rposition(returns).map(|index| far.len() + index);
        if found.is_none() && !far.is_empty() {
            self.awaited.follow(&self.frames, &self.interruptions);
            if self.awaited.returns_to(address) {
                found = self.frames.iter().rposition(returns);
            }
        }
        let Some(index) = found else { return false };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Ends the asynchronous call that interrupted `address`. False when there is none.
    pub fn resume(&mut self, address: u64) -> bool {
        let resumes = |known: &Interruption| known.resumes == address || known.repeats == address;
        let mut last_first = self.interruptions.iter().rev();
        let mut inside = last_first.by_ref().take(NEAR).position(resumes);
        if inside.is_none() && last_first.len() != 0 {
            self.awaited.follow(&self.frames, &self.interruptions);
            if self.awaited.resumes_at(address) {
                inside = self.interruptions.iter().rev().position(resumes);
            }
        }
        let Some(inside) = inside else {
            self.does_not_resume(address);
            return false;
        };
        let asynchronous = self.frames.iter().enumerate().rev().filter(|(_, frame)| frame.is_asynchronous());
        let Some((index, _)) = asynchronous.into_iter().nth(inside) else { return false };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Unwinds to the innermost call of `function` that can go on where it does: that it can is what `caught` says of where
    /// the call returns to that it made last, if anything is said. False when none is open; nothing happened then.
    pub fn unwind_to(&mut self, function: u32, caught: impl FnOnce() -> Option<Vec<Range<u64>>>) -> bool {
        let is_open = self.functions.sums[function as usize].open != 0;
        let innermost = || self.frames.iter().rposition(|frame| frame.function == function);
        let Some(first) = is_open.then(innermost).flatten() else {
            self.is_not_open(function);
            return false;
        };
        let made = self.frames.get(first + 1).map(|frame| frame.returns_to);
        let catches = made.filter(|&address| address != NO_ADDRESS).and_then(|_| caught());
        let found = match catches {
            Some(caught) => self.innermost_that_catches(function, first, &caught),
            None => Some(first),
        };
        if found.is_none() {
            self.not_known_here();
        }
        self.unwind(found.unwrap_or(first) + 1);
        true
    }

    /// The innermost call of `function`, from one of them on outwards, that waits for one of these returns or for what is not known.
    fn innermost_that_catches(&mut self, function: u32, first: usize, caught: &[Range<u64>]) -> Option<usize> {
        let catches = |pair: &[Frame]| {
            let made = pair[1].returns_to;
            let is_caught = made == NO_ADDRESS || caught.iter().any(|returns| returns.contains(&made));
            pair[0].function == function && is_caught
        };
        let calls = &self.frames[..first + 2];
        let far = calls.len().saturating_sub(NEAR);
        let near = calls[far..].windows(2).rposition(catches).map(|index| far + index);
        if near.is_some() || far == 0 {
            return near;
        }
        self.awaited.follow(&self.frames, &self.interruptions);
        let mut returns =
            caught.iter().filter(|returns| !returns.is_empty()).map(|returns| returns.start..=returns.end - 1);
        let is_there = self.awaited.made(function, NO_ADDRESS..=NO_ADDRESS)
            || returns.any(|returns| self.awaited.made(function, returns));
        is_there.then(|| self.frames[..first + 2].windows(2).rposition(catches)).flatten()
    }

    /// The kernel is left without a return: its calls are over, from the one that entered it on. Where that was to return to; `None` when
    /// it was entered before all that is known, and nothing is open any more.
    pub fn leave_kernel(&mut self) -> Option<u64> {
        let entered = self.entered_kernel();
        if entered.is_none() && self.frames.len() > 1 {
            self.not_known_here();
        }
        self.unwind(entered.map_or(1, |(index, _)| index + 1));
        self.pop(0);
        entered.map_or_else(|| self.go_on_suspended(), |(_, resumes)| Some(resumes))
    }

    /// Ends the stretch with all calls that are open.
    pub fn end(&mut self) {
        self.end_those_open();
        if self.go_on_suspended().is_some() {
            self.end_those_open();
        }
        self.forget_roots();
    }

    /// Ends all calls but those that are suspended.
    pub fn end_those_open(&mut self) {
        while !self.frames.is_empty() {
            self.pop(END_TRUNCATED);
        }
    }
}

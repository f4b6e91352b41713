//! Ends of calls that are not the return of the innermost one.

use super::frame::{Frame, Interruption, NO_ADDRESS};
use super::Stack;
use crate::output::Output;
use crate::records::{END_TRUNCATED, UNWOUND};

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
        let Some(index) = self.frames.iter().rposition(returns) else { return false };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Ends the asynchronous call that interrupted `address`. False when there is none.
    pub fn resume(&mut self, address: u64) -> bool {
        let resumes = |known: &Interruption| known.resumes == address || known.repeats == address;
        let Some(last) = self.interruptions.iter().rposition(resumes) else {
            self.does_not_resume(address);
            return false;
        };
        let asynchronous = self.frames.iter().enumerate().filter(|(_, frame)| frame.is_asynchronous());
        let Some((index, _)) = asynchronous.into_iter().nth(last) else { return false };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Unwinds to the innermost call of `function` that can go on where it does: that it cannot is what `leads` says of where
    /// the call returns to that it made last. False when none is open; nothing happened then.
    pub fn unwind_to(&mut self, function: u32, leads: impl Fn(u64) -> Option<bool>) -> bool {
        let is_open = self.functions.sums[function as usize].open != 0;
        let innermost = |below: usize| self.frames[..below].iter().rposition(|frame| frame.function == function);
        let Some(first) = is_open.then(|| innermost(self.frames.len())).flatten() else {
            self.is_not_open(function);
            return false;
        };
        let leaves = |&index: &usize| {
            let made = self.frames.get(index + 1).map(|frame| frame.returns_to);
            made.is_some_and(|address| address != NO_ADDRESS && leads(address) == Some(false))
        };
        let mut calls = std::iter::successors(Some(first), |&index| innermost(index));
        let found = calls.find(|index| !leaves(index));
        if found.is_none() {
            self.not_known_here();
        }
        self.unwind(found.unwrap_or(first) + 1);
        true
    }

    /// Ends the stretch with all calls that are open.
    pub fn end(&mut self) {
        while !self.frames.is_empty() {
            self.pop(END_TRUNCATED);
        }
        self.forget_roots();
    }
}

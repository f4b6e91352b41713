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

    /// Unwinds to the innermost call of `function`. False when none is open; nothing happened then.
    pub fn unwind_to(&mut self, function: u32) -> bool {
        let open = self.functions.sums[function as usize].open != 0;
        let innermost = || self.frames.iter().rposition(|frame| frame.function == function);
        let Some(index) = open.then(innermost).flatten() else {
            self.is_not_open(function);
            return false;
        };
        self.unwind(index + 1);
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

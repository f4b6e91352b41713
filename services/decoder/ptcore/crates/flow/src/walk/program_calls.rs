//! The calls of a program while the kernel runs: what that calls returns in it, so they are the same behind it, also where the
//! flow was lost there.

use super::Walk;
use crate::returns::ReturnStack;
use crate::view::is_kernel;
use crate::{CodeMemory, Sink};

/// Of the program that went into the kernel since the last PSB.
#[derive(Default)]
pub(super) struct ProgramCalls {
    kept: Option<Box<ReturnStack>>,
    /// The stack of returns is not what it was there and what the kernel made of it.
    is_lost: bool,
}

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// Execution goes from one to the other, where all between is known.
    pub(super) fn crosses(&mut self, from: u64, to: u64) {
        match (is_kernel(from), is_kernel(to)) {
            (false, true) => {
                let kept = Some(Box::new(self.returns.clone()));
                self.program_calls = ProgramCalls { kept, is_lost: false };
            }
            (true, false) => self.leaves_kernel(),
            _ => {}
        }
    }

    /// A program runs again. The processor has no other calls of it than it had, and fewer where the kernel called so deep that the
    /// oldest were forgotten: these returns it tells by a target.
    pub(super) fn leaves_kernel(&mut self) {
        if let ProgramCalls { kept: Some(kept), is_lost: true } = std::mem::take(&mut self.program_calls) {
            self.returns = *kept;
        }
    }

    /// The flow goes on at `to` behind a loss in which only the kernel ran. False where nothing says which calls the program had.
    pub(super) fn goes_on_behind_kernel(&mut self, to: u64) -> bool {
        if self.program_calls.kept.is_none() {
            return false;
        }
        self.program_calls.is_lost = true;
        if is_kernel(to) {
            self.returns.clear();
        } else {
            self.leaves_kernel();
        }
        true
    }
}

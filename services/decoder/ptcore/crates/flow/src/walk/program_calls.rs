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
            (true, false) if self.program_calls.is_lost => self.give_back_calls(),
            _ => {}
        }
    }

    /// The flow goes on at `to` behind a loss in which only the kernel ran. False where nothing says which calls the program had.
    pub(super) fn goes_on_behind_kernel(&mut self, to: u64) -> bool {
        if self.program_calls.kept.is_none() {
            return false;
        }
        if is_kernel(to) {
            self.returns.clear();
            self.program_calls.is_lost = true;
        } else {
            self.give_back_calls();
        }
        true
    }

    /// The processor has no others, and fewer where the kernel called so deep that the oldest were forgotten: these returns it tells
    /// by a target.
    fn give_back_calls(&mut self) {
        if let Some(kept) = std::mem::take(&mut self.program_calls).kept {
            self.returns = *kept;
        }
    }
}

//! Into the kernel and out of it, where both are traced, and other far transfers (SDM volume 1, section "Far Call and RET Operation",
//! and chapter "Interrupts and Exceptions").

use super::arrivals::plain;
use super::Calls;
use crate::arrival::{is_landing, Left, Way, SYSTEM_CALL};
use crate::functions::Entered;
use crate::known::Known;
use crate::output::Output;
use pt_flow::is_kernel;
use pt_image::Symbols;

fn enters_kernel(from: u64, to: u64) -> bool {
    is_kernel(to) && !is_kernel(from)
}

impl<S: Symbols, O: Output> Calls<S, O> {
    /// A far branch leads to `target`: a system call, or the end of one or of an interruption.
    #[cold]
    #[inline(never)]
    pub(super) fn transfer(&mut self, known: Known, id: u32, target: u64) {
        if enters_kernel(self.last, target) {
            let entered = self.enter(target, id);
            return self.stack.call(entered.function, self.last, target, self.end);
        }
        // The end of a far call.
        if self.stack.return_locally(target) {
            return;
        }
        if self.stack.returns_to(target) {
            return self.stack.pop(0);
        }
        if self.stack.resume(target) || self.stack.return_to(target) {
            return;
        }
        let entered = Entered { function: known.function, entry: known.entry };
        if is_kernel(target) || !is_kernel(self.last) {
            // The end of an interruption of which the begin was not recorded.
            if is_kernel(target) && self.stack.depth() == 1 {
                self.stack.pop(0);
                return self.stack.find_caller(entered.function, target);
            }
            self.stack.does_not_return(target);
            // An exception of the kernel's own may be put right elsewhere in the function that it interrupted.
            if !is_kernel(target) || entered.entry || !self.unwinds_to(entered.function, target) {
                self.jump(entered, target);
            }
            return;
        }
        if self.is_start(entered) {
            return self.begin_anew(entered, target);
        }
        let Some(resumes) = self.stack.leave_kernel() else {
            return match entered.entry {
                true => self.begin_anew(entered, target),
                false => self.stack.find_caller(entered.function, target),
            };
        };
        self.stack.does_not_return(target);
        if target == resumes || is_landing(resumes, target) || self.stack.resume(target) || self.stack.return_to(target)
        {
            return;
        }
        if self.symbols.restarts_at(self.stack.epoch, target) {
            return self.jump(entered, target);
        }
        if entered.entry {
            // A handler of signals. Where a system call is made again, its bytes are gone back by.
            let left = Left { at: resumes.wrapping_sub(SYSTEM_CALL), resumes, way: Way::Far };
            self.interrupt_by(entered, left, target);
        } else if self.stack.function() != Some(entered.function) {
            self.unwind_to(entered, target);
        }
    }

    /// An interrupt or an exception leads to `target`, or what was aborted goes on there.
    #[cold]
    #[inline(never)]
    pub(super) fn interrupt_to(&mut self, entered: Entered, target: u64) {
        let left = self.interrupted;
        let goes_on = !entered.entry && !enters_kernel(left.at, target);
        if goes_on && self.unwinds_to(entered.function, target) {
            return;
        }
        if goes_on && !is_kernel(target) {
            return self.begin_anew(entered, target);
        }
        self.interrupt_by(entered, left, target);
    }

    /// The kernel, which alone is traced, was left by what it returned from, and is entered again.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_again(&mut self, entered: Entered, target: u64) {
        if self.stack.leave_kernel().is_some() {
            return self.interrupt_by(entered, self.interrupted, target);
        }
        self.stack.begin();
        self.stack.push(&plain(entered, 0, target));
    }
}

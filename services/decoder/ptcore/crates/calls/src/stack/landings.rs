//! Where calls may go on without a return of their own: behind `setjmp`, and inside the function itself.

use super::frame::{Entry, HOLDS, NO_ADDRESS};
use super::remembered::Landing;
use super::Stack;
use crate::output::Output;
use pt_image::Role;

/// The return address of a call inside a function.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    pub returns_to: u64,
    pub depth: usize,
}

/// Calls inside functions that are remembered; code that never returns from them would make them endless.
pub const MAX_LOCALS: usize = 1 << 12;

impl<O: Output> Stack<O> {
    /// Unwinds to the call that called `setjmp` before `address`, which a jump at `from` leads to. False when none is known.
    pub fn land(&mut self, function: u32, from: u64, address: u64) -> bool {
        let landing = self.landings.innermost(address);
        if landing.is_none_or(|landing| landing.used) {
            self.does_not_land(address);
        }
        let Some(landing) = landing else { return false };
        self.unwind(landing.depth);
        self.landings.land_at(landing);
        if let Some(returns_to) = landing.returns_to {
            self.push(&Entry { function, call_address: from, target: address, returns_to, flags: 0 });
        }
        true
    }

    #[cold]
    pub(super) fn remember_landing(&mut self, address: u64) {
        if address == NO_ADDRESS {
            return;
        }
        let inside = self.role() == Role::SetJump;
        let returns_to = if inside { self.caller_goes_on_at() } else { None };
        if inside && returns_to.is_none() {
            self.not_known_here();
        }
        let depth = self.frames.len() - usize::from(returns_to.is_some());
        self.landings.forget_below(depth);
        self.hold(depth);
        self.landings.remember(Landing { address, depth, used: false, returns_to });
        if let Some(outer) = &mut self.outer {
            outer.most_landings = outer.most_landings.max(self.landings.len());
        }
    }

    /// Remembers a call of the function's own code.
    pub fn call_locally(&mut self, returns_to: u64) {
        if self.locals.len() < MAX_LOCALS {
            let depth = self.frames.len();
            self.hold(depth);
            self.locals.push(Local { returns_to, depth });
        }
        if let Some(outer) = &mut self.outer {
            outer.most_locals = outer.most_locals.max(self.locals.len());
        }
    }

    /// Whether the return to `address` is from a call of the function's own code.
    #[inline(always)]
    pub fn return_locally(&mut self, address: u64) -> bool {
        let depth = self.frames.len();
        let own = self.locals.last().is_some_and(|local| local.returns_to == address && local.depth == depth);
        if own {
            self.locals.pop();
        }
        own
    }

    /// A call of the function's own code was left by another way than its return. Where the one around it returns to, which is left
    /// as well: `call` over a `call` whose return address is overwritten is what retpolines make of an indirect call.
    pub fn leave_locally(&mut self) -> Option<u64> {
        let depth = self.frames.len();
        self.pop_local(depth)?;
        self.pop_local(depth)
    }

    /// The last of those of the innermost of so many calls.
    fn pop_local(&mut self, depth: usize) -> Option<u64> {
        let own = self.locals.last().is_some_and(|local| local.depth == depth);
        if own { self.locals.pop() } else { None }.map(|local| local.returns_to)
    }

    /// Something is remembered that belongs to the innermost of so many calls.
    pub(super) fn hold(&mut self, depth: usize) {
        if let Some(frame) = depth.checked_sub(1).and_then(|index| self.frames.get_mut(index)) {
            frame.marks |= HOLDS;
        }
    }

    /// Forgets what belonged to calls that are over.
    pub(super) fn forget_below(&mut self) {
        let depth = self.frames.len();
        self.landings.forget_below(depth);
        while self.locals.last().is_some_and(|local| local.depth > depth) {
            self.locals.pop();
        }
    }
}

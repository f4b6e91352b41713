//! The calls around a part of a stream that is decoded by itself: what it takes to be so, to be held against what the part
//! before says of them.
//!
//! Levels count outwards from the call that was the innermost one where the part begins. The outermost call that is open is
//! always one of them, or came in the place of one by a jump.

use super::frame::{Entry, NO_ADDRESS};
use super::Stack;
use crate::output::Output;
use crate::window::{Window, NOBODY};
use std::collections::HashSet;

/// Calls of a part that may be open, and levels around it.
pub const MOST: usize = 1 << 16;
/// The depth of the innermost call where a part begins. Levels further out count down from here.
pub const DEPTH: u32 = 1 << 30;

/// A call that began in a part before.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    pub function: u32,
    /// Where it returned to. `None` of the last level.
    pub returned_to: Option<u64>,
}

/// What a part takes to be so.
#[derive(Debug, Default)]
pub struct Outer {
    /// From the innermost one on; as many as returned, and one.
    pub levels: Vec<Level>,
    /// From which level on no call returns to the address.
    pub no_returns: HashSet<(u32, u64)>,
    /// From behind which level on no call is one of the function.
    pub not_open: HashSet<(u32, u32)>,
    /// No `setjmp` around it returns to these addresses where it might be landed at, and no interruption resumes at those.
    pub no_landings: HashSet<u64>,
    pub no_resumptions: HashSet<u64>,
    /// Calls inside functions and landings that were remembered at a time.
    pub most_locals: usize,
    pub most_landings: usize,
    /// Something depends on what lies around the part.
    pub failed: bool,
}

impl<O: Output> Stack<O> {
    /// Begins a part with a call of `function` that is at `address`.
    pub fn join(&mut self, function: u32, address: u64, tsc: u64) {
        self.begin_tsc = tsc;
        self.clock.join(tsc);
        self.window.begin();
        (self.base, self.most_open) = (DEPTH, MOST);
        self.window.allow(0);
        self.outer = Some(Box::default());
        self.open_outer(function, address);
    }

    /// The outermost call is over, and the one around it goes on at `address`.
    pub(super) fn find_outer(&mut self, function: u32, address: u64) {
        let Some(outer) = &mut self.outer else { return };
        outer.failed |= outer.levels.len() == MOST;
        if outer.failed {
            outer.levels.clear();
        }
        if let Some(level) = outer.levels.last_mut() {
            level.returned_to = Some(address);
        }
        self.base -= u32::from(!outer.failed);
        self.open_outer(function, address);
        self.are_inside(function);
    }

    fn open_outer(&mut self, function: u32, target: u64) {
        let entry = Entry { function, call_address: 0, target, returns_to: NO_ADDRESS, flags: 0 };
        let (row, _) = self.open(&entry, self.begin_tsc == 0);
        self.window.begin_at(row, self.begin_tsc);
        if let Some(outer) = &mut self.outer {
            self.window.is_outer(row, outer.levels.len() as u32);
            outer.levels.push(Level { function, returned_to: None });
        }
    }

    /// In place of the caller's row where nobody is on the stack.
    #[cold]
    pub(super) fn outermost(&self) -> u32 {
        self.outer.as_ref().map_or(NOBODY, |outer| Window::outer(outer.levels.len() as u32))
    }

    /// What happens next depends on the calls around the part.
    pub(super) fn not_known_here(&mut self) {
        if let Some(outer) = &mut self.outer {
            outer.failed = true;
        }
    }

    /// No call that is open returns to `address`.
    pub fn does_not_return(&mut self, address: u64) {
        if let Some(outer) = &mut self.outer {
            outer.no_returns.insert((outer.levels.len() as u32 - 1, address));
        }
    }

    /// No call of `function` is open.
    pub(super) fn is_not_open(&mut self, function: u32) {
        if let Some(outer) = &mut self.outer {
            outer.not_open.insert((outer.levels.len() as u32 - 1, function));
        }
    }

    pub(super) fn does_not_land(&mut self, address: u64) {
        if let Some(outer) = &mut self.outer {
            outer.no_landings.insert(address);
        }
    }

    pub(super) fn does_not_resume(&mut self, address: u64) {
        if let Some(outer) = &mut self.outer {
            outer.no_resumptions.insert(address);
        }
    }
}

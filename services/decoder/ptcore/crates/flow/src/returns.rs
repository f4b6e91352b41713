//! The stack of return addresses behind compressed returns.

use crate::code_block::SCRATCH;
use crate::paths::{Entry, Paths, RETURNED};

/// Entries the processor keeps (SDM section "Indirect Transfer Compression for Returns").
const DEPTH: usize = 64;

/// Keeps the newest 64 return addresses as the cached blocks of their calls.
#[derive(Clone)]
pub struct ReturnStack {
    calls: [u32; DEPTH],
    /// The return addresses of calls whose block is not told.
    addresses: [u64; DEPTH],
    top: usize,
    depth: usize,
}

/// A call that was not returned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    Block(u32),
    /// Its block is not kept, or what its return goes to is not the same in all modes: in that of the call it goes here.
    Address(u64),
}

impl ReturnStack {
    pub fn new() -> Self {
        ReturnStack { calls: [SCRATCH; DEPTH], addresses: [0; DEPTH], top: 0, depth: 0 }
    }

    pub fn clear(&mut self) {
        self.depth = 0;
    }

    /// A call of a block that is kept.
    #[inline(always)]
    pub fn push_kept(&mut self, call: u32) {
        self.top = (self.top + 1) % DEPTH;
        self.calls[self.top] = call;
        self.depth = (self.depth + 1).min(DEPTH);
    }

    /// The call of a block that may be the scratch block.
    #[inline(always)]
    pub fn push(&mut self, address: u64, call: u32) {
        self.push_kept(call);
        if call == SCRATCH {
            self.addresses[self.top] = address;
        }
    }

    /// Execution is in a mode in which returns pop no more than the lower half of an address: those of calls that have more of it
    /// are told by themselves. `end`: of the block of a call.
    #[cold]
    pub fn narrow(&mut self, end: impl Fn(u32) -> u64) {
        for newer in 0..self.depth {
            let at = self.top.wrapping_sub(newer) % DEPTH;
            let call = self.calls[at];
            if call != SCRATCH && end(call) > u64::from(u32::MAX) {
                (self.calls[at], self.addresses[at]) = (SCRATCH, end(call));
            }
        }
    }

    /// The path runs: calls that it returns from are over again, the others stay.
    #[inline(always)]
    pub fn along(&mut self, path: &Entry, paths: &Paths) {
        if path.high != 0 {
            self.passed((path.high & !RETURNED).into());
            if path.high & RETURNED != 0 {
                self.drop_newest();
            }
            if path.pushed != 0 {
                for &call in &paths.rest(path).pushes[..path.pushed.into()] {
                    self.push_kept(call);
                }
            }
        }
    }

    /// The path runs, and returns from the newest entry in the end.
    #[inline(always)]
    pub fn back_along(&mut self, path: &Entry) {
        self.passed(path.high.into());
        self.drop_newest();
    }

    #[inline(always)]
    fn drop_newest(&mut self) {
        self.top = self.top.wrapping_sub(1) % DEPTH;
        self.depth = self.depth.saturating_sub(1);
    }

    /// `high` entries were pushed and taken again.
    #[inline(always)]
    fn passed(&mut self, high: usize) {
        self.depth = self.depth.min(DEPTH - high);
    }

    #[inline(always)]
    pub fn peek(&self) -> Option<Open> {
        let at = self.top % DEPTH;
        let open = match self.calls[at] {
            SCRATCH => Open::Address(self.addresses[at]),
            call => Open::Block(call),
        };
        (self.depth != 0).then_some(open)
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<Open> {
        let open = self.peek()?;
        self.top = self.top.wrapping_sub(1) % DEPTH;
        self.depth -= 1;
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_65_is_forgotten() {
        let mut stack = ReturnStack::new();
        for call in 1..66 {
            stack.push(0, call);
        }
        for call in (2..66).rev() {
            assert_eq!(stack.pop(), Some(Open::Block(call)));
        }
        assert_eq!(stack.pop(), None);
    }

    #[test]
    fn a_call_that_a_narrow_return_does_not_go_back_to_has_its_address() {
        let end = |call| if call == 2 { 0x7fff_0000_1005 } else { 0x1005 };
        let mut stack = ReturnStack::new();
        for call in [3, 2, 1] {
            stack.push(end(call), call);
        }
        stack.pop();
        stack.narrow(end);
        assert_eq!(stack.pop(), Some(Open::Address(0x7fff_0000_1005)));
        assert_eq!(stack.pop(), Some(Open::Block(3)));
    }

    #[test]
    fn a_call_whose_block_is_not_kept_has_its_address() {
        let mut stack = ReturnStack::new();
        stack.push(0x1005, SCRATCH);
        assert_eq!(stack.pop(), Some(Open::Address(0x1005)));
    }
}

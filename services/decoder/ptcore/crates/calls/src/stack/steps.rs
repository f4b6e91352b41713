//! Begins and ends of calls as most of them are: whatever is rare is looked for first, and left to others.

use super::frame::{Entry, Frame};
use super::Stack;
use crate::clock::{BEGIN, INNER};
use crate::output::Output;
use crate::plan::{Move, NONE, TAIL};
use crate::records::TAIL_CALL;
use crate::window::Opening;

impl<O: Output> Stack<O> {
    /// A call begins.
    #[inline(never)]
    pub fn call(&mut self, function: u32, call_address: u64, target: u64, returns_to: u64) {
        self.step_into(&Entry { function, call_address, target, returns_to, flags: 0 });
    }

    /// The innermost call returns to `address`, to the call of the function. `None` when there is more to it than that;
    /// nothing happened then.
    #[inline(never)]
    pub fn give_back(&mut self, address: u64) -> Option<u32> {
        self.end_plainly(|frame| frame.returns_to == address)
    }

    /// The innermost call goes over into another one, which returns to where it would have.
    #[inline(never)]
    pub fn go_over(&mut self, function: u32, call_address: u64, target: u64) {
        self.step_over(function, call_address, target);
    }

    /// What a path does.
    #[inline(never)]
    pub fn make(&mut self, moves: &[Move]) {
        for &Move { run, function, call_address, target, returns_to } in moves {
            self.run(run);
            if returns_to != TAIL {
                self.step_into(&Entry { function, call_address, target, returns_to, flags: 0 });
            } else if function == NONE {
                self.step_out();
            } else {
                self.step_over(function, call_address, target);
            }
        }
    }

    #[inline(always)]
    fn step_into(&mut self, entry: &Entry) {
        if !self.begin_plainly(entry) {
            let Entry { function, call_address, target, returns_to, flags } = *entry;
            self.begin_rarely(function, call_address, target, returns_to, flags);
        }
    }

    #[inline(always)]
    fn step_out(&mut self) {
        if self.end_plainly(|_| true).is_none() {
            self.end_rarely();
        }
    }

    #[inline(always)]
    fn step_over(&mut self, function: u32, call_address: u64, target: u64) {
        match self.frames.last() {
            Some(&Frame { marks: 0, returns_to, .. }) => {
                self.step_out();
                self.step_into(&Entry { function, call_address, target, returns_to, flags: TAIL_CALL });
            }
            _ => self.replace(function, call_address, target),
        }
    }

    /// False when there is something rare about it; nothing happened then.
    #[inline(always)]
    fn begin_plainly(&mut self, entry: &Entry) -> bool {
        let Entry { function, call_address, target, returns_to, flags } = *entry;
        let Stack { window, frames, clock, functions, base, output, .. } = self;
        let (ran, timed, depth) = (clock.ran, clock.timed(function), *base + frames.len() as u32);
        let Some(&Frame { row: parent, timed: before, .. }) = frames.last() else { return false };
        let Some(sums) = functions.sums.get_mut(function as usize) else { return false };
        if sums.role.returns_oddly() || !window.is_ready() || frames.len() == frames.capacity() {
            return false;
        }
        let Some(change) = clock.place() else { return false };
        sums.open += 1;
        let opening = Opening { function, call_address, target, flags, parent, depth };
        let row = window.open(&opening, output.takes_addresses());
        change.is(ran, row, before, BEGIN);
        frames.push(Frame { row, function, timed, marks: 0, returns_to, began: ran, below: 0 });
        true
    }

    /// The function of the caller. `None` when it does not end so or there is something rare about it; nothing happened then.
    #[inline(always)]
    fn end_plainly(&mut self, ends: impl Fn(&Frame) -> bool) -> Option<u32> {
        let Stack { window, frames, clock, functions, stretch, .. } = self;
        let ran = clock.ran;
        let [.., caller, frame] = &mut frames[..] else { return None };
        let Frame { row, function, timed, marks, began, below, .. } = *frame;
        if marks != 0 || !ends(frame) {
            return None;
        }
        let sums = functions.sums.get_mut(function as usize)?;
        let change = clock.place()?;
        let total = ran - began;
        caller.below += total;
        let caller = caller.function;
        frames.pop();
        let counts = sums.end_call(total, total - below, *stretch);
        change.is(ran, row, timed, if counts { function } else { INNER });
        let (page, at) = window.pages.at(row);
        page.instructions[at] = total - below;
        page.instructions_total[at] = total;
        Some(caller)
    }

    /// By value: an entry whose address nobody takes stands in registers where nothing is rare.
    #[cold]
    #[inline(never)]
    fn begin_rarely(&mut self, function: u32, call_address: u64, target: u64, returns_to: u64, flags: u8) {
        self.push(&Entry { function, call_address, target, returns_to, flags });
    }

    #[cold]
    #[inline(never)]
    fn end_rarely(&mut self) {
        self.pop(0);
    }
}

//! Blocks that ran, one by one.

use super::Calls;
use crate::arrival::Arrival;
use crate::output::Output;
use pt_flow::{Block, BlockKind, CondBranch, CondBranches};
use pt_image::{Role, Symbols};

/// How a block is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// By the function that it begins in.
    Whole,
    /// By that one and those that follow in it.
    Across,
    /// By nobody: what its stub leads to is arrived at as the stub was.
    Passed,
}

impl<S: Symbols, O: Output> Calls<S, O> {
    /// A block is reached.
    #[inline(always)]
    pub(super) fn reach(&mut self, block: &Block<'_>) -> Reached {
        let known = self.known(block.id, block.start);
        if !self.arrival.is_jump() || self.stack.function() != Some(known.function) {
            if known.stub && self.arrival.passes() {
                return Reached::Passed;
            }
            self.arrive(block.start, block.id, known);
        }
        if known.may_cross(block) {
            Reached::Across
        } else {
            Reached::Whole
        }
    }

    /// Runs conditional branches as long as they are in the function that runs and ran before; returns the first one that is
    /// otherwise, to be run.
    #[inline(always)]
    pub(super) fn run_within(&mut self, branches: &mut CondBranches<'_>) -> Option<CondBranch> {
        let Some(function) = self.stack.function().filter(|_| self.arrival.is_jump()) else { return branches.next() };
        let before = branches.instructions();
        let (other, last) = self.cached.count_within(function, branches);
        if let Some(last) = last {
            let block = branches.block(last);
            let ran = branches.instructions() - before - other.map_or(0, |other| other.instructions.into());
            self.cached.ran();
            self.stack.run(ran as u32);
            (self.last, self.end, self.arrival) = (block.last, block.end, Arrival::Jump);
        }
        other
    }

    /// Runs a block whose branch went to its own target when it is a direct one. `is_reached`: before.
    #[inline(always)]
    pub(super) fn run_block(&mut self, block: &Block<'_>, is_reached: bool) {
        let reached = if is_reached { Reached::Whole } else { self.reach(block) };
        self.ran(block, reached);
        if !self.cached.count(block) {
            self.blocks.count(block);
            self.edges.count_on_path(block);
            if reached != Reached::Across {
                self.cached.remember(block);
            }
        }
    }

    /// A block ran that was reached.
    #[inline(always)]
    pub(super) fn ran(&mut self, block: &Block<'_>, reached: Reached) {
        match reached {
            Reached::Across => self.run_across(block),
            _ => self.stack.run(block.instructions),
        }
        if reached == Reached::Passed {
            return self.pass_through(block);
        }
        (self.last, self.end) = (block.last, block.end);
        self.arrival = Arrival::behind(block);
    }

    fn role_of(&mut self, block: &Block<'_>) -> Role {
        let function = self.known(block.id, block.start).function;
        self.stack.functions.role(function)
    }

    /// What the stub leads to is arrived at as the stub was, or returned to.
    #[inline(always)]
    fn pass_through(&mut self, block: &Block<'_>) {
        self.passed = (block.last, block.end);
        if block.kind == BlockKind::Return && self.role_of(block) == Role::ReturnStub {
            self.arrival = Arrival::Return;
            return;
        }
        let back = |returns_to| block.kind == BlockKind::Return && block.target == returns_to;
        if self.arrival == Arrival::Call && back(self.end) {
            self.arrival = Arrival::Jump;
        }
    }
}

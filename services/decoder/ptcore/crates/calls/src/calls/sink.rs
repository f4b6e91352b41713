//! The flow as it is told: paths by their plans, losses, and where tracing is disabled.

use super::Calls;
use crate::arrival::{Arrival, Left, Way};
use crate::losses::{LossCause, LossRecord};
use crate::output::Output;
use pt_flow::{cold_path, Block, CondBranches, DisableKind, Loss, Path, Sink};
use pt_image::Symbols;

impl<S: Symbols, O: Output> Sink for Calls<S, O> {
    const DIVIDED: bool = true;

    #[inline(always)]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.stack.epoch = block.epoch;
        self.pass(tsc);
        let reached = self.reach(block);
        self.ran(block, reached);
        self.blocks.count(block);
        self.edges.count(block);
    }

    #[inline(always)]
    fn run(&mut self, block: &Block<'_>, tsc: u64) {
        self.stack.epoch = block.epoch;
        self.pass(tsc);
        self.run_block(block, false);
    }

    #[inline(always)]
    fn cond_branches(&mut self, branches: &mut CondBranches<'_>, tsc: u64) {
        self.stack.epoch = branches.epoch();
        self.pass(tsc);
        while let Some(other) = self.run_within(branches) {
            self.run_block(&branches.block(other), false);
        }
    }

    #[inline(always)]
    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        self.stack.epoch = path.epoch();
        self.pass(tsc);
        let version = self.stack.functions.version;
        let Some(plan) = self.plans.fitting(path.id, version) else {
            return self.run_anew(*path);
        };
        let function = plan.function;
        let plan = if self.arrival.is_jump() && self.stack.function() == Some(function) {
            // Nothing changes.
            plan
        } else if self.arrival == Arrival::Call && plan.is_entry {
            cold_path();
            self.stack.call(function, self.last, plan.start, self.end);
            plan
        } else if self.arrival.is_jump() && plan.is_entry && !self.stack.role().jumps_far() {
            cold_path();
            self.stack.go_over(function, self.end, plan.start);
            plan
        } else {
            let back = if self.arrival == Arrival::Return { self.stack.give_back(plan.start) } else { None };
            if back == Some(function) {
                plan
            } else {
                cold_path();
                let start = plan.start;
                if !self.arrive_at_plan(*path, start, back.is_none()) {
                    return;
                }
                let Some(plan) = self.plans.of_path(path.id) else { return };
                plan
            }
        };
        plan.count += 1;
        (self.last, self.end, self.arrival) = (plan.last, plan.end, plan.arrival);
        let (moves, run) = (plan.moves(), plan.run);
        if let Some(target) = path.returns_to {
            if plan.returned_to != target {
                cold_path();
                plan.returned_to = target;
                plan.returned_by = self.edges.slot_of_return(plan.last, target);
            }
            self.edges.add(plan.returned_by, 1);
        }
        if !moves.is_empty() {
            cold_path();
            self.stack.make(&self.plans.moves[moves]);
        }
        self.stack.run(run);
    }

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        self.come_by(next, tsc);
    }

    fn joined(&mut self, next: &Block<'_>, tsc: u64) {
        self.join(next, tsc);
    }

    fn paths(&mut self, generation: u64) {
        if self.plans.generation != generation {
            self.plans.begin(generation, &mut self.edges, &mut self.blocks);
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        let is_over = self.left.is_some_and(|left| left.leads_out()) && self.end_what_led_out(ip);
        self.skip(tsc);
        if let (true, Some(loss)) = (std::mem::take(&mut self.overflowing), self.stack.losses.last_mut()) {
            loss.end_tsc = tsc;
        }
        match self.left.take() {
            // Tracing ended while another thread ran on its core.
            None if self.stack.depth() != 0 => self.break_off(),
            None => self.arrival = Arrival::Begin,
            Some(left) => self.go_on(left, if resumed && !is_over { left.resumes } else { ip }),
        }
    }

    fn switched(&mut self, ip: u64, tsc: u64) {
        self.skip(tsc);
        if let Some(left) = self.left.take() {
            self.go_on(left, ip);
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.pass(tsc);
        let resumes = match kind {
            DisableKind::Asynchronous => at,
            DisableKind::Synchronous if self.passed.0 == at => self.passed.1,
            DisableKind::Synchronous => self.end,
        };
        let way = match kind {
            DisableKind::Asynchronous => Way::Between,
            DisableKind::Synchronous => Way::behind(self.arrival, target.is_some()),
        };
        match self.arrival {
            _ if kind == DisableKind::Asynchronous => {}
            // What is behind a far branch is not traced, nor what a call leads to that is out of the filtered addresses.
            Arrival::Far | Arrival::Call | Arrival::CallBehind => self.arrival = Arrival::Jump,
            // Nor the caller that a function which alone is traced returns to.
            Arrival::Return if self.stack.depth() == 1 => {
                self.stack.pop(0);
                self.arrival = Arrival::Begin;
                return;
            }
            _ => {}
        }
        self.left = Some(Left { at, resumes, way });
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.pass(tsc);
        self.leave(Left { at: from, resumes: from, way: Way::Between }, to, Arrival::Interruption);
    }

    fn moved(&mut self) {
        self.break_off();
    }

    fn on_core(&mut self, core: u32) {
        self.core = core;
    }

    fn loss(&mut self, loss: &Loss) {
        self.pass(loss.tsc0);
        if loss.is_of_program() {
            self.break_off();
        }
        if let (true, Some(overflow)) = (std::mem::take(&mut self.overflowing), self.stack.losses.last_mut()) {
            overflow.end_tsc = loss.tsc1;
        }
        self.stack.lose(LossRecord {
            core: self.core,
            offset: loss.offset as u64,
            size: loss.size as u64,
            start_tsc: loss.tsc0,
            end_tsc: loss.tsc1,
            cause: LossCause::Undecodable(loss.reason),
            address: loss.address,
            epoch: loss.epoch,
        });
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.pass(tsc);
        self.break_off();
        self.overflowing = true;
        self.stack.lose(LossRecord {
            core: self.core,
            offset: offset as u64,
            size: 0,
            start_tsc: tsc,
            end_tsc: tsc,
            cause: LossCause::Overflow,
            address: from.unwrap_or(0),
            epoch: self.stack.epoch,
        });
    }
}

impl<S: Symbols, O: Output> Calls<S, O> {
    /// What runs from now on is over at `tsc`.
    #[inline(always)]
    pub(super) fn pass(&mut self, tsc: u64) {
        if tsc > self.tsc {
            self.tsc = tsc;
            self.stack.advance(tsc);
        }
    }

    /// Nothing runs until `tsc`. Another core may be some ticks behind the one that was left, or more where records contradict each other.
    fn skip(&mut self, tsc: u64) {
        self.tsc = self.tsc.max(tsc);
        self.stack.skip(self.tsc);
    }

    /// On a core others may have run since it was left.
    fn go_on(&mut self, left: Left, ip: u64) {
        if !left.goes_on_at(ip) {
            self.leave(left, ip, Arrival::Elsewhere);
        }
    }

    fn break_off(&mut self) {
        self.arrive_at_last();
        self.stack.end();
        self.arrival = Arrival::Begin;
    }

    /// What was left between two instructions had arrived there.
    pub(super) fn arrive_at_last(&mut self) {
        if let Some(left) = self.left.take().filter(|left| left.at == left.resumes) {
            self.arrive_where_left(left);
        }
    }
}

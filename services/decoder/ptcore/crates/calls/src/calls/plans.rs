//! Paths that ran block by block, and the plans that are made of them.

use super::arrivals::plain;
use super::Calls;
use crate::arrival::Arrival;
use crate::edges::way;
use crate::functions::Entered;
use crate::known::{of, Known};
use crate::output::Output;
use crate::plan::{Move, Plan};
use crate::records::TAIL_CALL;
use crate::stack::Entry;
use pt_flow::{Block, BlockKind, Path, Sink, Step};
use pt_image::{Role, Symbols};

impl<S: Symbols, O: Output> Calls<S, O> {
    /// Runs a path for which there is no plan of this version.
    #[cold]
    #[inline(never)]
    pub(super) fn run_anew(&mut self, path: Path<'_>) {
        if self.plans.is_full() {
            self.plans.begin(self.plans.generation, &mut self.edges, &mut self.blocks);
        }
        let may_fit = self.plans.may_fit(path.id, self.stack.functions.version);
        if may_fit && self.make_plan(&path) {
            return self.path(&path, self.tsc);
        }
        self.replay(path, false);
        // What was not known of its blocks before may be known now.
        if may_fit {
            self.make_plan(&path);
        }
    }

    /// Arrives at the path's first block, where `arrives`; else the innermost call returned there. False when its plan does not hold then, and the path was run block by block.
    /// Out of line: in the loop along paths it would take the registers of all that is frequent.
    #[cold]
    #[inline(never)]
    pub(super) fn arrive_at_plan(&mut self, path: Path<'_>, start: u64, arrives: bool) -> bool {
        let version = self.stack.functions.version;
        let known = self.known(path.first(), start);
        if arrives {
            self.arrive(start, path.first(), known);
        } else {
            self.run_on(of(known), start);
        }
        let plan = self.plans.fitting(path.id, version);
        let function = plan.map(|plan| plan.function);
        let holds = self.stack.functions.version == version && self.stack.function() == function;
        if !holds {
            self.replay(path, true);
        }
        holds
    }

    /// Runs a path block by block. `reached` when its first block was.
    #[cold]
    #[inline(never)]
    pub(super) fn replay(&mut self, path: Path<'_>, mut reached: bool) {
        for block in path.blocks() {
            self.run_block(&block, std::mem::take(&mut reached));
        }
    }

    fn make_plan(&mut self, path: &Path<'_>) -> bool {
        let begun = self.plans.begin_plan();
        let mut open = std::mem::take(&mut self.plans.open);
        open.clear();
        let plan = self.plan(path, &mut open);
        self.plans.open = open;
        self.plans.keep(path.id, self.stack.functions.version, &begun, plan.as_ref())
    }

    /// What the path does to the stack, when that can be said beforehand. `open`: room for calls.
    fn plan(&mut self, path: &Path<'_>, open: &mut Vec<(u32, u64)>) -> Option<Plan> {
        let mut steps = path.steps();
        let first = path.blocks().next()?;
        let mut plan = Plan::of(self.known_before(&first)?, &first);
        let mut arrival = None;
        let (mut function, mut returns_to) = (plan.known.function, 0);
        let mut run = 0;
        loop {
            if arrival == Some(Arrival::Jump) {
                run += self.plan_within(function, path, &mut steps, &mut plan);
            }
            let Some((step, behind)) = steps.split_first() else { break };
            steps = behind;
            let block = path.block(step, behind);
            let known = self.known_before(&block)?;
            if known.stub {
                if !arrival.is_some_and(Arrival::passes) || block.kind == BlockKind::Return {
                    return None;
                }
                run += block.instructions;
                self.plans.push(block.id, self.edges.slot_on_path(&block));
                continue;
            }
            if arrival == Some(Arrival::CallBehind) {
                let calls = self.begins_another(Some(function), of(known));
                arrival = Some(if calls { Arrival::Call } else { Arrival::Jump });
            }
            if arrival != Some(Arrival::Jump) || known.function != function {
                match arrival {
                    None => {}
                    Some(Arrival::Jump) if !self.stack.functions.role(function).jumps_far() => {
                        let entry = Entry { flags: TAIL_CALL, ..plain(of(known), plan.end, block.start) };
                        self.plans.moves.push(Move::enter(std::mem::take(&mut run), &entry));
                        function = known.function;
                    }
                    Some(Arrival::Call) if known.called != u32::MAX => {
                        if !known.entry && known.called == function {
                            return None;
                        }
                        open.push((function, returns_to));
                        (function, returns_to) = (known.called, plan.end);
                        let entered = Entered { function, entry: known.entry };
                        let entry = Entry { returns_to, ..plain(entered, plan.last, block.start) };
                        self.plans.moves.push(Move::enter(std::mem::take(&mut run), &entry));
                    }
                    Some(Arrival::Return)
                        if returns_to == block.start && self.stack.functions.role(function) != Role::Switch =>
                    {
                        self.plans.moves.push(Move::pop(std::mem::take(&mut run)));
                        (function, returns_to) = open.pop()?;
                        if self.runs_on(function, of(known)) {
                            let entry = Entry { flags: TAIL_CALL, ..plain(of(known), block.start, block.start) };
                            self.plans.moves.push(Move::enter(0, &entry));
                            function = known.function;
                        }
                    }
                    _ => return None,
                }
            }
            if known.may_cross(&block) {
                (function, run) = self.plan_across(&block, function, run)?;
            } else {
                run += block.instructions;
            }
            (plan.last, plan.end) = (block.last, block.end);
            arrival = Some(Arrival::behind(&block));
            self.plans.push(block.id, self.edges.slot_on_path(&block));
        }
        if let Some(target) = path.returns_to {
            // It goes elsewhere every time.
            plan.returned = (target, self.plans.edges.pop()?);
        }
        (plan.run, plan.arrival) = (run, arrival?);
        Some(plan)
    }

    /// Plans direct branches as long as they are in the function and were remembered; returns how many instructions run.
    #[inline(always)]
    fn plan_within(&mut self, function: u32, path: &Path<'_>, steps: &mut &[Step], plan: &mut Plan) -> u32 {
        let (mut run, mut last) = (0, None);
        while let Some((step, behind)) = steps.split_first() {
            let way = way(step.kind);
            let Some(instructions) = self.cached.within(function, step.block, way) else { break };
            if step.kind == BlockKind::Call {
                break;
            }
            run += instructions;
            self.plans.push(step.block, Some(self.edges.slot_of_direct(step.block, way)));
            (*steps, last) = (behind, Some((step, behind)));
        }
        if let Some((step, behind)) = last {
            let block = path.block(step, behind);
            (plan.last, plan.end) = (block.last, block.end);
        }
        run
    }

    /// Plans a block that may go on into the functions behind the one that it begins in; the function that it ends in, and how many
    /// instructions run behind the last move.
    #[cold]
    #[inline(never)]
    fn plan_across(&mut self, block: &Block<'_>, mut function: u32, mut run: u32) -> Option<(u32, u32)> {
        let mut border = self.next_function(block, block.start);
        for address in block.addresses() {
            if Some(address) == border {
                if self.stack.functions.role(function).jumps_far() {
                    return None;
                }
                let entered = self.fall_into(address);
                let entry = Entry { flags: TAIL_CALL, ..plain(entered, address, address) };
                self.plans.moves.push(Move::enter(std::mem::take(&mut run), &entry));
                function = entered.function;
                border = self.next_function(block, address);
            }
            run += 1;
        }
        Some((function, run))
    }

    /// What is known of a block that ran before.
    #[inline(always)]
    fn known_before(&self, block: &Block<'_>) -> Option<Known> {
        self.cached.known(block.id).filter(|_| self.blocks.knows(block)).copied()
    }
}

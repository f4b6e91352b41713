//! Paths that ran block by block, and the plans that are made of them.

use super::arrivals::plain;
use super::Calls;
use crate::arrival::Arrival;
use crate::functions::Entered;
use crate::known::of;
use crate::output::Output;
use crate::plan::{Move, Plan};
use crate::records::TAIL_CALL;
use crate::stack::Entry;
use pt_flow::{Block, BlockKind, Path, Sink};
use pt_image::{Role, Symbols};

impl<S: Symbols, O: Output> Calls<S, O> {
    /// Runs a path for which there is no plan of this version.
    #[cold]
    #[inline(never)]
    pub(super) fn run_anew(&mut self, path: Path<'_>) {
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

    /// Runs a path block by block. `reached` when its first block was.
    #[cold]
    #[inline(never)]
    pub(super) fn replay(&mut self, path: Path<'_>, mut reached: bool) {
        for block in path.blocks() {
            self.run_block(&block, std::mem::take(&mut reached));
        }
    }

    fn make_plan(&mut self, path: &Path<'_>) -> bool {
        let plan = self.plan(path);
        let is_made = plan.is_some();
        self.plans.keep(path.id, self.stack.functions.version, plan);
        is_made
    }

    /// What the path does to the stack, when that can be said beforehand.
    fn plan(&mut self, path: &Path<'_>) -> Option<Plan> {
        let known = |calls: &Self, block: &Block<'_>| {
            let known = calls.known.get(block.id as usize).copied().filter(|known| known.function != u32::MAX)?;
            calls.blocks.knows(block).then_some(known)
        };
        let first = path.blocks().next()?;
        let mut plan = Plan::of(known(self, &first)?, &first, std::mem::take(&mut self.plans.spare));
        let mut arrival = None;
        let mut open = std::mem::take(&mut plan.lists.open);
        open.push((plan.known.function, 0));
        let mut run = 0;
        for block in path.blocks() {
            let known = known(self, &block)?;
            if known.stub {
                if !arrival.is_some_and(Arrival::passes) || block.kind == BlockKind::Return {
                    return None;
                }
                run += block.instructions;
                plan.lists.push(block.id, self.edges.slot_on_path(&block));
                continue;
            }
            let &(function, returns_to) = open.last()?;
            match arrival {
                None => {}
                Some(Arrival::Jump) if known.function == function => {}
                Some(Arrival::Jump) if self.stack.functions.sums[function as usize].role != Role::LongJump => {
                    let entry = Entry { flags: TAIL_CALL, ..plain(of(known), plan.end, block.start) };
                    plan.lists.moves.push(Move::enter(std::mem::take(&mut run), &entry));
                    *open.last_mut()? = (known.function, returns_to);
                }
                Some(Arrival::Call) if known.called != u32::MAX => {
                    let returns_to = plan.end;
                    if !known.entry && known.called == function {
                        return None;
                    }
                    let entered = Entered { function: known.called, entry: known.entry };
                    let entry = Entry { returns_to, ..plain(entered, plan.last, block.start) };
                    plan.lists.moves.push(Move::enter(std::mem::take(&mut run), &entry));
                    open.push((known.called, returns_to));
                }
                Some(Arrival::Return) if open.len() > 1 && returns_to == block.start => {
                    plan.lists.moves.push(Move::pop(std::mem::take(&mut run)));
                    open.pop();
                }
                _ => return None,
            }
            run += block.instructions;
            (plan.last, plan.end) = (block.last, block.end);
            arrival = Some(Arrival::behind(&block));
            plan.lists.push(block.id, self.edges.slot_on_path(&block));
        }
        if let Some(target) = path.returns_to {
            // It goes elsewhere every time.
            plan.returned = (target, plan.lists.edges.pop()?);
        }
        (plan.run, plan.arrival) = (run, arrival?);
        plan.lists.open = open;
        Some(plan)
    }
}

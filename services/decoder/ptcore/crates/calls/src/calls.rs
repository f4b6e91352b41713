//! From blocks to calls: what each arrival at another function means.

use crate::blocks::{BlockCount, Blocks};
use crate::edges::{Edge, Edges};
use crate::functions::{Entered, FunctionKey, FunctionTotals};
use crate::output::{Kept, Output};
use crate::plan::{Move, Plan, Plans, NONE, TAIL};
use crate::records::{Records, ASYNCHRONOUS, BEGIN_TRUNCATED, TAIL_CALL};
use crate::stack::{Entry, Interruption, Stack};
use pt_flow::{Block, BlockKind, DisableKind, Loss, Path, Reason, Sink};
use pt_image::{Role, Symbols};

/// Why a stretch of the stream has no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The bytes are there and could not be decoded.
    Undecodable(Reason),
    /// The processor wrote that it lost packets.
    Overflow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRecord {
    pub offset: u64,
    pub size: u64,
    /// TSC ticks; 0 when unknown.
    pub start_tsc: u64,
    pub end_tsc: u64,
    pub cause: LossCause,
    /// Where the flow stood, in which epoch of the image; 0 when unknown.
    pub address: u64,
    pub epoch: u32,
}

/// Everything that became known of a stream.
pub struct Trace {
    pub records: Records,
    pub functions: Vec<FunctionTotals>,
    /// In order.
    pub edges: Vec<(Edge, u64)>,
    pub losses: Vec<LossRecord>,
}

/// What a stream adds up to.
pub struct Totals {
    /// By their numbers.
    pub functions: Vec<FunctionTotals>,
    /// In order.
    pub edges: Vec<(Edge, u64)>,
    /// How many calls there were.
    pub calls: u64,
}

/// Follows the flow of one thread with a stack of calls; after `finish` that of another one through the same `Flow`.
pub struct Calls<S, O = Kept> {
    symbols: S,
    stack: Stack<O>,
    edges: Edges,
    blocks: Blocks,
    known: Vec<Known>,
    /// By function of code that nothing divides: its blocks.
    members: Vec<Vec<(u32, u64)>>,
    plans: Plans,
    arrival: Arrival,
    left: Option<Left>,
    /// The last loss is an overflow of which the end is not known yet.
    overflowing: bool,
    /// Of the last block.
    end: u64,
    /// The last instruction of a stub that was passed through, and where it ends.
    passed: (u64, u64),
    tsc: u64,
}

/// What was found out about a cached block.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// The function that it is in; `u32::MAX` when that is to be asked anew.
    pub function: u32,
    /// The function that a call of it enters.
    pub called: u32,
    pub entry: bool,
    /// It is code that only leads to another function, and no call of its own.
    pub stub: bool,
}

const UNKNOWN: Known = Known { function: u32::MAX, called: u32::MAX, entry: false, stub: false };

/// How the next block is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Nothing before it is known.
    Begin,
    /// By a branch that leaves the stack alone.
    Jump,
    Call {
        from: u64,
        returns_to: u64,
    },
    Return,
    Interruption(Left),
}

impl Arrival {
    #[inline(always)]
    pub fn behind(block: &Block<'_>) -> Arrival {
        match block.kind {
            BlockKind::Call | BlockKind::IndirectCall if block.target != block.end => {
                Arrival::Call { from: block.last, returns_to: block.end }
            }
            BlockKind::Return => Arrival::Return,
            _ => Arrival::Jump,
        }
    }

    /// Whether a stub may be passed through on this way.
    #[inline(always)]
    fn passes(self) -> bool {
        matches!(self, Arrival::Jump | Arrival::Call { .. })
    }
}

/// Where the flow was interrupted, and where it would go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    at: u64,
    resumes: u64,
}

impl<S: Symbols> Calls<S> {
    /// Keeps everything up to the end.
    pub fn new(symbols: S) -> Self {
        Calls::handing_out(symbols, Kept::default())
    }

    /// Ends the calls that are open with the last known time.
    pub fn finish(&mut self) -> Trace {
        let Totals { functions, edges, .. } = self.end_stream();
        let Kept { mut records, losses } = std::mem::take(&mut self.stack.output);
        records.number();
        Trace { records, functions, edges, losses }
    }

    /// Takes columns that are not needed any more for the next stream: memory that was used before need not be given by
    /// the system again.
    pub fn recycle(&mut self, records: Records) {
        if self.stack.is_new() {
            self.stack.gathered.records = records;
            self.stack.gathered.clear(0);
        }
    }
}

impl<S: Symbols, O: Output> Calls<S, O> {
    /// Calls go to `output` when they are over.
    pub fn handing_out(symbols: S, output: O) -> Self {
        Calls {
            symbols,
            stack: Stack::new(output),
            edges: Edges::default(),
            blocks: Blocks::default(),
            known: Vec::new(),
            members: Vec::new(),
            plans: Plans::default(),
            arrival: Arrival::Begin,
            left: None,
            overflowing: false,
            end: 0,
            passed: (0, 0),
            tsc: 0,
        }
    }

    /// How often each block ran since this was asked last, and in which function it is.
    pub fn blocks(&mut self) -> Vec<(BlockCount, FunctionKey)> {
        self.plans.gather(&mut self.edges);
        self.plans.gather_blocks(&mut self.blocks);
        let ran = self.blocks.take();
        let mut placed = Vec::with_capacity(ran.len());
        for block in ran {
            let function = match self.known.get(block.id as usize) {
                Some(known) if known.function != u32::MAX => known.function,
                _ => {
                    self.stack.epoch = block.epoch;
                    self.look_up(block.start, false).0.function
                }
            };
            placed.push((block, self.stack.functions.key(function)));
        }
        placed
    }

    /// Ends the calls that are open with the last known time, and hands them out.
    pub fn end_stream(&mut self) -> Totals {
        self.plans.gather(&mut self.edges);
        if self.plans.is_full() {
            self.forget_plans(self.plans.generation);
        }
        let functions = self.stack.finish();
        (self.arrival, self.left, self.overflowing) = (Arrival::Begin, None, false);
        (self.stack.epoch, self.end, self.tsc) = (0, 0, 0);
        let calls = functions.iter().map(|function| function.calls).sum();
        Totals { functions, edges: self.edges.take(), calls }
    }

    pub fn output(&mut self) -> &mut O {
        &mut self.stack.output
    }

    /// Bytes of what is kept from stream to stream.
    pub fn memory(&self) -> usize {
        self.known.capacity() * size_of::<Known>()
            + self.edges.memory()
            + self.blocks.memory()
            + self.plans.memory()
            + self.stack.window.memory()
            + self.stack.gathered.records.memory()
    }

    /// The function at `address`; what is known about blocks of a function that turns out to be two is forgotten.
    fn look_up(&mut self, address: u64, called: bool) -> (Entered, bool) {
        let place = self.symbols.place(self.stack.epoch, address);
        let entered = self.stack.functions.at(&place, address, called);
        if let Some((divided, from)) = self.stack.functions.changed.take() {
            if let Some(members) = self.members.get_mut(divided as usize) {
                members.retain(|&(id, start)| {
                    if start >= from {
                        self.known[id as usize] = UNKNOWN;
                    }
                    start < from
                });
            }
        }
        (entered, place.function.is_some())
    }

    #[cold]
    #[inline(never)]
    fn get_to_know(&mut self, block: &Block<'_>) -> Known {
        let called = matches!(self.arrival, Arrival::Call { .. });
        let (entered, divided) = self.look_up(block.start, called);
        let named = if called || divided { entered.function } else { u32::MAX };
        let stub = self.stack.functions.sums[entered.function as usize].role == Role::Stub;
        let known = Known { function: entered.function, called: named, entry: entered.entry, stub };
        if let Some(index) = kept(block) {
            if self.known.len() <= index {
                self.known.resize(index + 1, UNKNOWN);
            }
            self.known[index] = known;
            if !divided {
                let function = entered.function as usize;
                if self.members.len() <= function {
                    self.members.resize_with(function + 1, Vec::new);
                }
                self.members[function].push((block.id, block.start));
            }
        }
        known
    }

    #[inline(always)]
    fn known(&mut self, block: &Block<'_>) -> Known {
        match kept(block).and_then(|index| self.known.get(index)) {
            Some(&known) if known.function != u32::MAX => known,
            _ => self.get_to_know(block),
        }
    }

    /// The stack's innermost call becomes the one that runs the block at `address`, of which `known` is what is known.
    #[inline(always)]
    fn arrive(&mut self, address: u64, id: u32, known: Known) {
        let entered = Entered { function: known.function, entry: known.entry };
        match self.arrival {
            Arrival::Jump => self.jump(entered, address),
            Arrival::Call { from, returns_to } => {
                let entered = match known.called {
                    u32::MAX => self.enter(address, id),
                    function => Entered { function, ..entered },
                };
                self.call(entered, from, returns_to, address);
            }
            Arrival::Return => self.give_back(entered, address),
            Arrival::Begin => {
                self.stack.begin(self.tsc);
                self.root(entered, address);
            }
            Arrival::Interruption(left) => {
                let entered = self.enter(address, id);
                self.interruption(entered, left, address);
            }
        }
    }

    /// What a call of `address` enters.
    #[cold]
    #[inline(never)]
    fn enter(&mut self, address: u64, id: u32) -> Entered {
        let (entered, _) = self.look_up(address, true);
        if let Some(known) = self.known.get_mut(id as usize).filter(|known| known.function != u32::MAX) {
            (known.called, known.entry) = (entered.function, entered.entry);
        }
        entered
    }

    fn root(&mut self, entered: Entered, target: u64) {
        self.stack.push(&Entry { flags: BEGIN_TRUNCATED, ..plain(entered, 0, target) });
    }

    fn call(&mut self, entered: Entered, from: u64, returns_to: u64, target: u64) {
        if !entered.entry && self.stack.function() == Some(entered.function) {
            return self.stack.call_locally(returns_to);
        }
        self.stack.push(&Entry { returns_to: Some(returns_to), ..plain(entered, from, target) });
    }

    fn jump(&mut self, entered: Entered, target: u64) {
        if self.stack.role() == Role::LongJump && self.long_jump(entered, target) {
            return;
        }
        if self.stack.function() == Some(entered.function) {
            return;
        }
        self.stack.replace(&Entry { flags: TAIL_CALL, ..plain(entered, self.end, target) });
    }

    /// True when the jump left the function that jumps far.
    fn long_jump(&mut self, entered: Entered, target: u64) -> bool {
        let landed = self.stack.has_landings() && self.stack.land(target);
        if landed && self.stack.function() == Some(entered.function) {
            return true;
        }
        if entered.entry || self.stack.function() == Some(entered.function) {
            return false;
        }
        self.unwind_to(entered, target);
        true
    }

    /// To the innermost call of the function, else to a new beginning.
    fn unwind_to(&mut self, entered: Entered, target: u64) {
        if !self.stack.unwind_to(entered.function) {
            self.stack.end();
            self.root(entered, target);
        }
    }

    fn give_back(&mut self, entered: Entered, target: u64) {
        if self.stack.return_locally(target) {
            return;
        }
        if self.stack.returns_to(target) {
            return self.stack.pop(0);
        }
        if self.stack.return_to(target) {
            return;
        }
        if let Some(interruption) = self.stack.interruption().filter(|interruption| !interruption.returning) {
            interruption.returning = true;
            return self.jump(entered, target);
        }
        // No call returns to where a function begins: its address was pushed.
        if entered.entry {
            return self.jump(entered, target);
        }
        if self.stack.depth() == 1 {
            self.stack.pop(0);
            return self.stack.find_caller(entered.function, target);
        }
        // The unwinder of C++ exceptions returns into the call that catches.
        self.unwind_to(entered, target);
    }

    fn interruption(&mut self, entered: Entered, left: Left, target: u64) {
        if !entered.entry {
            // The end of an interruption of which the begin was not recorded.
            return self.unwind_to(entered, target);
        }
        let interruption = Interruption { resumes: left.resumes, repeats: left.at, returning: false };
        self.stack.push(&Entry {
            flags: ASYNCHRONOUS,
            interruption: Some(interruption),
            ..plain(entered, left.at, target)
        });
    }

    fn interrupt_at(&mut self, left: Left, to: u64) {
        if self.arrival != Arrival::Jump {
            // Between a call and the first instruction of the function, for instance.
            let (entered, _) = self.look_up(left.at, matches!(self.arrival, Arrival::Call { .. }));
            let (function, entry) = (entered.function, entered.entry);
            let known = Known { function, called: function, entry, stub: false };
            self.arrive(left.at, u32::MAX, known);
        }
        self.arrival = if self.stack.resume(to) { Arrival::Jump } else { Arrival::Interruption(left) };
    }

    /// A block is reached. False when it is passed through: what its stub leads to is arrived at as the stub was.
    #[inline(always)]
    fn reach(&mut self, block: &Block<'_>) -> bool {
        let known = self.known(block);
        if self.arrival != Arrival::Jump || self.stack.function() != Some(known.function) {
            if known.stub && self.arrival.passes() {
                return false;
            }
            self.arrive(block.start, block.id, known);
        }
        true
    }

    /// A block ran, which was `reached` or else passed through.
    #[inline(always)]
    fn ran(&mut self, block: &Block<'_>, reached: bool) {
        self.stack.run(block.instructions);
        if reached {
            self.end = block.end;
            self.arrival = Arrival::behind(block);
        } else {
            self.pass_through(block);
        }
        self.edges.count(block);
        self.blocks.count(block);
    }

    /// What the stub leads to is arrived at as the stub was.
    #[inline(always)]
    fn pass_through(&mut self, block: &Block<'_>) {
        self.passed = (block.last, block.end);
        let back = |returns_to| block.kind == BlockKind::Return && block.target == returns_to;
        if matches!(self.arrival, Arrival::Call { returns_to, .. } if back(returns_to)) {
            self.arrival = Arrival::Jump;
        }
    }

    /// Runs a path for which there is no plan, or whose plan does not fit. `reached` when its first block was.
    #[inline(never)]
    fn replay(&mut self, path: &Path<'_>, mut reached: bool) {
        for block in path.blocks() {
            let reached = std::mem::take(&mut reached) || self.reach(&block);
            self.ran(&block, reached);
        }
        if self.plans.is_worth_it(path.id, self.stack.functions.version) {
            let plan = self.plan(path);
            self.plans.keep(path.id, self.stack.functions.version, plan);
        }
    }

    /// What the path does to the stack, when that can be said beforehand.
    fn plan(&mut self, path: &Path<'_>) -> Option<Plan> {
        let known = |calls: &Self, block: &Block<'_>| {
            calls.known.get(block.id as usize).copied().filter(|known| known.function != u32::MAX)
        };
        let first = path.blocks().next()?;
        let mut plan = Plan::of(known(self, &first)?, &first);
        let mut arrival = None;
        let mut open = vec![(known(self, &first)?.function, 0)];
        let mut run = 0;
        for block in path.blocks() {
            let known = known(self, &block)?;
            if known.stub {
                if !arrival.is_some_and(Arrival::passes) || block.kind == BlockKind::Return {
                    return None;
                }
                run += block.instructions;
                plan.edges.extend(self.edges.slot(&block));
                plan.blocks.push(block.id);
                continue;
            }
            let &(function, returns_to) = open.last()?;
            match arrival {
                None => {}
                Some(Arrival::Jump) if known.function == function => {}
                Some(Arrival::Jump) if self.stack.functions.sums[function as usize].role != Role::LongJump => {
                    let entry = Entry { flags: TAIL_CALL, ..plain(of(known), plan.end, block.start) };
                    plan.moves.push(Move::enter(std::mem::take(&mut run), &entry));
                    *open.last_mut()? = (known.function, returns_to);
                }
                Some(Arrival::Call { from, returns_to }) if known.called != u32::MAX => {
                    if !known.entry && known.called == function {
                        return None;
                    }
                    let entered = Entered { function: known.called, entry: known.entry };
                    let entry = Entry { returns_to: Some(returns_to), ..plain(entered, from, block.start) };
                    plan.moves.push(Move::enter(std::mem::take(&mut run), &entry));
                    open.push((known.called, returns_to));
                }
                Some(Arrival::Return) if open.len() > 1 && returns_to == block.start => {
                    plan.moves.push(Move::pop(std::mem::take(&mut run)));
                    open.pop();
                }
                _ => return None,
            }
            run += block.instructions;
            (plan.last, plan.end) = (block.last, block.end);
            arrival = Some(Arrival::behind(&block));
            plan.edges.extend(self.edges.slot(&block));
            plan.blocks.push(block.id);
        }
        if path.returns_to.is_some() {
            // It goes elsewhere every time.
            plan.edges.pop();
        }
        (plan.run, plan.arrival) = (run, arrival?);
        Some(plan)
    }

    /// What runs from now on is over at `tsc`.
    #[inline(always)]
    fn pass(&mut self, tsc: u64) {
        if tsc > self.tsc {
            self.tsc = tsc;
            self.stack.advance(tsc);
        }
    }

    /// Plans are of paths of another generation from now on.
    fn forget_plans(&mut self, generation: u64) {
        self.plans.gather_blocks(&mut self.blocks);
        self.plans = Plans::of(generation);
    }

    fn break_off(&mut self) {
        self.stack.end();
        (self.arrival, self.left) = (Arrival::Begin, None);
    }
}

impl<S: Symbols, O: Output> Sink for Calls<S, O> {
    #[inline(always)]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.stack.epoch = block.epoch;
        self.pass(tsc);
        let reached = self.reach(block);
        self.ran(block, reached);
    }

    #[inline(always)]
    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        self.stack.epoch = path.epoch();
        self.pass(tsc);
        let version = self.stack.functions.version;
        let Some(plan) = self.plans.fitting(path.id, version) else {
            return self.replay(path, false);
        };
        let known = plan.known;
        if self.arrival == Arrival::Jump && self.stack.function() == Some(known.function) {
            // Nothing changes.
        } else if self.arrival == Arrival::Return && self.stack.is_over(plan.start) {
            self.stack.pop(0);
            if self.stack.function() != Some(known.function) {
                return self.replay(path, true);
            }
        } else {
            let start = plan.start;
            self.arrive(start, path.first(), known);
            if self.stack.functions.version != version || self.stack.function() != Some(known.function) {
                return self.replay(path, true);
            }
        }
        let Some(plan) = self.plans.of_path(path.id) else { return };
        plan.count += 1;
        let (moves, run) = (plan.moves(), plan.run);
        (self.end, self.arrival) = (plan.end, plan.arrival());
        if let Some(target) = path.returns_to {
            self.edges.count_return(plan.last, target);
        }
        for &Move { run, function, call_address, target, returns_to } in &self.plans.moves[moves] {
            self.stack.run(run);
            if function == NONE {
                self.stack.pop(0);
            } else if returns_to == TAIL {
                let entered = Entered { function, entry: false };
                self.stack.replace(&Entry { flags: TAIL_CALL, ..plain(entered, call_address, target) });
            } else {
                let entered = Entered { function, entry: false };
                self.stack.push(&Entry { returns_to: Some(returns_to), ..plain(entered, call_address, target) });
            }
        }
        self.stack.run(run);
    }

    fn paths(&mut self, generation: u64) {
        if self.plans.generation != generation {
            self.plans.gather(&mut self.edges);
            self.forget_plans(generation);
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.tsc = tsc;
        self.stack.skip(tsc);
        if let (true, Some(loss)) = (std::mem::take(&mut self.overflowing), self.stack.losses.last_mut()) {
            loss.end_tsc = tsc;
        }
        match self.left.take() {
            None => self.arrival = Arrival::Begin,
            Some(_) if resumed => {}
            Some(left) => self.interrupt_at(left, ip),
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, _target: Option<u64>, tsc: u64) {
        self.pass(tsc);
        let resumes = match kind {
            DisableKind::Asynchronous => at,
            DisableKind::Synchronous if self.passed.0 == at => self.passed.1,
            DisableKind::Synchronous => self.end,
        };
        self.left = Some(Left { at, resumes });
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.pass(tsc);
        self.interrupt_at(Left { at: from, resumes: from }, to);
    }

    fn loss(&mut self, loss: &Loss) {
        self.pass(loss.tsc0);
        self.break_off();
        if let (true, Some(overflow)) = (std::mem::take(&mut self.overflowing), self.stack.losses.last_mut()) {
            overflow.end_tsc = loss.tsc1;
        }
        self.stack.lose(LossRecord {
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

#[inline(always)]
fn kept(block: &Block<'_>) -> Option<usize> {
    (block.id != u32::MAX).then_some(block.id as usize)
}

pub(crate) fn of(known: Known) -> Entered {
    Entered { function: known.function, entry: known.entry }
}

fn plain(entered: Entered, call_address: u64, target: u64) -> Entry {
    Entry { function: entered.function, call_address, target, returns_to: None, flags: 0, interruption: None }
}

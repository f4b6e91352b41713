//! From blocks to calls: what each arrival at another function means.

use crate::edges::{Branch, Edge, Edges};
use crate::functions::{Entered, FunctionTotals};
use crate::records::{Records, ASYNCHRONOUS, BEGIN_TRUNCATED, TAIL_CALL};
use crate::stack::{Entry, Interruption, Stack};
use pt_flow::{Block, BlockKind, DisableKind, Loss, Reason, Sink};
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

/// Follows the flow of one thread with a stack of calls.
pub struct Calls<S> {
    symbols: S,
    stack: Stack,
    edges: Edges,
    known: Vec<Known>,
    arrival: Arrival,
    left: Option<Left>,
    losses: Vec<LossRecord>,
    /// An overflow of which the end is not known yet.
    overflowing: Option<usize>,
    /// Of the last block.
    epoch: u32,
    end: u64,
    tsc: u64,
}

/// What was found out about a cached block.
#[derive(Clone, Copy)]
struct Known {
    entered: Entered,
    /// Symbols or unwind tables say which function it is in: no call changes that.
    divided: bool,
    branch: Option<Branch>,
}

const UNKNOWN: Known = Known { entered: Entered { function: u32::MAX, entry: false }, divided: false, branch: None };

/// How the next block is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
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

/// Where the flow was interrupted, and where it would go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    at: u64,
    resumes: u64,
}

impl<S: Symbols> Calls<S> {
    pub fn new(symbols: S) -> Self {
        Calls {
            symbols,
            stack: Stack::default(),
            edges: Edges::default(),
            known: Vec::new(),
            arrival: Arrival::Begin,
            left: None,
            losses: Vec::new(),
            overflowing: None,
            epoch: 0,
            end: 0,
            tsc: 0,
        }
    }

    /// Ends the calls that are open with the last known time.
    pub fn finish(mut self) -> Trace {
        for branch in self.known.iter().filter_map(|known| known.branch.as_ref()) {
            self.edges.gather(branch);
        }
        let (records, functions) = self.stack.finish();
        Trace { records, functions, edges: self.edges.sorted(), losses: self.losses }
    }

    fn look_up(&mut self, address: u64, called: bool) -> Known {
        let place = self.symbols.place(self.epoch, address);
        let entered = self.stack.functions.at(&place, address, called);
        Known { entered, divided: place.function.is_some(), branch: None }
    }

    #[cold]
    fn get_to_know(&mut self, block: &Block<'_>) -> Known {
        let known = self.look_up(block.start, matches!(self.arrival, Arrival::Call { .. }));
        if let Some(index) = kept(block) {
            if self.known.len() <= index {
                self.known.resize(index + 1, UNKNOWN);
            }
            self.known[index] = Known { branch: self.known[index].branch, ..known };
        }
        known
    }

    /// The stack's innermost call becomes the one that runs at `address`.
    fn arrive(&mut self, arrival: Arrival, address: u64, known: Known) {
        let called = matches!(arrival, Arrival::Call { .. } | Arrival::Interruption(_));
        let entered = if known.divided { known.entered } else { self.look_up(address, called).entered };
        match arrival {
            Arrival::Begin => {
                self.stack.begin(self.tsc);
                self.root(entered, address);
            }
            Arrival::Jump => self.jump(entered, address),
            Arrival::Call { from, returns_to } => self.call(entered, from, returns_to, address),
            Arrival::Return => self.give_back(entered, address),
            Arrival::Interruption(left) => self.interruption(entered, left, address),
        }
    }

    fn root(&mut self, entered: Entered, target: u64) {
        self.stack.push(Entry { flags: BEGIN_TRUNCATED, ..plain(entered, 0, target) });
    }

    fn call(&mut self, entered: Entered, from: u64, returns_to: u64, target: u64) {
        if !entered.entry && self.stack.function() == Some(entered.function) {
            return self.stack.call_locally(returns_to);
        }
        self.stack.push(Entry { returns_to: Some(returns_to), ..plain(entered, from, target) });
    }

    fn jump(&mut self, entered: Entered, target: u64) {
        if self.stack.role() == Role::LongJump && self.long_jump(entered, target) {
            return;
        }
        if self.stack.function() == Some(entered.function) {
            return;
        }
        self.stack.replace(Entry { flags: TAIL_CALL, ..plain(entered, self.end, target) });
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
        self.stack.push(Entry {
            flags: ASYNCHRONOUS,
            interruption: Some(interruption),
            ..plain(entered, left.at, target)
        });
    }

    fn interrupt_at(&mut self, left: Left, to: u64) {
        if self.arrival != Arrival::Jump {
            // Between a call and the first instruction of the function, for instance.
            let known = self.look_up(left.at, matches!(self.arrival, Arrival::Call { .. }));
            self.arrive(self.arrival, left.at, known);
        }
        self.arrival = if self.stack.resume(to) { Arrival::Jump } else { Arrival::Interruption(left) };
    }

    fn count(&mut self, block: &Block<'_>) {
        let Some(known) = kept(block).and_then(|index| self.known.get_mut(index)) else {
            return self.edges.count(block);
        };
        if known.branch.is_none() {
            known.branch = Branch::of(block);
        }
        let Some(branch) = known.branch.as_mut() else { return };
        if block.kind == BlockKind::CondNotTaken {
            branch.count_not_taken();
        } else if !branch.count_taken(block.target) {
            self.edges.retarget(branch, block.target);
        }
    }

    /// What runs from now on is over at `tsc`.
    #[inline(always)]
    fn pass(&mut self, tsc: u64) {
        self.tsc = tsc.max(self.tsc);
        self.stack.advance(self.tsc);
    }

    fn break_off(&mut self) {
        self.stack.end();
        (self.arrival, self.left) = (Arrival::Begin, None);
    }
}

impl<S: Symbols> Sink for Calls<S> {
    #[inline(always)]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.epoch = block.epoch;
        self.pass(tsc);
        let known = match kept(block).and_then(|index| self.known.get(index)) {
            Some(&known) if known.entered.function != u32::MAX => known,
            _ => self.get_to_know(block),
        };
        if self.arrival != Arrival::Jump || self.stack.function() != Some(known.entered.function) {
            self.arrive(self.arrival, block.start, known);
        }
        self.stack.run(block.instructions);
        self.end = block.end;
        self.arrival = match block.kind {
            BlockKind::Call | BlockKind::IndirectCall if block.target != block.end => {
                Arrival::Call { from: block.last, returns_to: block.end }
            }
            BlockKind::Return => Arrival::Return,
            _ => Arrival::Jump,
        };
        if !matches!(block.kind, BlockKind::Linear | BlockKind::Interrupted) {
            self.count(block);
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.tsc = tsc;
        self.stack.skip(tsc);
        if let Some(offset) = self.overflowing.take() {
            self.losses[offset].end_tsc = tsc;
        }
        match self.left.take() {
            None => self.arrival = Arrival::Begin,
            Some(_) if resumed => {}
            Some(left) => self.interrupt_at(left, ip),
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, _target: Option<u64>, tsc: u64) {
        self.pass(tsc);
        let resumes = if kind == DisableKind::Synchronous { self.end } else { at };
        self.left = Some(Left { at, resumes });
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.pass(tsc);
        self.interrupt_at(Left { at: from, resumes: from }, to);
    }

    fn loss(&mut self, loss: &Loss) {
        self.pass(loss.tsc0);
        self.break_off();
        self.losses.push(LossRecord {
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
        self.overflowing = Some(self.losses.len());
        self.losses.push(LossRecord {
            offset: offset as u64,
            size: 0,
            start_tsc: tsc,
            end_tsc: tsc,
            cause: LossCause::Overflow,
            address: from.unwrap_or(0),
            epoch: self.epoch,
        });
    }
}

#[inline(always)]
fn kept(block: &Block<'_>) -> Option<usize> {
    (block.id != u32::MAX).then_some(block.id as usize)
}

fn plain(entered: Entered, call_address: u64, target: u64) -> Entry {
    Entry { function: entered.function, call_address, target, returns_to: None, flags: 0, interruption: None }
}

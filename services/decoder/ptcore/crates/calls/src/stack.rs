//! The calls that are open, and their accounts.

use crate::functions::{FunctionTotals, Functions};
use crate::records::{Opening, Records, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, UNWOUND};
use pt_image::Role;

/// A call that is open.
struct Frame {
    row: u32,
    function: u32,
    start_tsc: u64,
    /// Of the call itself, as of the last change of the stack.
    instructions: u64,
    /// Of all calls below that are over.
    below: Account,
    /// Of an asynchronous call.
    pub interruption: Option<Interruption>,
}

/// Where the interrupted code goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    pub resumes: u64,
    /// Another place where it may go on: a system call that is made again.
    pub repeats: u64,
    /// The handler has returned to the code that ends the interruption.
    pub returning: bool,
}

#[derive(Clone, Copy, Default)]
struct Account {
    instructions: u64,
    ticks: u64,
}

/// How a call begins.
pub struct Entry {
    pub function: u32,
    pub call_address: u64,
    pub target: u64,
    pub returns_to: Option<u64>,
    pub flags: u8,
    pub tsc: u64,
    pub interruption: Option<Interruption>,
}

/// A gapless stretch of the trace. Calls that are found to enclose it later begin with it.
#[derive(Default)]
struct Stretch {
    number: u32,
    start_tsc: u64,
    first_row: u32,
    /// How many callers of the first call were found.
    found: u32,
    /// The calls of which no caller is known, once they are over.
    roots: Vec<u32>,
    below: Account,
}

/// The address behind a `setjmp`, and how many calls lie below the one that called it.
struct Landing {
    address: u64,
    depth: usize,
}

/// The return address of a call inside a function.
struct Local {
    returns_to: u64,
    depth: usize,
}

const NO_ADDRESS: u64 = u64::MAX;
/// Calls inside functions that are remembered; code that never returns from them would make them endless.
const MAX_LOCALS: usize = 1 << 12;

#[derive(Default)]
pub struct Stack {
    frames: Vec<Frame>,
    /// Return addresses of the frames: searched on their own.
    returns: Vec<u64>,
    landings: Vec<Landing>,
    locals: Vec<Local>,
    /// Instructions of the innermost call since the last change of the stack.
    own: u64,
    stretch: Stretch,
    pub functions: Functions,
    pub records: Records,
}

impl Stack {
    #[inline(always)]
    pub fn run(&mut self, instructions: u32) {
        self.own += u64::from(instructions);
    }

    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The function of the innermost call.
    #[inline(always)]
    pub fn function(&self) -> Option<u32> {
        self.frames.last().map(|frame| frame.function)
    }

    pub fn role(&self) -> Role {
        self.function().map_or(Role::Plain, |function| self.functions.list[function as usize].role)
    }

    /// Whether the innermost call returns to `address`.
    #[inline(always)]
    pub fn returns_to(&self, address: u64) -> bool {
        self.returns.last() == Some(&address)
    }

    pub fn interruption(&mut self) -> Option<&mut Interruption> {
        self.frames.last_mut().and_then(|frame| frame.interruption.as_mut())
    }

    /// Begins a gapless stretch.
    pub fn begin(&mut self, tsc: u64) {
        let number = self.stretch.number + 1;
        self.stretch = Stretch { number, start_tsc: tsc, first_row: self.records.len() as u32, ..Stretch::default() };
    }

    pub fn push(&mut self, entry: Entry) {
        self.settle_own();
        let row = self.records.open(Opening {
            start_tsc: entry.tsc,
            // Callers found later have depths below zero until the stretch ends.
            depth: (self.frames.len() as u32).wrapping_sub(self.stretch.found),
            function: entry.function,
            call_address: entry.call_address,
            target: entry.target,
            flags: entry.flags,
            parent: self.frames.last().map_or(NO_PARENT, |frame| frame.row),
        });
        let totals = self.totals(entry.function);
        totals.calls += 1;
        totals.open += 1;
        if totals.role == Role::SetJump {
            self.remember_landing(entry.returns_to);
        }
        self.frames.push(Frame {
            row,
            function: entry.function,
            start_tsc: entry.tsc,
            instructions: 0,
            below: Account::default(),
            interruption: entry.interruption,
        });
        self.returns.push(entry.returns_to.unwrap_or(NO_ADDRESS));
    }

    /// Ends the innermost call.
    pub fn pop(&mut self, tsc: u64, flags: u8) {
        self.settle_own();
        let Some(frame) = self.frames.pop() else { return };
        self.returns.pop();
        self.forget_below();
        let Frame { row, function, instructions, below, start_tsc, .. } = frame;
        let total = Account { instructions: instructions + below.instructions, ticks: elapsed(start_tsc, tsc) };
        self.records.close(row, tsc, instructions, total.instructions, flags);
        let stretch = self.stretch.number;
        let totals = self.totals(function);
        totals.self_instructions += instructions;
        totals.self_ticks += total.ticks.saturating_sub(below.ticks);
        totals.open -= 1;
        if totals.open == 0 {
            totals.add_total(stretch, total.instructions, total.ticks);
        }
        let above = match self.frames.last_mut() {
            Some(caller) => &mut caller.below,
            None => {
                self.stretch.roots.push(row);
                &mut self.stretch.below
            }
        };
        above.instructions += total.instructions;
        above.ticks += total.ticks;
    }

    /// The innermost call goes over into another one, which returns to where it would have.
    pub fn replace(&mut self, entry: Entry) {
        let returns_to = self.returns.last().copied().filter(|&address| address != NO_ADDRESS);
        let interruption = self.frames.last().and_then(|frame| frame.interruption);
        self.pop(entry.tsc, 0);
        self.push(Entry { returns_to, interruption, ..entry });
    }

    /// Ends calls until `depth` are left; all of them are unwound.
    pub fn unwind(&mut self, depth: usize, tsc: u64) {
        while self.frames.len() > depth {
            self.pop(tsc, UNWOUND);
        }
    }

    /// Ends the call that returns to `address`, unwinding those below it. False when there is none.
    pub fn return_to(&mut self, address: u64, tsc: u64) -> bool {
        let Some(index) = self.returns.iter().rposition(|&known| known == address && known != NO_ADDRESS) else {
            return false;
        };
        self.unwind(index + 1, tsc);
        self.pop(tsc, 0);
        true
    }

    /// Ends the asynchronous call that interrupted `address`. False when there is none.
    pub fn resume(&mut self, address: u64, tsc: u64) -> bool {
        let interrupted = |frame: &Frame| {
            frame.interruption.is_some_and(|known| known.resumes == address || known.repeats == address)
        };
        let Some(index) = self.frames.iter().rposition(interrupted) else { return false };
        self.unwind(index + 1, tsc);
        self.pop(tsc, 0);
        true
    }

    /// Unwinds to the innermost call of `function`. False when none is open.
    pub fn unwind_to(&mut self, function: u32, tsc: u64) -> bool {
        if self.functions.list[function as usize].open == 0 {
            return false;
        }
        let index = self.frames.iter().rposition(|frame| frame.function == function);
        self.unwind(index.map_or(0, |index| index + 1), tsc);
        index.is_some()
    }

    /// Unwinds to the call that called `setjmp` before `address`. False when none is known.
    pub fn land(&mut self, address: u64, tsc: u64) -> bool {
        let Some(landing) = self.landings.iter().rfind(|landing| landing.address == address) else { return false };
        let depth = landing.depth;
        self.unwind(depth, tsc);
        true
    }

    pub fn has_landings(&self) -> bool {
        !self.landings.is_empty()
    }

    /// The call that was running turns out to lie inside one that began before the stretch. All calls must be over.
    pub fn find_caller(&mut self, function: u32, target: u64) {
        let (stretch, start_tsc) = (self.stretch.number, self.stretch.start_tsc);
        self.stretch.found += 1;
        self.totals(function).forget_stretch(stretch);
        self.push(Entry {
            function,
            call_address: 0,
            target,
            returns_to: None,
            flags: BEGIN_TRUNCATED,
            tsc: start_tsc,
            interruption: None,
        });
        if let Some(frame) = self.frames.last_mut() {
            frame.below = std::mem::take(&mut self.stretch.below);
            for root in self.stretch.roots.drain(..) {
                self.records.parent[root as usize] = frame.row;
            }
        }
    }

    /// Ends the stretch with all calls that are open.
    pub fn end(&mut self, tsc: u64) {
        while !self.frames.is_empty() {
            self.pop(tsc, END_TRUNCATED);
        }
        if self.stretch.found > 0 {
            for depth in &mut self.records.depth[self.stretch.first_row as usize..] {
                *depth = depth.wrapping_add(self.stretch.found);
            }
        }
        self.begin(tsc);
    }

    /// Remembers a call of the function's own code.
    pub fn call_locally(&mut self, returns_to: u64) {
        if self.locals.len() < MAX_LOCALS {
            self.locals.push(Local { returns_to, depth: self.frames.len() });
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

    fn remember_landing(&mut self, address: Option<u64>) {
        let (Some(address), depth) = (address, self.frames.len()) else { return };
        let known = self.landings.iter().rev().take_while(|landing| landing.depth == depth);
        if !known.into_iter().any(|landing| landing.address == address) {
            self.landings.push(Landing { address, depth });
        }
    }

    /// Forgets what belonged to calls that are over.
    #[inline(always)]
    fn forget_below(&mut self) {
        let depth = self.frames.len();
        while self.landings.last().is_some_and(|landing| landing.depth > depth) {
            self.landings.pop();
        }
        while self.locals.last().is_some_and(|local| local.depth > depth) {
            self.locals.pop();
        }
    }

    #[inline(always)]
    fn settle_own(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.instructions += std::mem::take(&mut self.own);
        }
    }

    fn totals(&mut self, function: u32) -> &mut FunctionTotals {
        &mut self.functions.list[function as usize]
    }
}

/// Ticks between two times, 0 when the first is not known.
fn elapsed(start: u64, end: u64) -> u64 {
    if start == 0 {
        return 0;
    }
    end.saturating_sub(start)
}

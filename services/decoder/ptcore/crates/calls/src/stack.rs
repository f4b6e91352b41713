//! The calls that are open, and their accounts.

use crate::clock::Clock;
use crate::functions::{FunctionTotals, Functions};
use crate::records::{Opening, Records, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, UNWOUND};
use crate::totals::add_up;
use pt_image::Role;

/// A call that is open.
struct Frame {
    row: u32,
    function: u32,
    /// Of an asynchronous call.
    interruption: Option<Interruption>,
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

/// How a call begins.
pub struct Entry {
    pub function: u32,
    pub call_address: u64,
    pub target: u64,
    pub returns_to: Option<u64>,
    pub flags: u8,
    pub interruption: Option<Interruption>,
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
    /// The calls of this gapless stretch of which no caller is known and which are over.
    roots: Vec<u32>,
    /// When the first of them began.
    begin_tsc: u64,
    clock: Clock,
    pub functions: Functions,
    pub records: Records,
}

impl Stack {
    #[inline(always)]
    pub fn run(&mut self, instructions: u32) {
        self.own += u64::from(instructions);
        self.clock.run(instructions);
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

    /// What runs from now on is over at `tsc`.
    #[inline(always)]
    pub fn advance(&mut self, tsc: u64) {
        self.clock.advance(tsc, &mut self.records);
    }

    /// Nothing runs until `tsc`.
    pub fn skip(&mut self, tsc: u64) {
        self.clock.skip(tsc, &mut self.records);
    }

    /// Begins a gapless stretch.
    pub fn begin(&mut self, tsc: u64) {
        self.roots.clear();
        self.begin_tsc = tsc;
    }

    pub fn push(&mut self, entry: Entry) {
        let row = self.open(&entry);
        self.clock.begins(row, &mut self.records);
    }

    /// Ends the innermost call.
    pub fn pop(&mut self, flags: u8) {
        self.settle_own();
        let Some(Frame { row, function, .. }) = self.frames.pop() else { return };
        self.returns.pop();
        self.forget_below();
        self.records.flags[row as usize] |= flags;
        self.clock.ends(row, &mut self.records);
        self.functions.list[function as usize].open -= 1;
        if self.frames.is_empty() {
            self.roots.push(row);
        }
    }

    /// The innermost call goes over into another one, which returns to where it would have.
    pub fn replace(&mut self, entry: Entry) {
        let returns_to = self.returns.last().copied().filter(|&address| address != NO_ADDRESS);
        let interruption = self.frames.last().and_then(|frame| frame.interruption);
        self.pop(0);
        self.push(Entry { returns_to, interruption, ..entry });
    }

    /// Ends calls until `depth` are left; all of them are unwound.
    pub fn unwind(&mut self, depth: usize) {
        while self.frames.len() > depth {
            self.pop(UNWOUND);
        }
    }

    /// Ends the call that returns to `address`, unwinding those below it. False when there is none.
    pub fn return_to(&mut self, address: u64) -> bool {
        let Some(index) = self.returns.iter().rposition(|&known| known == address && known != NO_ADDRESS) else {
            return false;
        };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Ends the asynchronous call that interrupted `address`. False when there is none.
    pub fn resume(&mut self, address: u64) -> bool {
        let interrupted = |frame: &Frame| {
            frame.interruption.is_some_and(|known| known.resumes == address || known.repeats == address)
        };
        let Some(index) = self.frames.iter().rposition(interrupted) else { return false };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Unwinds to the innermost call of `function`. False when none is open.
    pub fn unwind_to(&mut self, function: u32) -> bool {
        if self.functions.list[function as usize].open == 0 {
            return false;
        }
        let index = self.frames.iter().rposition(|frame| frame.function == function);
        self.unwind(index.map_or(0, |index| index + 1));
        index.is_some()
    }

    /// Unwinds to the call that called `setjmp` before `address`. False when none is known.
    pub fn land(&mut self, address: u64) -> bool {
        let Some(landing) = self.landings.iter().rfind(|landing| landing.address == address) else { return false };
        let depth = landing.depth;
        self.unwind(depth);
        true
    }

    pub fn has_landings(&self) -> bool {
        !self.landings.is_empty()
    }

    /// The call that was running turns out to lie inside one that began before the stretch. All calls must be over.
    pub fn find_caller(&mut self, function: u32, target: u64) {
        let entry =
            Entry { function, call_address: 0, target, returns_to: None, flags: BEGIN_TRUNCATED, interruption: None };
        let row = self.open(&entry);
        self.records.start_tsc[row as usize] = self.begin_tsc;
        for root in self.roots.drain(..) {
            self.records.parent[root as usize] = row;
        }
    }

    /// Ends the stretch with all calls that are open.
    pub fn end(&mut self) {
        while !self.frames.is_empty() {
            self.pop(END_TRUNCATED);
        }
        self.roots.clear();
    }

    /// The calls, complete, and the functions.
    pub fn finish(mut self) -> (Records, Vec<FunctionTotals>) {
        self.end();
        self.clock.finish(&mut self.records);
        add_up(&mut self.records, &mut self.functions.list);
        (self.records, self.functions.list)
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

    fn open(&mut self, entry: &Entry) -> u32 {
        self.settle_own();
        let row = self.records.open(Opening {
            function: entry.function,
            call_address: entry.call_address,
            target: entry.target,
            flags: entry.flags,
            parent: self.frames.last().map_or(NO_PARENT, |frame| frame.row),
        });
        let function = &mut self.functions.list[entry.function as usize];
        function.open += 1;
        if function.role == Role::SetJump {
            self.remember_landing(entry.returns_to);
        }
        self.frames.push(Frame { row, function: entry.function, interruption: entry.interruption });
        self.returns.push(entry.returns_to.unwrap_or(NO_ADDRESS));
        row
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
        if let Some(frame) = self.frames.last() {
            self.records.instructions[frame.row as usize] += std::mem::take(&mut self.own);
        }
    }
}

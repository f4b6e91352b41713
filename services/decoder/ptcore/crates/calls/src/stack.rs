//! The calls that are open, and their accounts.

use crate::clock::{Clock, INNER, NOBODY};
use crate::functions::{FunctionTotals, Functions};
use crate::records::{Opening, Records, BEGIN_TRUNCATED, END_TRUNCATED, GROWTH, NO_PARENT, UNWOUND};
use pt_image::Role;

/// A call that is open.
struct Frame {
    row: u32,
    function: u32,
    /// Whose own time passes while the call is the innermost: its function, or nobody where its begin has no time.
    timed: u32,
    /// Interrupted what ran; the interruption is the last one that is open.
    asynchronous: bool,
    /// `NO_ADDRESS` when it is not known.
    returns_to: u64,
    /// Instructions of the call itself and of those below it that are over.
    own: u64,
    below: u64,
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
#[derive(Clone, Copy)]
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

/// In the flags until the end: the call is inside another one of its function.
const INSIDE: u8 = 128;
const NO_ADDRESS: u64 = u64::MAX;
/// Calls inside functions that are remembered; code that never returns from them would make them endless.
const MAX_LOCALS: usize = 1 << 12;

#[derive(Default)]
pub struct Stack {
    frames: Vec<Frame>,
    interruptions: Vec<Interruption>,
    landings: Vec<Landing>,
    locals: Vec<Local>,
    /// Instructions of the innermost call since the last change of the stack.
    own: u64,
    /// The calls of this gapless stretch of which no caller is known and which are over, and their instructions.
    roots: Vec<u32>,
    roots_total: u64,
    /// When the first of them began.
    begin_tsc: u64,
    clock: Clock,
    rows: u32,
    /// Where stretches begin in which a caller was found, and the rows of those callers.
    stretch: u32,
    found: Vec<(u32, u32)>,
    pub functions: Functions,
    pub records: Records,
}

impl Stack {
    #[inline(always)]
    pub fn run(&mut self, instructions: u32) {
        self.own += u64::from(instructions);
        self.clock.run(instructions);
    }

    #[inline(always)]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The function of the innermost call.
    #[inline(always)]
    pub fn function(&self) -> Option<u32> {
        self.frames.last().map(|frame| frame.function)
    }

    pub fn role(&self) -> Role {
        self.function().map_or(Role::Plain, |function| self.functions.sums[function as usize].role)
    }

    /// Whether the innermost call returns to `address`.
    #[inline(always)]
    pub fn returns_to(&self, address: u64) -> bool {
        self.frames.last().is_some_and(|frame| frame.returns_to == address)
    }

    /// Whether a return to `address` ends the innermost call and nothing else.
    #[inline(always)]
    pub fn is_over(&self, address: u64) -> bool {
        self.locals.is_empty() && self.returns_to(address)
    }

    pub fn interruption(&mut self) -> Option<&mut Interruption> {
        let asynchronous = self.frames.last().is_some_and(|frame| frame.asynchronous);
        self.interruptions.last_mut().filter(|_| asynchronous)
    }

    /// What runs from now on is over at `tsc`.
    #[inline(always)]
    pub fn advance(&mut self, tsc: u64) {
        self.clock.advance(tsc, &mut self.records, &mut self.functions.sums);
    }

    /// Nothing runs until `tsc`.
    pub fn skip(&mut self, tsc: u64) {
        self.clock.skip(tsc, &mut self.records, &mut self.functions.sums);
    }

    /// Begins a gapless stretch.
    pub fn begin(&mut self, tsc: u64) {
        self.forget_roots();
        self.begin_tsc = tsc;
    }

    fn forget_roots(&mut self) {
        self.roots.clear();
        self.roots_total = 0;
        self.stretch = self.rows;
    }

    #[inline(always)]
    pub fn push(&mut self, entry: &Entry) {
        let before = self.frames.last().map_or(NOBODY, |frame| frame.timed);
        let row = self.open(entry, self.clock.is_unknown());
        self.clock.begins(row, before, &mut self.records, &mut self.functions.sums);
    }

    /// Ends the innermost call.
    #[inline(always)]
    pub fn pop(&mut self, flags: u8) {
        let Some(Frame { row, function, timed, asynchronous, own, below, .. }) = self.frames.pop() else { return };
        let own = own + std::mem::take(&mut self.own);
        let total = own + below;
        let sums = &mut self.functions.sums[function as usize];
        sums.open -= 1;
        sums.calls += 1;
        sums.self_instructions += own;
        let mut flags = flags;
        let mut ended = function;
        if sums.open == 0 {
            sums.total_instructions += total;
        } else {
            flags |= INSIDE;
            ended = INNER;
        }
        let at = row as usize;
        self.records.instructions[at] = own;
        self.records.instructions_total[at] = total;
        if flags != 0 {
            self.records.flags[at] |= flags;
        }
        if asynchronous {
            self.interruptions.pop();
        }
        if !self.landings.is_empty() || !self.locals.is_empty() {
            self.forget_below();
        }
        self.clock.ends(row, timed, ended, &mut self.records, &mut self.functions.sums);
        match self.frames.last_mut() {
            Some(frame) => frame.below += total,
            None => {
                self.roots.push(row);
                self.roots_total += total;
            }
        }
    }

    /// The innermost call goes over into another one, which returns to where it would have.
    pub fn replace(&mut self, entry: &Entry) {
        let returns_to = self.frames.last().map(|frame| frame.returns_to).filter(|&address| address != NO_ADDRESS);
        let interruption = self.interruption().copied();
        self.pop(0);
        self.push(&Entry { returns_to, interruption, ..*entry });
    }

    /// Ends calls until `depth` are left; all of them are unwound.
    pub fn unwind(&mut self, depth: usize) {
        while self.frames.len() > depth {
            self.pop(UNWOUND);
        }
    }

    /// Ends the call that returns to `address`, unwinding those below it. False when there is none.
    pub fn return_to(&mut self, address: u64) -> bool {
        let returns = |frame: &Frame| frame.returns_to == address && address != NO_ADDRESS;
        let Some(index) = self.frames.iter().rposition(returns) else { return false };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Ends the asynchronous call that interrupted `address`. False when there is none.
    pub fn resume(&mut self, address: u64) -> bool {
        let resumes = |known: &Interruption| known.resumes == address || known.repeats == address;
        let Some(last) = self.interruptions.iter().rposition(resumes) else { return false };
        let asynchronous = self.frames.iter().enumerate().filter(|(_, frame)| frame.asynchronous);
        let Some((index, _)) = asynchronous.into_iter().nth(last) else { return false };
        self.unwind(index + 1);
        self.pop(0);
        true
    }

    /// Unwinds to the innermost call of `function`. False when none is open.
    pub fn unwind_to(&mut self, function: u32) -> bool {
        if self.functions.sums[function as usize].open == 0 {
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
        let row = self.open(&entry, self.begin_tsc == 0);
        self.records.start_tsc[row as usize] = self.begin_tsc;
        self.found.push((self.stretch, row));
        if let Some(frame) = self.frames.last_mut() {
            frame.below = std::mem::take(&mut self.roots_total);
        }
        for root in self.roots.drain(..) {
            self.records.parent[root as usize] = row;
        }
    }

    /// Ends the stretch with all calls that are open.
    pub fn end(&mut self) {
        while !self.frames.is_empty() {
            self.pop(END_TRUNCATED);
        }
        self.forget_roots();
    }

    /// Whether no call was told yet.
    pub fn is_new(&self) -> bool {
        self.rows == 0
    }

    /// The calls, complete, and the functions. What was found out about the functions stays for another stream.
    pub fn finish(&mut self) -> (Records, Vec<FunctionTotals>) {
        self.end();
        self.clock.finish(&mut self.records, &mut self.functions.sums);
        self.records.resize(self.rows as usize);
        self.place_found();
        // Another stream may have about as many: its columns need not move while they grow.
        let room = Records::with_capacity(self.rows as usize + self.rows as usize / 8 + GROWTH);
        let mut records = std::mem::replace(&mut self.records, room);
        records.flags.iter_mut().for_each(|flags| *flags &= !INSIDE);
        let (functions, places) = self.functions.take();
        if places.iter().zip(0..).any(|(&place, number)| place != number) {
            records.function.iter_mut().for_each(|function| *function = places[*function as usize]);
        }
        self.landings.clear();
        self.locals.clear();
        self.found.clear();
        (self.rows, self.stretch, self.begin_tsc, self.own) = (0, 0, 0, 0);
        (records, functions)
    }

    /// What ran in a stretch before a caller was found is below it: deeper, and inside it.
    fn place_found(&mut self) {
        let found = std::mem::take(&mut self.found);
        let mut inside = vec![u32::MAX; self.functions.sums.len()];
        for of_stretch in found.chunk_by(|one, other| one.0 == other.0) {
            let (begin, last) = (of_stretch[0].0, of_stretch[of_stretch.len() - 1].1);
            let mut callers = of_stretch.iter().rev().map(|&(_, row)| row).peekable();
            let mut deeper = 0;
            for row in (begin..=last).rev() {
                let at = row as usize;
                let function = self.records.function[at];
                self.records.depth[at] += deeper;
                if inside[function as usize] == begin && self.records.flags[at] & INSIDE == 0 {
                    self.records.flags[at] |= INSIDE;
                    let sums = &mut self.functions.sums[function as usize];
                    sums.total_instructions -= self.records.instructions_total[at];
                    sums.total_ticks -= self.records.ticks(at);
                }
                if callers.next_if_eq(&row).is_some() {
                    deeper += 1;
                    inside[function as usize] = begin;
                }
            }
            let callers: Vec<u32> = of_stretch.iter().rev().map(|&(_, row)| row).collect();
            // Calls behind the last of them may be inside it: up to where the next stretch begins.
            let end = self.records.parent.len();
            let end = (last as usize + 1..end).find(|&row| self.records.depth[row] == 0).unwrap_or(end);
            self.records.bring_forward(begin as usize..last as usize + 1, &callers, end);
        }
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

    #[inline(always)]
    fn open(&mut self, entry: &Entry, timeless: bool) -> u32 {
        let row = self.rows;
        self.rows += 1;
        let depth = self.frames.len() as u32;
        let parent = match self.frames.last_mut() {
            Some(frame) => {
                frame.own += std::mem::take(&mut self.own);
                frame.row
            }
            None => NO_PARENT,
        };
        let Entry { function, call_address, target, flags, .. } = *entry;
        self.records.open(row, &Opening { function, call_address, target, flags, parent, depth });
        let sums = &mut self.functions.sums[function as usize];
        sums.open += 1;
        if sums.role == Role::SetJump {
            self.remember_landing(entry.returns_to);
        }
        self.interruptions.extend(entry.interruption);
        self.frames.push(Frame {
            row,
            function,
            timed: if timeless { NOBODY } else { function },
            asynchronous: entry.interruption.is_some(),
            returns_to: entry.returns_to.unwrap_or(NO_ADDRESS),
            own: 0,
            below: 0,
        });
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
    fn forget_below(&mut self) {
        let depth = self.frames.len();
        while self.landings.last().is_some_and(|landing| landing.depth > depth) {
            self.landings.pop();
        }
        while self.locals.last().is_some_and(|local| local.depth > depth) {
            self.locals.pop();
        }
    }
}

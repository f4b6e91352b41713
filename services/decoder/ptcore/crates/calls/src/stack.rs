//! The calls that are open, and their accounts.

use crate::clock::{Clock, INNER};
use crate::functions::{FunctionKey, FunctionTotals, Functions};
use crate::gathered::Gathered;
use crate::losses::LossRecord;
use crate::output::{Batch, Output};
use crate::records::{BEGIN_TRUNCATED, END_TRUNCATED, UNWOUND};
use crate::window::{Opening, Window, NOBODY};
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

const NO_ADDRESS: u64 = u64::MAX;
/// Calls inside functions that are remembered; code that never returns from them would make them endless.
const MAX_LOCALS: usize = 1 << 12;
/// Calls that may be open where calls are handed out; with more of them the stretch ends.
const MOST_OPEN: usize = 1 << 20;
/// Calls leave the window when there are so many new ones: it stays in the cache.
const WINDOW: usize = 1 << 14;
/// Losses are handed out when there are this many.
const MOST_LOSSES: usize = 1 << 12;

pub struct Stack<O> {
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
    /// Counts stretches.
    stretch: u16,
    pub functions: Functions,
    pub window: Window,
    pub gathered: Gathered,
    /// By function: the number that those who take the calls know it by. And the functions by that number, of which the
    /// first ones were delivered.
    told: Vec<u32>,
    named: Vec<u32>,
    delivered: usize,
    pub losses: Vec<LossRecord>,
    /// Of the last block.
    pub epoch: u32,
    pub output: O,
}

impl<O: Output> Stack<O> {
    pub fn new(output: O) -> Self {
        Stack {
            frames: Vec::new(),
            interruptions: Vec::new(),
            landings: Vec::new(),
            locals: Vec::new(),
            own: 0,
            roots: Vec::new(),
            roots_total: 0,
            begin_tsc: 0,
            clock: Clock::default(),
            stretch: 1,
            functions: Functions::default(),
            window: Window::default(),
            gathered: Gathered::default(),
            told: Vec::new(),
            named: Vec::new(),
            delivered: 0,
            losses: Vec::new(),
            epoch: 0,
            output,
        }
    }

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
        self.clock.advance(tsc, &mut self.window.columns, &mut self.functions.sums);
    }

    /// Nothing runs until `tsc`.
    pub fn skip(&mut self, tsc: u64) {
        self.clock.skip(tsc, &mut self.window.columns, &mut self.functions.sums);
    }

    /// Begins a gapless stretch.
    pub fn begin(&mut self, tsc: u64) {
        self.forget_roots();
        self.begin_tsc = tsc;
    }

    fn forget_roots(&mut self) {
        self.roots.clear();
        self.roots_total = 0;
        self.clock.leave_stretch();
        self.window.begin();
        self.stretch = self.stretch.wrapping_add(1);
        if self.stretch == 0 {
            self.functions.sums.iter_mut().for_each(|sums| sums.stretch = 0);
            self.stretch = 1;
        }
    }

    #[inline(always)]
    pub fn push(&mut self, entry: &Entry) {
        let before = self.frames.last().map_or(NOBODY, |frame| frame.timed);
        let row = self.open(entry, self.clock.is_unknown());
        self.clock.begins(row, before, &mut self.window.columns, &mut self.functions.sums);
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
        let mut ended = function;
        if sums.open == 0 {
            if sums.stretch != self.stretch {
                (sums.stretch, sums.before) = (self.stretch, (sums.total_instructions, sums.total_ticks));
            }
            sums.total_instructions += total;
        } else {
            ended = INNER;
        }
        let (at, columns) = (row as usize, &mut self.window.columns);
        columns.instructions[at] = own;
        columns.instructions_total[at] = total;
        if flags != 0 {
            columns.flags[at] |= flags;
        }
        if asynchronous {
            self.interruptions.pop();
        }
        if !self.landings.is_empty() || !self.locals.is_empty() {
            self.forget_below();
        }
        self.clock.ends(row, timed, ended, &mut self.window.columns, &mut self.functions.sums);
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
        if self.window.is_full() {
            self.forget_roots();
        }
        let entry =
            Entry { function, call_address: 0, target, returns_to: None, flags: BEGIN_TRUNCATED, interruption: None };
        let row = self.open(&entry, self.begin_tsc == 0);
        self.window.columns.start_tsc[row as usize] = self.begin_tsc;
        self.window.came_late(row, &self.roots);
        self.roots.clear();
        if let Some(frame) = self.frames.last_mut() {
            frame.below = std::mem::take(&mut self.roots_total);
        }
        // What ran in the stretch up to now is inside the call.
        let sums = &mut self.functions.sums[function as usize];
        if sums.stretch == self.stretch {
            (sums.total_instructions, sums.total_ticks) = sums.before;
            self.clock.are_inner(function);
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
        self.window.rows == 0
    }

    /// Ends all calls and hands them out; returns what the functions add up to. What was found out about the functions
    /// stays for another stream.
    pub fn finish(&mut self) -> Vec<FunctionTotals> {
        self.end();
        self.clock.finish(&mut self.window.columns, &mut self.functions.sums);
        self.hand_out(true);
        self.deliver();
        self.gathered.clear(0);
        self.window.reset();
        self.delivered = 0;
        let totals = self.functions.take(&self.named);
        self.told.clear();
        self.named.clear();
        self.landings.clear();
        self.locals.clear();
        (self.stretch, self.begin_tsc, self.own) = (1, 0, 0);
        totals
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        // To look at the calls that are open takes no longer than as many new ones took.
        let most = self.output.rows();
        let new = most.min(WINDOW.max(self.frames.len()));
        if self.window.new_rows() >= new {
            if self.frames.len() > MOST_OPEN && most != usize::MAX {
                self.end();
            }
            self.hand_out(false);
            if self.gathered.records.len() >= most {
                self.deliver();
            }
        }
        if !self.window.has_room() {
            self.window.grow(new);
        }
    }

    /// Calls that are over leave the window, with their times. `last`: no more will come.
    fn hand_out(&mut self, last: bool) {
        let open = self.frames.iter().map(|frame| frame.row);
        let mut kept: Vec<u32> = open.chain(self.clock.waiting_rows()).collect();
        kept.sort_unstable();
        kept.dedup();
        let place = |row: u32| kept.partition_point(|&other| other < row) as u32;
        self.clock.move_rows(place);
        self.frames.iter_mut().for_each(|frame| frame.row = place(frame.row));
        self.roots.retain(|root| kept.binary_search(root).is_ok());
        self.roots.iter_mut().for_each(|root| *root = place(*root));
        let more = if last { 0 } else { self.output.rows() };
        self.gathered.make_room(self.window.rows as usize, more);
        let Gathered { records, found, .. } = &mut self.gathered;
        let gathered = records.len();
        self.window.hand_out(&kept, records, found);
        self.told.resize(self.functions.sums.len(), NOBODY);
        for function in &mut records.columns.function[gathered..] {
            let number = &mut self.told[*function as usize];
            if *number == NOBODY {
                *number = self.named.len() as u32;
                self.named.push(*function);
            }
            *function = *number;
        }
    }

    /// The output takes what was gathered.
    fn deliver(&mut self) {
        self.gathered.place(self.window.kept());
        let named = &self.named[self.delivered..];
        let functions: Vec<FunctionKey> = named.iter().map(|&name| self.functions.key(name)).collect();
        self.delivered = self.named.len();
        let Gathered { records, found, .. } = &mut self.gathered;
        let (calls, losses) = (records, &mut self.losses);
        self.output.take(Batch { calls, functions: &functions, found, losses, epoch: self.epoch });
        self.gathered.clear(self.window.next());
        self.losses.clear();
    }

    /// A loss that is complete, but for the last one.
    pub fn lose(&mut self, loss: LossRecord) {
        if self.losses.len() >= MOST_LOSSES && self.output.rows() != usize::MAX {
            self.hand_out(false);
            self.deliver();
        }
        self.losses.push(loss);
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
        if !self.window.has_room() {
            self.make_room();
        }
        let depth = self.frames.len() as u32;
        let parent = match self.frames.last_mut() {
            Some(frame) => {
                frame.own += std::mem::take(&mut self.own);
                frame.row
            }
            None => NOBODY,
        };
        let Entry { function, call_address, target, flags, .. } = *entry;
        let row = self.window.open(&Opening { function, call_address, target, flags, parent, depth });
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

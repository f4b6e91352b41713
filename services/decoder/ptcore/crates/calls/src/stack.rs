//! The calls that are open, and their accounts.

mod awaited;
mod fits;
mod frame;
mod handing_out;
mod landings;
mod outer;
mod part;
mod placing;
mod remembered;
mod steps;
mod stitching;
mod stretch;
mod suspended;
mod unwinding;

use crate::clock::{Clock, INNER};
use crate::functions::{FunctionTotals, Functions};
use crate::gathered::Gathered;
use crate::losses::LossRecord;
use crate::output::Output;
use crate::records::TAIL_CALL;
use crate::window::{Opening, Window, NOBODY};
use awaited::Awaited;
pub use frame::{Entry, Frame, Interruption, NO_ADDRESS};
use frame::{HOLDS, INTERRUPTED};
use handing_out::MOST_OPEN;
pub use landings::Local;
pub use outer::Outer;
use pt_image::Role;
pub use remembered::Landings;
use suspended::Suspended;

/// The stack of calls of one thread, with what its calls add up to and where those that are over go.
pub struct Stack<O> {
    pub frames: Vec<Frame>,
    pub interruptions: Vec<Interruption>,
    pub landings: Landings,
    pub locals: Vec<Local>,
    awaited: Awaited,
    /// Instructions that had run when nobody was on the stack any more.
    alone_from: u64,
    /// With more open calls the stretch ends.
    most_open: usize,
    /// Depth of the outermost call that is open.
    base: u32,
    /// What lies around a part of a stream that is decoded by itself.
    pub outer: Option<Box<Outer>>,
    suspended: Option<Box<Suspended>>,
    /// What is open was suspended meanwhile: what ran before is of another stretch.
    is_resumed: bool,
    /// The calls of this gapless stretch of which no caller is known and which are over, and their instructions.
    roots: Vec<u32>,
    pub roots_total: u64,
    /// When the first of them began.
    begin_tsc: u64,
    pub clock: Clock,
    /// Counts stretches.
    pub stretch: u16,
    pub functions: Functions,
    pub window: Window,
    pub gathered: Gathered,
    /// By function: the number that those who take the calls know it by. And the functions by that number, of which the
    /// first ones were delivered.
    pub told: Vec<u32>,
    pub named: Vec<u32>,
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
            landings: Landings::default(),
            locals: Vec::new(),
            awaited: Awaited::default(),
            alone_from: 0,
            most_open: if output.rows() == usize::MAX { usize::MAX } else { MOST_OPEN },
            base: 0,
            outer: None,
            suspended: None,
            is_resumed: false,
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
        self.clock.ran += u64::from(instructions);
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

    /// That of the call around the innermost one.
    pub fn outer_function(&self) -> Option<u32> {
        self.frames.iter().nth_back(1).map(|frame| frame.function)
    }

    pub fn role(&self) -> Role {
        self.function().map_or(Role::Plain, |function| self.functions.role(function))
    }

    /// Whether a jump out of the innermost call leads to other calls than those around it.
    pub fn switches(&mut self) -> bool {
        let role = |frame: &Frame| self.functions.role(frame.function);
        let jumps = self.frames.iter().rev().map(role).find(|&role| role != Role::LongJump);
        if jumps.is_none() {
            self.not_known_here();
        }
        jumps == Some(Role::Switch)
    }

    /// Whether it need not be what called the innermost call that goes on when it returns.
    pub fn returns_elsewhere(&self) -> bool {
        self.role() == Role::Switch
    }

    /// Whether the innermost call returns to `address`.
    #[inline(always)]
    pub fn returns_to(&self, address: u64) -> bool {
        self.frames.last().is_some_and(|frame| frame.returns_to == address)
    }

    /// Whether the innermost call returns to `address`, to which it jumps.
    pub fn jumps_back_to(&mut self, address: u64) -> bool {
        if self.frames.len() == 1 {
            // Where the outermost call returns to is not known.
            self.does_not_return(address);
        }
        self.returns_to(address)
    }

    /// Where what called the innermost call goes on, when that is known.
    pub fn caller_goes_on_at(&self) -> Option<u64> {
        self.frames.last().map(|frame| frame.returns_to).filter(|&address| address != NO_ADDRESS)
    }

    pub fn interruption(&mut self) -> Option<&mut Interruption> {
        let asynchronous = self.frames.last().is_some_and(Frame::is_asynchronous);
        self.interruptions.last_mut().filter(|_| asynchronous)
    }

    /// What runs from now on is over at `tsc`.
    #[inline(always)]
    pub fn advance(&mut self, tsc: u64) {
        if self.clock.advance(tsc) {
            self.give_times();
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn give_times(&mut self) {
        self.clock.give_times(&mut self.window.pages, &mut self.functions.sums);
    }

    /// What ran up to now is over at `tsc`, and what runs from now on begins there.
    pub fn end_stretch_of_time(&mut self, tsc: u64) {
        self.clock.end_stretch(tsc, &mut self.window.pages, &mut self.functions.sums);
    }

    /// Nothing runs until `tsc`.
    pub fn skip(&mut self, tsc: u64) {
        if self.clock.skip(tsc) {
            self.give_times();
        }
    }

    pub fn push(&mut self, entry: &Entry) {
        let timeless = self.clock.is_unknown();
        let (row, before) = self.open(entry, timeless);
        self.clock.begins(row, before, &mut self.window.pages, &mut self.functions.sums);
    }

    /// A call begins that interrupts what runs.
    pub fn push_interruption(&mut self, entry: &Entry, interruption: Interruption) {
        self.push(entry);
        self.interruptions.push(interruption);
        if let Some(frame) = self.frames.last_mut() {
            frame.marks |= INTERRUPTED;
        }
    }

    /// The innermost call goes over into another one, which returns to where it would have.
    pub fn replace(&mut self, function: u32, call_address: u64, target: u64) {
        let returns_to = self.frames.last().map_or(NO_ADDRESS, |frame| frame.returns_to);
        let entry = Entry { function, call_address, target, returns_to, flags: TAIL_CALL };
        if let Some(&mut interruption) = self.interruption() {
            self.pop(0);
            return self.push_interruption(&entry, interruption);
        }
        self.pop(0);
        self.push(&entry);
    }

    /// Ends the innermost call.
    pub fn pop(&mut self, flags: u8) {
        let Some(Frame { row, function, timed, marks, began, below, .. }) = self.frames.pop() else { return };
        let total = self.clock.ran - began;
        let own = total - below;
        let counts = self.functions.sums[function as usize].end_call(total, own, self.stretch);
        let ended = if counts { function } else { INNER };
        let (page, at) = self.window.pages.at(row);
        page.instructions[at] = own;
        page.instructions_total[at] = total;
        if flags != 0 {
            page.flags[at] |= flags;
        }
        if marks & INTERRUPTED != 0 {
            self.interruptions.pop();
        }
        if marks & HOLDS != 0 {
            self.forget_below();
        }
        self.clock.ends(row, timed, ended, &mut self.window.pages, &mut self.functions.sums);
        match self.frames.last_mut() {
            Some(frame) => frame.below += total,
            None => {
                self.roots.push(row);
                self.roots_total += total;
                self.alone_from = self.clock.ran;
            }
        }
    }

    /// The row of the call, and whose own time passed up to now.
    fn open(&mut self, entry: &Entry, timeless: bool) -> (u32, u32) {
        if !self.window.is_ready() {
            self.make_room();
        }
        let depth = self.base + self.frames.len() as u32;
        let (parent, before, began) = match self.frames.last() {
            Some(frame) => (frame.row, frame.timed, self.clock.ran),
            None => (self.outermost(), NOBODY, self.alone_from),
        };
        let Entry { function, call_address, target, returns_to, flags } = *entry;
        let addresses = self.output.takes_addresses();
        let row = self.window.open(&Opening { function, call_address, target, flags, parent, depth }, addresses);
        let sums = &mut self.functions.sums[function as usize];
        sums.open += 1;
        let role = sums.role;
        if role == Role::SetJump {
            self.remember_landing(returns_to);
        }
        let timed = if timeless { NOBODY } else { function };
        self.frames.push(Frame { row, function, timed, marks: Frame::marks_of(role), returns_to, began, below: 0 });
        (row, before)
    }

    /// Whether no call was told yet.
    pub fn is_new(&self) -> bool {
        self.window.rows == 0
    }

    /// Ends all calls and hands them out; returns what the functions add up to. What was found out about the functions
    /// stays for another stream.
    pub fn finish(&mut self) -> Vec<FunctionTotals> {
        self.end();
        let timed = self.clock.is_timed();
        self.clock.finish(&mut self.window.pages, &mut self.functions.sums);
        self.hand_out(true);
        self.deliver();
        self.gathered.clear(0);
        self.window.reset(timed);
        self.delivered = 0;
        let totals = self.functions.take(&self.named);
        self.told.clear();
        self.named.clear();
        self.landings = Landings::default();
        self.locals.clear();
        (self.stretch, self.begin_tsc, self.alone_from) = (1, 0, self.clock.ran);
        totals
    }
}

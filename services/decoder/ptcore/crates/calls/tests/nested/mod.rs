//! Programs whose calls are known: functions that call each other, a kernel that they call and that interrupts them, and signals.

mod stops;
mod turns;

use crate::machine::{Branches, Random};
use crate::support::kernel::ip;
use crate::support::Sections;
use pt_calls::{ASYNCHRONOUS, TAIL_CALL};
use pt_flow::is_kernel;
use pt_packet::writer::write;
use pt_packet::{Execution, Ip, Packet};
use std::ops::Range;
pub use turns::{Begins, Stay, SCHEDULER};

const SIZE: u64 = 0x100;
const PROGRAM: u64 = 0x10_0000;
const KERNEL: u64 = 0xffff_8000_0020_0000;
/// Functions of each of the two. The kernel's first ones are what it is entered by.
const FUNCTIONS: usize = 24;
const ENTRIES: usize = 8;
/// What signal handlers return to, in the midst of a function of its own.
const RESTORER: u64 = PROGRAM + SIZE * FUNCTIONS as u64 + 0x10;

/// What a function consists of: slots, each with a branch over what it may call, and a last one with its end.
const SLOT: u64 = 24;
const SLOTS: u64 = 8;
const END: u64 = SLOT * SLOTS;

/// Calls beyond this depth only return.
const DEEP: usize = 30;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Where its function begins.
    pub function: u64,
    pub parent: Option<usize>,
    /// What it is known to lie in without its caller.
    pub inside: Option<usize>,
    pub began: u64,
    pub ended: u64,
    pub flags: u8,
}

struct Frame {
    call: usize,
    /// Where what is around it goes on.
    resumes: u64,
}

/// How often what is unusual happens, once in so many instructions; 0 for never.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// The kernel is traced as well.
    pub kernel: bool,
    pub interrupts: usize,
    /// Once in so many ends of system calls and interrupts.
    pub signals: usize,
    pub compressed: bool,
    pub psb_bytes: usize,
    /// Tracing ends and begins in the kernel's scheduler.
    pub stops: bool,
    /// Targets stand behind branches that follow them (SDM section "Deferred TIPs").
    pub deferred: bool,
}

pub struct Nested {
    pub code: Sections,
    pub stream: Vec<u8>,
    pub stays: Vec<Stay>,
    /// In the order in which they began.
    pub calls: Vec<Call>,
    /// What the kernel ran between two instructions of the program.
    pub of_kernel: Vec<Range<u64>>,
    random: Random,
    habits: Habits,
    frames: Vec<Frame>,
    compressible: Vec<u64>,
    branches: Branches,
    /// Targets behind the branches that are held back.
    targets: Vec<u64>,
    ip: u64,
    ran: u64,
    last_psb: usize,
    /// Where the outermost call begins.
    root: u64,
    /// The kernel runs, and where it was to go on.
    waits: Option<u64>,
    /// Another thread goes on.
    switched: bool,
    since: Option<stops::Since>,
    gone: Vec<usize>,
}

pub fn function_of(address: u64) -> u64 {
    address & !(SIZE - 1)
}

impl Nested {
    pub fn new(seed: u64, habits: Habits) -> Nested {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut code = Sections::default();
        let last = last_function(habits);
        for base in [PROGRAM, KERNEL] {
            let bytes = (0..=FUNCTIONS).flat_map(|number| function(base, number, last, &mut random)).collect();
            code.0.insert(base, bytes);
        }
        if habits.stops {
            stops::put(code.0.get_mut(&KERNEL).expect("code"));
        }
        let root = Call { function: PROGRAM, parent: None, inside: None, began: 0, ended: 0, flags: 0 };
        Nested {
            code,
            stream: Vec::new(),
            stays: Vec::new(),
            calls: vec![root],
            of_kernel: Vec::new(),
            random,
            habits,
            frames: vec![Frame { call: 0, resumes: 0 }],
            compressible: Vec::new(),
            branches: Branches::default(),
            targets: Vec::new(),
            ip: PROGRAM,
            ran: 0,
            last_psb: 0,
            root: PROGRAM,
            waits: None,
            switched: false,
            since: None,
            gone: Vec::new(),
        }
    }

    /// Runs at least so many instructions, and until the outermost call is about to return.
    pub fn run(&mut self, instructions: u64) {
        self.psb(false);
        self.packet(Packet::TipPge(ip(PROGRAM)));
        while self.ran < instructions || self.frames.len() > 1 {
            self.step(self.ran >= instructions);
            if let Some(resumes) = self.waits.take() {
                self.go_on(resumes);
            }
        }
        self.end_run();
    }

    fn end_run(&mut self) {
        self.flush();
        self.packet(Packet::Fup(ip(self.ip)));
        self.packet(Packet::TipPgd(Ip::SUPPRESSED));
        self.calls[0].ended = self.ran;
        self.forget_gone();
    }

    fn step(&mut self, ends: bool) {
        if self.stream.len() - self.last_psb > self.habits.psb_bytes {
            self.psb(true);
        }
        if !ends && self.frames.len() < DEEP && self.once_in(self.habits.interrupts) {
            self.flush();
            self.packet(Packet::Fup(ip(self.ip)));
            if !self.habits.kernel {
                return self.pass_kernel(self.ip);
            }
            let to = self.entry();
            self.begin(to, ASYNCHRONOUS, self.ip);
            return self.tip(to);
        }
        let place = self.ip - function_of(self.ip);
        let bytes = &self.code.0.range(..=self.ip).next_back().expect("code").1;
        let base = if is_kernel(self.ip) { KERNEL } else { PROGRAM };
        let at = (self.ip - base) as usize;
        let bytes: [u8; 5] = bytes[at..at + 5].try_into().expect("five bytes");
        match bytes {
            [0x74, distance, ..] => {
                let outermost_ends = place == END && self.frames.len() == 1;
                // Where tracing stops in the kernel, programs are to go on behind it.
                let calls = if self.habits.stops { self.random.below(8) == 0 } else { self.random.below(3) != 0 };
                let skips = ends || self.frames.len() >= DEEP || !calls;
                // The outermost call goes on with itself rather than return.
                let taken = if outermost_ends { false } else { skips };
                self.bit(taken);
                self.retire(self.ip + 2 + if taken { u64::from(distance) } else { 0 });
            }
            [0xe8, a, b, c, d] => {
                let next = self.ip + 5;
                let to = next.wrapping_add(i32::from_le_bytes([a, b, c, d]) as u64);
                self.call(to, next);
            }
            [0xff, 0xd0, ..] => {
                let to = self.any_function();
                self.call(to, self.ip + 2);
                self.tip(to);
            }
            [0xff, 0xe0, ..] => self.tail_call(),
            [0x0f, 0x05, ..] if !self.habits.kernel => {
                self.flush();
                self.ran += 1;
                self.pass_kernel(self.ip + 2);
            }
            [0x0f, 0x05, ..] => {
                let (to, next) = (self.entry(), self.ip + 2);
                self.retire(to);
                self.begin(to, 0, next);
                self.tip(to);
            }
            [0x48, 0xcf, ..] => self.leave_kernel(),
            [0x0f, 0x30, ..] => self.stop_in_scheduler(),
            [0x0f, 0x22, 0xd8, ..] => {
                self.retire(self.ip + 3);
                self.switched = true;
            }
            [0xc3, ..] => self.give_back(),
            _ => self.retire(self.ip + 1),
        }
    }

    fn retire(&mut self, next: u64) {
        self.ran += 1;
        self.ip = next;
    }

    fn begin(&mut self, to: u64, flags: u8, resumes: u64) {
        let outside = self.frames.last().map(|frame| frame.call);
        if flags & TAIL_CALL == 0
            && is_kernel(to)
            && !outside.is_some_and(|outside| is_kernel(self.calls[outside].function))
        {
            self.of_kernel.push(self.ran..self.ran);
        }
        let (parent, inside) = if self.is_cut() { (None, outside) } else { (outside, None) };
        self.calls.push(Call { function: function_of(to), parent, inside, began: self.ran, ended: 0, flags });
        self.frames.push(Frame { call: self.calls.len() - 1, resumes });
        self.ip = to;
    }

    /// The innermost call is over; where what is around it goes on.
    fn end(&mut self) -> u64 {
        let Frame { call, resumes } = self.frames.pop().expect("a call");
        self.calls[call].ended = self.ran;
        resumes
    }

    fn call(&mut self, to: u64, next: u64) {
        self.retire(to);
        self.begin(to, 0, next);
        self.compressible.push(next);
        if self.compressible.len() > 64 {
            self.compressible.remove(0);
        }
    }

    fn tail_call(&mut self) {
        let outermost = self.frames.len() == 1;
        // What ends an interruption returns otherwise than a function.
        let to = if outermost {
            self.root
        } else if self.ip.wrapping_sub(KERNEL) < SIZE * ENTRIES as u64 {
            self.entry()
        } else {
            self.any_function()
        };
        self.retire(to);
        // A function that begins anew is no call.
        let own = self.frames.last().map(|frame| self.calls[frame.call].function);
        if own != Some(to) {
            let resumes = self.end();
            self.begin(to, TAIL_CALL, resumes);
        }
        self.tip(to);
    }

    fn give_back(&mut self) {
        self.ran += 1;
        let to = self.end();
        self.is_back();
        if to == RESTORER {
            // What it was called by is what it interrupted.
            let interrupted = self.frames.pop().expect("a signal");
            self.begin(RESTORER, TAIL_CALL, interrupted.resumes);
        }
        self.ip = to;
        match self.compressible.pop() {
            Some(known) if self.habits.compressed && known == to => self.bit(true),
            _ => {
                self.tip(to);
                // A bit behind it would be taken for the return.
                self.flush();
            }
        }
    }

    /// The kernel runs and is not traced.
    fn pass_kernel(&mut self, resumes: u64) {
        self.packet(Packet::TipPgd(Ip::SUPPRESSED));
        self.waits = Some(resumes);
    }

    fn go_on(&mut self, resumes: u64) {
        self.ip = self.goes_back_to(resumes);
        self.packet(Packet::TipPge(ip(self.ip)));
    }

    fn leave_kernel(&mut self) {
        self.ran += 1;
        let resumes = self.end();
        self.is_back();
        self.ip = self.goes_back_to(resumes);
        if let Some(last) = self.of_kernel.last_mut().filter(|_| !is_kernel(self.ip)) {
            last.end = self.ran;
        }
        self.tip(self.ip);
    }

    /// Where the kernel goes that was to go on there: mostly it does, or first to a handler of signals.
    fn goes_back_to(&mut self, resumes: u64) -> u64 {
        let mut to = resumes;
        let restorer = self.frames.last().is_some_and(|frame| self.calls[frame.call].function == function_of(RESTORER));
        if restorer && !is_kernel(to) && to == RESTORER + 2 {
            to = self.end();
        } else if !is_kernel(to) && self.frames.len() < DEEP && self.once_in(self.habits.signals) {
            // The handler returns to the restorer, whose end goes on here. Where it was interrupted itself in front of its first
            // instruction nothing would tell that it begins.
            let mut handler = resumes;
            while handler == resumes || self.frames.iter().any(|frame| frame.resumes == handler) {
                handler = PROGRAM + SIZE * (1 + self.random.below(FUNCTIONS - 1)) as u64;
            }
            let parent = self.frames.last().map(|frame| frame.call);
            self.frames.push(Frame { call: parent.expect("a call"), resumes: to });
            self.begin(handler, ASYNCHRONOUS, RESTORER);
            to = handler;
        }
        to
    }

    fn any_function(&mut self) -> u64 {
        let (base, first) = if is_kernel(self.ip) { (KERNEL, ENTRIES) } else { (PROGRAM, 1) };
        base + SIZE * (first + self.random.below(last_function(self.habits) - first)) as u64
    }

    fn entry(&mut self) -> u64 {
        KERNEL + SIZE * self.random.below(ENTRIES) as u64
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.random.once_in(times)
    }

    fn bit(&mut self, taken: bool) {
        if self.branches.push(taken) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(packet) = self.branches.take() {
            self.packet(packet);
        }
        for to in std::mem::take(&mut self.targets) {
            self.packet(Packet::Tip(ip(to)));
        }
    }

    fn tip(&mut self, to: u64) {
        self.targets.push(to);
        if !self.habits.deferred || self.branches.is_empty() {
            self.flush();
        }
    }

    fn packet(&mut self, packet: Packet) {
        write(&mut self.stream, packet);
    }

    fn psb(&mut self, enabled: bool) {
        self.flush();
        self.last_psb = self.stream.len();
        self.compressible.clear();
        self.packet(Packet::Psb);
        self.packet(Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true });
        if enabled {
            self.packet(Packet::Fup(ip(self.ip)));
        }
        self.packet(Packet::Psbend);
    }
}

/// Behind those that any may call.
fn last_function(habits: Habits) -> usize {
    if habits.stops {
        FUNCTIONS - 2
    } else {
        FUNCTIONS
    }
}

/// Each slot: je over a call or system call and nops; nops.
fn function(base: u64, number: usize, last: usize, random: &mut Random) -> Vec<u8> {
    let at = base + SIZE * number as u64;
    let mut bytes = vec![0x90; SIZE as usize];
    let mut put = |place: u64, some: &[u8]| bytes[place as usize..][..some.len()].copy_from_slice(some);
    if base == PROGRAM && number == FUNCTIONS {
        put(RESTORER - at, &[0x0f, 0x05]);
        return bytes;
    }
    let first = if base == KERNEL { ENTRIES } else { 1 };
    for slot in (0..END).step_by(SLOT as usize) {
        put(slot, &[0x74, 14]);
        let next = at + slot + 7;
        let callee = base + SIZE * (first + random.below(last - first)) as u64;
        match random.below(4) {
            0 | 1 => put(slot + 2, &[&[0xe8][..], &(callee.wrapping_sub(next) as u32).to_le_bytes()].concat()),
            2 => put(slot + 2, &[0xff, 0xd0]),
            _ if base == PROGRAM => put(slot + 2, &[0x0f, 0x05]),
            _ => {}
        }
    }
    put(END, &[0x74, 2, 0xff, 0xe0]);
    put(END + 4, if base == KERNEL && number < ENTRIES { &[0x48, 0xcf] } else { &[0xc3] });
    bytes
}

//! A machine that runs programs made up at random and writes what a processor would.

use crate::support::Sections;
use pt_packet::writer::write;
use pt_packet::{Compression, Execution, Ip, Packet};
use std::collections::BTreeMap;

/// Functions of 256 bytes each, from here on.
const CODE: u64 = 0x10_0000;
const FUNCTIONS: usize = 128;
/// Those from here on may be a kernel's; that is where they are then.
const OF_KERNEL: usize = 96;
const KERNEL: u64 = 0xffff_8000_0000_0000;
const SIZE: u64 = 0x100;
/// Ticks of the TSC from one MTC to the next, and the crystal's counts in between.
const PERIOD: u64 = 84 * 8;

/// Marsaglia, "Xorshift RNGs" (2003).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        times != 0 && self.below(times) == 0
    }
}

/// Branches on their way to a TNT packet.
#[derive(Default)]
pub struct Branches {
    bits: u64,
    count: u8,
}

impl Branches {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the packet is full.
    pub fn push(&mut self, taken: bool) -> bool {
        self.bits = self.bits << 1 | u64::from(taken);
        self.count += 1;
        self.count == 6
    }

    pub fn take(&mut self) -> Option<Packet> {
        let Branches { bits, count } = std::mem::take(self);
        (count != 0).then_some(Packet::Tnt { bits, count })
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Cond(u64),
    Jump(u64),
    Call(u64),
    IndirectCall,
    IndirectJump,
    Return,
    System,
}

/// How often what is unusual happens, once in so many branches; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    pub exceptions: usize,
    pub interrupts: usize,
    pub signals: usize,
    pub overflows: usize,
    pub odd_returns: usize,
    pub cycles: bool,
    pub clock: bool,
    pub times: bool,
    pub compressed: bool,
    /// Targets stand behind branches that follow them (SDM section "Deferred TIPs").
    pub deferred: bool,
    /// Packets that tell what happened at an instruction.
    pub notes: usize,
    /// System calls, interrupts and signals lead into a kernel and out of it, which is traced as well.
    pub kernel: bool,
    /// Bytes from one PSB to the next.
    pub psb_bytes: usize,
}

pub struct Machine {
    pub code: Vec<u8>,
    kinds: BTreeMap<u64, (u64, Kind)>,
    random: Random,
    habits: Habits,
    pub stream: Vec<u8>,
    stack: Vec<u64>,
    /// How many returns were open where the kernel was entered, and where that goes on.
    entered: Vec<(usize, u64)>,
    /// Return addresses since the last PSB.
    compressible: Vec<u64>,
    branches: Branches,
    /// Targets behind the branches that are held back.
    targets: Vec<u64>,
    ip: u64,
    tsc: u64,
    cycles: u64,
    last_psb: usize,
}

pub const BASE: u64 = CODE;

fn entry(function: usize) -> u64 {
    CODE + SIZE * function as u64
}

impl Machine {
    pub fn new(seed: u64, habits: Habits) -> Self {
        let mut machine = Machine {
            code: vec![0x90; FUNCTIONS * SIZE as usize],
            kinds: BTreeMap::new(),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            habits,
            stream: Vec::new(),
            stack: Vec::new(),
            entered: Vec::new(),
            compressible: Vec::new(),
            branches: Branches::default(),
            targets: Vec::new(),
            ip: CODE,
            tsc: 1 << 20,
            cycles: 0,
            last_psb: 0,
        };
        (0..FUNCTIONS).for_each(|function| machine.program(function));
        machine
    }

    /// Slots of eight bytes: some instructions that do nothing, and one that may do something. Direct branches lead to
    /// functions further on, so that nothing runs for ever without a packet.
    fn program(&mut self, function: usize) {
        let stub = (4..=11).contains(&(entry(function) >> 8 & 63));
        let falls = ![OF_KERNEL, FUNCTIONS].contains(&(function + 1)) && self.random.once_in(4);
        for slot in 0..SIZE / 8 {
            let start = entry(function) + 8 * slot;
            // Whatever runs on ends with a return, there or in a function behind it.
            let nops = if slot == SIZE / 8 - 1 { 7 } else { self.random.below(3) as u64 };
            let at = start + nops;
            let end = if self.habits.kernel && function < OF_KERNEL { OF_KERNEL } else { FUNCTIONS };
            let further = entry((function + 1 + self.random.below(FUNCTIONS / 4)).min(end - 1));
            let last = function + FUNCTIONS / 4 >= end;
            let (bytes, kind): (Vec<u8>, _) = match self.random.below(12) {
                _ if stub && slot == 0 => (vec![0xff, 0xe0], Kind::IndirectJump),
                _ if slot == SIZE / 8 - 1 && falls => (vec![0x90], Kind::Plain),
                _ if slot == SIZE / 8 - 1 => (vec![0xc3], Kind::Return),
                0..=3 => {
                    let over = 1 + self.random.below((SIZE / 8 - 1 - slot) as usize) as u64;
                    let target = start + 8 * over;
                    (vec![0x74, (target - at - 2).min(127) as u8], Kind::Cond(at + 2 + (target - at - 2).min(127)))
                }
                4 | 5 if !last => (direct(0xe8, at, further), Kind::Call(further)),
                6 => (vec![0xff, 0xd0], Kind::IndirectCall),
                7 if !last && slot > 20 => (direct(0xe9, at, further), Kind::Jump(further)),
                8 if slot > 16 => (vec![0xff, 0xe0], Kind::IndirectJump),
                9 if slot > 10 => (vec![0xc3], Kind::Return),
                10 if slot > 24 => (vec![0x0f, 0x05], Kind::System),
                _ => (vec![0x90], Kind::Plain),
            };
            for byte in start..at {
                self.kinds.insert(byte, (1, Kind::Plain));
            }
            self.kinds.insert(at, (bytes.len() as u64, kind));
            for byte in at + bytes.len() as u64..start + 8 {
                self.kinds.insert(byte, (1, Kind::Plain));
            }
            let offset = (at - CODE) as usize;
            self.code[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        // A branch may lead into the middle of an instruction: only to its begin.
        let targets: Vec<_> = self.kinds.iter().filter_map(|(&at, &(_, kind))| Some((at, cond(kind)?))).collect();
        for (at, target) in targets {
            let (&begin, _) = self.kinds.range(..=target).next_back().expect("an instruction");
            self.kinds.insert(at, (2, Kind::Cond(begin)));
            self.code[(at + 1 - CODE) as usize] = (begin - at - 2) as u8;
        }
    }

    /// Runs so many branches.
    pub fn run(&mut self, branches: usize) {
        self.psb(false);
        self.packet(Packet::TipPge(self.told(self.ip)));
        for _ in 0..branches {
            self.branch();
        }
        self.flush();
        let at = self.ip;
        self.packet(Packet::Fup(self.told(at)));
        self.packet(Packet::TipPgd(Ip::SUPPRESSED));
    }

    fn anywhere(&mut self) -> u64 {
        let address = self.any_entry() + self.random.below(SIZE as usize) as u64;
        *self.kinds.range(..=address).next_back().expect("an instruction").0
    }

    /// Of the program or the kernel, whichever runs.
    fn any_entry(&mut self) -> u64 {
        match self.habits.kernel {
            false => entry(self.random.below(FUNCTIONS)),
            true if self.is_kernel(self.ip) => self.any_entry_of_kernel(),
            true => entry(self.random.below(OF_KERNEL)),
        }
    }

    fn any_entry_of_kernel(&mut self) -> u64 {
        entry(OF_KERNEL + self.random.below(FUNCTIONS - OF_KERNEL))
    }

    fn is_kernel(&self, address: u64) -> bool {
        self.habits.kernel && address >= entry(OF_KERNEL)
    }

    /// Into the kernel, which goes on at `resumes` behind it.
    fn enter_kernel(&mut self, resumes: u64) {
        self.entered.push((self.stack.len(), resumes));
        let to = self.any_entry_of_kernel();
        self.target(to);
        self.flush();
    }

    /// Out of the kernel, mostly to where it was entered.
    fn leave_kernel(&mut self) {
        let (open, resumes) = self.entered.pop().unwrap_or((0, CODE));
        self.stack.truncate(open);
        let to = if self.is_kernel(resumes) || !self.random.once_in(8) {
            resumes
        } else {
            entry(self.random.below(OF_KERNEL))
        };
        self.target(to);
        self.flush();
    }

    /// The program, with what is a kernel's where that is.
    pub fn memory(&self) -> Sections {
        let (program, kernel) = self.code.split_at(OF_KERNEL * SIZE as usize);
        match self.habits.kernel {
            false => Sections([(CODE, self.code.clone())].into()),
            true => Sections([(CODE, program.to_vec()), (KERNEL + entry(OF_KERNEL), kernel.to_vec())].into()),
        }
    }

    fn branch(&mut self) {
        if self.stream.len() - self.last_psb > self.habits.psb_bytes {
            self.psb(true);
        }
        let habits = self.habits;
        if self.random.once_in(habits.overflows) {
            self.branches = Branches::default();
            self.targets.clear();
            self.packet(Packet::Ovf);
            self.ip = self.anywhere();
            self.compressible.clear();
            if self.random.once_in(3) {
                self.psb(true);
            }
            return self.packet(Packet::Fup(self.told(self.ip)));
        }
        if self.random.once_in(habits.interrupts) {
            let to = self.any_entry();
            self.flush();
            self.packet(Packet::Fup(self.told(self.ip)));
            if habits.kernel {
                return self.enter_kernel(self.ip);
            }
            self.stack.push(self.ip);
            self.target(to);
            return self.flush();
        }
        if self.random.once_in(habits.notes) {
            return self.note();
        }
        if self.random.once_in(habits.signals) {
            self.flush();
            self.packet(Packet::Fup(self.told(self.ip)));
            self.packet(Packet::TipPgd(Ip::SUPPRESSED));
            let again = self.ip;
            self.ip = if self.random.once_in(2) { self.any_entry() } else { again };
            if self.ip != again {
                self.stack.push(again);
            }
            return self.packet(Packet::TipPge(self.told(self.ip)));
        }
        loop {
            let (length, kind) = self.kinds[&self.ip];
            let next = self.ip + length;
            self.cycles += 1;
            match kind {
                Kind::Plain => self.ip = next,
                Kind::Jump(target) => self.ip = target,
                Kind::Call(target) => {
                    self.called(next);
                    self.ip = target;
                }
                Kind::Cond(target) => {
                    let taken = self.random.once_in(2);
                    self.bit(taken);
                    self.ip = if taken { target } else { next };
                    return;
                }
                Kind::IndirectCall => {
                    let target = self.any_entry();
                    self.called(next);
                    return self.target(target);
                }
                Kind::IndirectJump if self.random.once_in(8) => return self.jump_back(),
                Kind::IndirectJump => {
                    let target = if self.random.once_in(4) { self.anywhere() } else { self.any_entry() };
                    return self.target(target);
                }
                Kind::Return => return self.give_back(),
                Kind::System if self.is_kernel(self.ip) => {
                    self.flush();
                    return self.leave_kernel();
                }
                Kind::System if self.habits.kernel => {
                    self.flush();
                    return self.enter_kernel(next);
                }
                Kind::System => {
                    self.flush();
                    self.packet(Packet::TipPgd(Ip::SUPPRESSED));
                    self.ip = next;
                    return self.packet(Packet::TipPge(self.told(next)));
                }
            }
        }
    }

    fn called(&mut self, returns_to: u64) {
        self.stack.push(returns_to);
        self.compressible.push(returns_to);
        if self.compressible.len() > 64 {
            self.compressible.remove(0);
        }
    }

    fn give_back(&mut self) {
        let mut to = self.stack.pop();
        if self.random.once_in(self.habits.exceptions) && !self.stack.is_empty() {
            let left = self.random.below(self.stack.len());
            self.stack.truncate(left + 1);
            to = self.stack.pop();
            if self.random.once_in(2) {
                // Where it is caught: elsewhere in the function.
                let inside = to.map(|to| (to & !(SIZE - 1)) + self.random.below(SIZE as usize) as u64);
                to = inside.and_then(|inside| self.kinds.range(..=inside).next_back()).map(|(&at, _)| at);
            }
        } else if self.random.once_in(self.habits.odd_returns) {
            to = Some(if self.random.once_in(2) { self.any_entry() } else { self.anywhere() });
        }
        let to = to.unwrap_or_else(|| self.anywhere());
        match self.compressible.pop() {
            Some(known) if self.habits.compressed && known == to => {
                self.bit(true);
                self.ip = to;
            }
            // A bit behind it would be taken for the return.
            _ => {
                self.target(to);
                self.flush();
            }
        }
    }

    /// Takes the return address off the stack and jumps to it.
    fn jump_back(&mut self) {
        let to = self.stack.pop().unwrap_or_else(|| self.anywhere());
        self.target(to);
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
        for target in std::mem::take(&mut self.targets) {
            self.packet(Packet::Tip(self.told(target)));
        }
    }

    fn target(&mut self, to: u64) {
        self.ip = to;
        self.targets.push(to);
        if !self.habits.deferred || self.branches.is_empty() {
            self.flush();
        }
    }

    /// What happens in front of the next instruction.
    fn note(&mut self) {
        self.flush();
        let at = Packet::Fup(self.told(self.ip));
        let what = self.random.below(4);
        let (packet, bound) = match what {
            0 => (Packet::Exstop { fup: true }, true),
            1 => (Packet::ModeTsx { in_transaction: true, aborted: false }, true),
            2 => (Packet::Exstop { fup: false }, false),
            _ => (Packet::ModeTsx { in_transaction: false, aborted: true }, true),
        };
        self.packet(packet);
        if bound {
            self.packet(at);
        }
        if what == 3 {
            let to = self.any_entry();
            self.target(to);
            self.flush();
        }
    }

    fn told(&self, address: u64) -> Ip {
        let real = if self.is_kernel(address) { KERNEL + address } else { address };
        Ip { compression: Compression::SignExtend48, payload: real & 0xffff_ffff_ffff }
    }

    fn packet(&mut self, packet: Packet) {
        self.pass();
        write(&mut self.stream, packet);
    }

    /// Time passes.
    fn pass(&mut self) {
        let cycles = std::mem::take(&mut self.cycles);
        let before = self.tsc;
        self.tsc += cycles * 3;
        if self.habits.clock && self.tsc / PERIOD != before / PERIOD {
            write(&mut self.stream, Packet::Mtc((self.tsc / PERIOD) as u8));
        }
        if self.habits.cycles && cycles != 0 {
            write(&mut self.stream, Packet::Cyc(cycles));
        }
    }

    fn psb(&mut self, enabled: bool) {
        self.flush();
        self.pass();
        self.last_psb = self.stream.len();
        write(&mut self.stream, Packet::Psb);
        if self.habits.times {
            write(&mut self.stream, Packet::Tsc(self.tsc));
        }
        if self.habits.times && self.habits.clock {
            let (ctc, fast_counter) = ((self.tsc / 84) as u16, (self.tsc % 84) as u16);
            write(&mut self.stream, Packet::Tma { ctc, fast_counter });
        }
        write(&mut self.stream, Packet::Cbr { ratio: 20 });
        write(&mut self.stream, Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true });
        if enabled {
            let at = self.told(self.ip);
            write(&mut self.stream, Packet::Fup(at));
        }
        write(&mut self.stream, Packet::Psbend);
        self.compressible.clear();
    }
}

fn direct(opcode: u8, at: u64, target: u64) -> Vec<u8> {
    let distance = (target as i64 - at as i64 - 5) as i32;
    [vec![opcode], distance.to_le_bytes().to_vec()].concat()
}

fn cond(kind: Kind) -> Option<u64> {
    match kind {
        Kind::Cond(target) => Some(target),
        _ => None,
    }
}

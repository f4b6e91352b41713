//! A processor that runs a program made up at random, and writes what the manual says that it writes.

mod clock;
mod events;
mod packets;
mod program;

use crate::mutations::Random;
use clock::Clock;
pub use clock::Clocks;
use program::{Kind, Program};
pub use program::{KERNEL, REGIONS};
use pt_packet::{Execution, Ip, Packet};
use std::ops::Range;

/// Calls whose returns are compressed (SDM section "Indirect Transfer Compression for Returns (RET)").
const COMPRESSIBLE: usize = 64;
/// Branches of a long TNT packet.
const LONG: u8 = 47;

/// What happens, and what is told of it. A number: once in so many instructions; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Kernels are not traced: what is entered by a far transfer is left out.
    pub user: bool,
    /// Some functions are not traced.
    pub filtered: bool,
    pub interrupts: usize,
    pub stops: usize,
    pub events: usize,
    pub overflows: usize,
    /// An overflow may be within a PSB+, of which it may leave the PSBEND (SDM table "Compound Packet Event Summary").
    pub cut_psbs: bool,
    pub transactions: bool,
    pub paging: bool,
    pub guests: bool,
    pub power: bool,
    pub writes: bool,
    /// What interrupts and returns from that, enters and leaves guests is told, and the interrupt flag (SDM section "Event Trace").
    pub event_trace: bool,
    pub compressed: bool,
    /// A return that goes elsewhere makes it forget all calls, and so does a branch to what is not traced.
    pub forgetful: bool,
    /// Targets stand behind branches that follow them (SDM section "Deferred TIPs").
    pub deferred: bool,
    pub long: bool,
    /// Conditional branches are not told of, and no return is compressed (`DisTNT`, SDM section "TNT Disable").
    pub without_tnt: bool,
    pub clocks: Clocks,
    /// Bytes from one PSB to the next.
    pub psb_bytes: usize,
}

/// Where the processor is, and what it has told.
pub struct Machine {
    pub program: Program,
    pub stream: Vec<u8>,
    /// The addresses of the instructions that ran, and the TSC when they were over.
    pub ran: Vec<u64>,
    pub times: Vec<u64>,
    /// Where PSB+ are, and how many instructions had run.
    pub psbs: Vec<(Range<usize>, usize)>,
    random: Random,
    habits: Habits,
    ip: u64,
    region: usize,
    mode: Execution,
    interrupt_flag: bool,
    cr3: u64,
    vmcs: u64,
    non_root: bool,
    transaction: Option<Transaction>,
    stack: Vec<u64>,
    /// Return addresses since the last PSB.
    compressible: Vec<u64>,
    bits: u64,
    count: u8,
    /// Targets behind the branches that are held back.
    targets: Vec<u64>,
    last_ip: u64,
    /// Of the last FUP.
    told_at: u64,
    clock: Clock,
    /// Cycles at the first of the branches that are held back.
    first: u64,
    last_psb: usize,
}

struct Transaction {
    depth: u32,
    fallback: u64,
    stack: Vec<u64>,
}

impl Random {
    /// Once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        times != 0 && self.below(times) == 0
    }
}

impl Machine {
    pub fn new(seed: u64, habits: Habits) -> Machine {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let program = Program::new(&mut random);
        Machine {
            program,
            stream: Vec::new(),
            ran: Vec::new(),
            times: Vec::new(),
            psbs: Vec::new(),
            random,
            habits,
            ip: REGIONS[0].0,
            region: 0,
            mode: REGIONS[0].1,
            interrupt_flag: false,
            cr3: 0x1000,
            vmcs: 0x5000,
            non_root: false,
            transaction: None,
            stack: Vec::new(),
            compressible: Vec::new(),
            bits: 0,
            count: 0,
            targets: Vec::new(),
            last_ip: 0,
            told_at: 0,
            clock: Clock::new(habits.clocks),
            first: 0,
            last_psb: 0,
        }
    }

    /// Runs so many instructions, and tracing ends.
    pub fn run(&mut self, instructions: usize) {
        self.psb(false);
        self.enable();
        while self.ran.len() < instructions {
            self.happen();
            if self.habits.clocks.varies && self.random.once_in(16) {
                self.clock.drift(&mut self.random);
            }
            let cycles = self.clock.any_cycles(&mut self.random);
            self.pass(cycles);
            self.execute();
        }
        self.abort_if_any();
        self.flush();
        self.fup();
        self.packet(Packet::TipPgd(Ip::SUPPRESSED));
    }

    /// What does not come from the instruction ahead.
    fn happen(&mut self) {
        let habits = self.habits;
        if self.stream.len() - self.last_psb > habits.psb_bytes {
            self.psb(true);
        }
        if self.random.once_in(habits.overflows) {
            self.overflow();
        }
        if self.random.once_in(habits.interrupts) {
            self.abort_if_any();
            let to = self.elsewhere();
            self.interrupt(to);
        }
        if self.random.once_in(habits.stops) {
            self.stop();
        }
        if self.random.once_in(habits.events) {
            self.event();
        }
    }

    fn execute(&mut self) {
        let (length, kind) = self.program.at(self.ip);
        let next = self.ip + length;
        let aborts = matches!(
            kind,
            Kind::System | Kind::Far | Kind::Enter | Kind::LoadCr3 | Kind::LoadVmcs | Kind::Wait | Kind::Abort
        );
        if aborts && self.transaction.is_some() {
            return self.abort_if_any();
        }
        match kind {
            Kind::Plain | Kind::Abort => self.retire(next),
            Kind::Cond(target) => {
                let taken = self.random.below(2) == 1;
                if taken && self.leaves(target) {
                    return;
                }
                self.bit(taken);
                self.retire(if taken { target } else { next });
            }
            Kind::Jump(target) => {
                if !self.leaves(target) {
                    self.retire(target);
                }
            }
            Kind::Call(target) => {
                if self.leaves(target) {
                    return;
                }
                self.stack.push(next);
                // What only tells where it is returns nowhere.
                if target != next {
                    self.compress_later(next);
                }
                self.retire(target);
            }
            Kind::IndirectCall => self.indirect(Some(next)),
            Kind::IndirectJump => self.indirect(None),
            Kind::Return => self.give_back(),
            Kind::System => self.far(next, true),
            Kind::Far => {
                self.flush();
                if self.random.once_in(2) {
                    self.control_flow_event(2);
                }
                self.far(next, false);
            }
            Kind::Enter => self.enter(),
            Kind::PtWrite => self.pt_write(next),
            // Only a kernel does it, and is not traced then.
            Kind::LoadCr3 if self.habits.user => self.far(next, false),
            Kind::LoadCr3 => {
                self.cr3 = self.random.0 & 0xf_ffff_f000;
                if self.habits.paging {
                    self.flush();
                    self.pip();
                }
                self.retire(next);
            }
            Kind::LoadVmcs => {
                self.vmcs = self.random.0 & 0xf_ffff_f000;
                if self.habits.guests {
                    self.flush();
                    self.packet(Packet::Vmcs(self.vmcs));
                }
                self.retire(next);
            }
            Kind::Begin(fallback) => self.begin(next, fallback),
            Kind::Commit => self.commit(next),
            Kind::Wait => self.wait(next),
        }
    }

    fn retire(&mut self, next: u64) {
        self.ran.push(self.ip);
        self.times.push(self.clock.now());
        self.ip = next;
    }

    /// Whether tracing ends with the branch to `target`, and has begun again elsewhere (SDM section "Filtering by IP").
    fn leaves(&mut self, target: u64) -> bool {
        if self.is_traced(target) {
            return false;
        }
        self.flush();
        self.retire(target);
        self.leave();
        true
    }

    fn is_traced(&self, address: u64) -> bool {
        !(self.habits.filtered && self.program.is_left_out(address))
    }

    fn leave(&mut self) {
        if self.habits.forgetful {
            self.compressible.clear();
        }
        let ip = self.compressed(self.ip);
        self.packet(Packet::TipPgd(ip));
        self.outside(false);
    }

    /// An instruction of the region that is traced.
    fn anywhere(&mut self, region: usize) -> u64 {
        loop {
            let address = self.program.anywhere(region, &mut self.random);
            if self.is_traced(address) {
                return address;
            }
        }
    }

    fn indirect(&mut self, returns_to: Option<u64>) {
        let target = self.program.anywhere(self.region, &mut self.random);
        if self.leaves(target) {
            return;
        }
        if let Some(returns_to) = returns_to {
            self.stack.push(returns_to);
            self.compress_later(returns_to);
        }
        self.target(target);
    }

    fn target(&mut self, target: u64) {
        self.retire(target);
        self.targets.push(target);
        if !self.habits.deferred || self.count == 0 {
            self.flush();
        }
    }

    fn compress_later(&mut self, returns_to: u64) {
        self.compressible.push(returns_to);
        if self.compressible.len() > COMPRESSIBLE {
            self.compressible.remove(0);
        }
    }

    fn give_back(&mut self) {
        let same = self.stack.pop().filter(|to| self.region_of(*to) == self.region);
        let to = match same {
            Some(to) if !self.random.once_in(16) => to,
            _ => self.program.anywhere(self.region, &mut self.random),
        };
        let known = self.compressible.pop();
        if self.leaves(to) {
            return;
        }
        match known {
            Some(known) if self.habits.compressed && !self.habits.without_tnt && known == to => {
                self.bit(true);
                self.retire(to);
            }
            _ => {
                if self.habits.forgetful {
                    self.compressible.clear();
                }
                self.target(to);
                // A bit behind it would be taken for the return.
                self.flush();
            }
        }
    }
}

//! A processor that runs a program made up at random, and writes what the manual says that it writes.

mod clock;
mod program;

use crate::mutations::Random;
use clock::Clock;
pub use clock::Clocks;
use program::{Kind, Program, REGIONS};
use pt_packet::writer::write;
use pt_packet::{Compression, Execution, Ip, Packet};
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

    fn region_of(&self, address: u64) -> usize {
        (0..REGIONS.len()).find(|&region| address.wrapping_sub(REGIONS[region].0) < 1 << 16).expect("in a region")
    }

    /// Where execution may go on by a far transfer.
    fn elsewhere(&mut self) -> u64 {
        let region = if self.random.below(2) == 0 { self.region } else { self.random.below(REGIONS.len()) };
        self.program.anywhere(region, &mut self.random)
    }

    fn far(&mut self, next: u64, comes_back: bool) {
        self.flush();
        if self.habits.user {
            self.retire(next);
            self.packet(Packet::TipPgd(Ip::SUPPRESSED));
            return self.outside(comes_back);
        }
        let to = self.elsewhere();
        self.retire(to);
        if self.random.once_in(2) {
            self.load_space();
        }
        self.arrive();
    }

    /// Execution goes on where the packets in front of this one lead.
    fn arrive(&mut self) {
        if !self.is_traced(self.ip) {
            return self.leave();
        }
        self.tell_mode();
        let ip = self.compressed(self.ip);
        self.packet(Packet::Tip(ip));
    }

    fn load_space(&mut self) {
        self.cr3 = self.random.0 & 0xf_ffff_f000;
        if self.habits.paging {
            self.pip();
        }
    }

    fn pip(&mut self) {
        self.packet(Packet::Pip { cr3: self.cr3, non_root: self.non_root });
    }

    fn tell_mode(&mut self) {
        self.region = self.region_of(self.ip);
        let mode = REGIONS[self.region].1;
        if mode != self.mode {
            self.mode = mode;
            self.packet(Packet::ModeExec { mode, interrupt_flag: self.interrupt_flag });
        }
    }

    /// A guest is entered, or left where it tried to enter one.
    fn enter(&mut self) {
        let to = self.elsewhere();
        if !self.habits.guests {
            // It is not allowed there.
            return self.interrupt(to);
        }
        if self.non_root {
            self.non_root = false;
            self.clock.guest = false;
            return self.interrupt(to);
        }
        self.flush();
        self.control_flow_event(7);
        self.non_root = true;
        self.clock.guest = true;
        self.retire(to);
        self.load_space();
        self.packet(Packet::Vmcs(self.vmcs));
        self.arrive();
    }

    fn interrupt(&mut self, to: u64) {
        self.flush();
        match self.habits.event_trace {
            true => self.control_flow_event(1),
            false => self.fup(),
        }
        self.stack.push(self.ip);
        self.ip = to;
        if self.habits.guests || self.random.once_in(2) {
            self.load_space();
        }
        self.arrive();
    }

    /// SDM table "CFE Packet Type and Vector Fields": 1 an interrupt, 2 a return from one, 7 a guest entered.
    fn control_flow_event(&mut self, kind: u8) {
        if self.habits.event_trace {
            self.packet(Packet::Cfe { kind, vector: 3, fup: true });
            self.fup();
        }
    }

    fn fup(&mut self) {
        self.told_at = self.ip;
        let ip = self.compressed(self.ip);
        self.packet(Packet::Fup(ip));
    }

    fn pt_write(&mut self, next: u64) {
        if self.habits.writes {
            self.flush();
            let (fup, size) = (self.random.once_in(2), [4, 8][self.random.below(2)]);
            let payload = self.random.0 & 0xffff_ffff;
            self.packet(Packet::Ptw { payload, size, fup });
            if fup {
                self.fup();
            }
        }
        self.retire(next);
    }

    fn begin(&mut self, next: u64, fallback: u64) {
        if !self.habits.transactions {
            return self.retire(next);
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.depth += 1;
            return self.retire(next);
        }
        self.tell_transaction(true, false);
        self.transaction = Some(Transaction { depth: 1, fallback, stack: self.stack.clone() });
        self.retire(next);
    }

    fn commit(&mut self, next: u64) {
        match &mut self.transaction {
            Some(transaction) if transaction.depth > 1 => transaction.depth -= 1,
            Some(_) => {
                self.transaction = None;
                self.tell_transaction(false, false);
            }
            None => {}
        }
        self.retire(next);
    }

    fn abort_if_any(&mut self) {
        let Some(Transaction { fallback, stack, .. }) = self.transaction.take() else { return };
        self.tell_transaction(false, true);
        (self.ip, self.stack) = (fallback, stack);
        self.arrive();
    }

    fn tell_transaction(&mut self, in_transaction: bool, aborted: bool) {
        self.flush();
        self.packet(Packet::ModeTsx { in_transaction, aborted });
        self.fup();
    }

    fn wait(&mut self, next: u64) {
        if self.habits.power {
            self.flush();
            let some = self.random.0;
            self.packet(Packet::Mwait { hints: some as u32 & 0xff, extensions: (some >> 8) as u32 & 1 });
            self.packet(Packet::Pwre {
                state: (some >> 9) as u8 & 7,
                sub_state: (some >> 12) as u8 & 7,
                hardware: false,
            });
            self.packet(Packet::Exstop { fup: true });
            self.fup();
            self.sleep();
            self.packet(Packet::Pwrx { last: 2, deepest: (some >> 15) as u8 & 15, wake: 1 });
        } else if self.habits.clocks.varies {
            self.flush();
            self.sleep();
        }
        self.retire(next);
    }

    fn execution_stops(&mut self) {
        let fup = self.random.once_in(2);
        self.packet(Packet::Exstop { fup });
        if fup {
            self.fup();
        }
    }

    /// What is bound to no instruction.
    fn event(&mut self) {
        self.flush();
        match self.random.below(4) {
            0 if self.habits.power => self.execution_stops(),
            1 if self.habits.power => self.packet(Packet::Pwrx { last: 1, deepest: 1, wake: 4 }),
            2 if self.habits.event_trace => {
                self.interrupt_flag ^= true;
                self.packet(Packet::ModeExec { mode: self.mode, interrupt_flag: self.interrupt_flag });
                self.fup();
            }
            2 => self.packet(Packet::Pad),
            _ => self.change_clock(),
        }
    }

    /// Tracing ends in front of the instruction ahead.
    fn stop(&mut self) {
        self.abort_if_any();
        self.flush();
        self.fup();
        self.packet(Packet::TipPgd(Ip::SUPPRESSED));
        if self.random.once_in(4) {
            self.packet(Packet::TraceStop);
        }
        self.outside(true);
    }

    /// What is told while nothing is traced. Whatever ran may come back to where it was left.
    fn outside(&mut self, comes_back: bool) {
        if self.habits.paging && self.random.once_in(4) {
            self.load_space();
        }
        if self.random.once_in(8) {
            self.psb(false);
        }
        if self.random.once_in(8) {
            self.packet(self.clock.cbr());
        }
        match self.random.below(8) {
            0 if self.habits.clocks.varies => self.off(),
            1..=3 => {
                let cycles = self.clock.any_cycles(&mut self.random) << self.random.below(8);
                self.pass(cycles);
            }
            _ => {}
        }
        if self.transaction.take().is_some() {
            let aborted = self.random.once_in(2);
            self.packet(Packet::ModeTsx { in_transaction: false, aborted });
        }
        // Nothing but what comes back goes on where it was left.
        let left = [self.ran.last().copied().unwrap_or_default(), self.told_at].map(|address| address >> 8);
        while !comes_back || self.random.once_in(2) {
            let region = self.random.below(REGIONS.len());
            self.ip = self.anywhere(region);
            if !left.contains(&(self.ip >> 8)) {
                break;
            }
        }
        self.enable();
    }

    fn enable(&mut self) {
        self.tell_mode();
        let ip = self.compressed(self.ip);
        self.packet(Packet::TipPge(ip));
    }

    /// Packets are lost, and execution went on meanwhile.
    fn overflow(&mut self) {
        self.count = 0;
        self.targets.clear();
        let mut cycles = self.clock.any_cycles(&mut self.random) << self.random.below(6);
        while self.clock.pass(&mut cycles) {}
        self.packet(Packet::Ovf);
        self.transaction = None;
        self.compressible.clear();
        self.ip = self.anywhere(self.region);
        let ip = Ip { compression: Compression::Full, payload: self.ip };
        self.last_ip = self.ip;
        let packet = if self.random.once_in(3) { Packet::TipPge(ip) } else { Packet::Fup(ip) };
        self.packet(packet);
    }

    fn bit(&mut self, taken: bool) {
        if self.habits.without_tnt {
            return;
        }
        if self.count == 0 {
            self.first = self.clock.cycles();
        }
        self.bits = self.bits << 1 | u64::from(taken);
        self.count += 1;
        if self.count == if self.habits.long { LONG } else { 6 } {
            self.flush();
        }
    }

    /// Tells what is held back.
    fn flush(&mut self) {
        if self.count != 0 {
            let (bits, count) = (self.bits & ((1 << self.count) - 1), self.count);
            (self.bits, self.count) = (0, 0);
            // SDM section "Cycle Packet Semantics": its CYC is that of its first branch.
            self.clock.cyc(self.first, &mut self.stream);
            write(&mut self.stream, Packet::Tnt { bits, count });
        }
        for target in std::mem::take(&mut self.targets) {
            let ip = self.compressed(target);
            self.packet(Packet::Tip(ip));
        }
    }

    /// Any way that says the address behind the last one.
    fn compressed(&mut self, address: u64) -> Ip {
        let last = std::mem::replace(&mut self.last_ip, address);
        let ways = [
            (Compression::Update16, 0xffff),
            (Compression::Update32, 0xffff_ffff),
            (Compression::SignExtend48, 0xffff_ffff_ffff),
            (Compression::Update48, 0xffff_ffff_ffff),
            (Compression::Full, u64::MAX),
        ];
        loop {
            let (compression, mask) = ways[self.random.below(ways.len())];
            let ip = Ip { compression, payload: address & mask };
            if ip.resolve(last) == Some(address) {
                return ip;
            }
        }
    }

    fn packet(&mut self, packet: Packet) {
        self.clock.cyc(self.clock.cycles(), &mut self.stream);
        write(&mut self.stream, packet);
    }

    /// Time passes. What stands in front of an MTC was before that.
    fn pass(&mut self, mut cycles: u64) {
        while self.clock.pass(&mut cycles) {
            if self.habits.clocks.mtc {
                self.flush();
            }
            self.clock.mtc(&mut self.stream);
        }
    }

    /// Behind a time during which clocks stood still.
    fn tell_time(&mut self) {
        let packets = self.clock.tsc();
        packets.into_iter().for_each(|packet| write(&mut self.stream, packet));
    }

    fn sleep(&mut self) {
        if self.habits.clocks.varies {
            self.clock.sleep(&mut self.random);
            self.tell_time();
        }
    }

    /// Tracing is off for a while (IA32_RTIT_CTL.TraceEn).
    fn off(&mut self) {
        self.clock.sleep(&mut self.random);
        self.clock.reset();
        self.tell_time();
        self.packet(self.clock.cbr());
    }

    fn change_clock(&mut self) {
        let Clocks { varies, stops, .. } = self.habits.clocks;
        self.clock.cyc(self.clock.cycles(), &mut self.stream);
        if varies {
            self.clock.change(&mut self.random);
        }
        if varies && stops {
            self.tell_time();
        }
        self.packet(self.clock.cbr());
    }

    fn psb(&mut self, enabled: bool) {
        self.flush();
        self.clock.cyc(self.clock.cycles(), &mut self.stream);
        self.last_psb = self.stream.len();
        self.last_ip = 0;
        self.compressible.clear();
        let habits = self.habits;
        let mut packets = vec![Packet::Psb];
        packets.extend(self.clock.tsc());
        // The order is not fixed.
        let at = if self.random.once_in(4) { 1 } else { packets.len() };
        packets.insert(at, self.clock.cbr());
        if habits.transactions {
            packets.push(Packet::ModeTsx { in_transaction: self.transaction.is_some(), aborted: false });
        }
        packets.push(Packet::ModeExec { mode: self.mode, interrupt_flag: self.interrupt_flag });
        if habits.paging {
            packets.push(Packet::Pip { cr3: self.cr3, non_root: self.non_root });
        }
        if habits.guests {
            packets.push(Packet::Vmcs(self.vmcs));
        }
        if enabled {
            packets.push(Packet::Fup(self.compressed(self.ip)));
        }
        packets.push(Packet::Psbend);
        packets.into_iter().for_each(|packet| write(&mut self.stream, packet));
        self.psbs.push((self.last_psb..self.stream.len(), self.ran.len()));
    }
}

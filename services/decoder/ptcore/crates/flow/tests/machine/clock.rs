//! The clocks of a processor, and the packets that tell of them (SDM sections "Tracking Time" and "Cycle-Accurate Mode").

use crate::mutations::Random;
use pt_flow::Config;
use pt_packet::writer::write;
use pt_packet::Packet;

/// Core to bus clock ratio at which core cycles and TSC ticks are the same.
pub const NOMINAL: u8 = 20;
/// Parts of a TSC tick.
const FRACTION: u32 = 16;

/// How the clocks go, and which packets tell of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    pub tsc: bool,
    pub mtc: bool,
    pub cyc: bool,
    pub mtc_freq: u8,
    /// TSC ticks per tick of the crystal.
    pub crystal: (u32, u32),
    /// Cycles that pass from one CYC to the next at least.
    pub threshold: u64,
    /// Cycles of an instruction at most; of a few many more.
    pub cycles: usize,
    /// The core's clock changes, sleeps, and stands still while tracing is off.
    pub varies: bool,
    /// A change of the core's clock stops the others, and so a TSC is sent.
    pub stops: bool,
    /// How far a guest's TSC is ahead.
    pub offset: u64,
}

impl Clocks {
    /// An MTC every 2^3 ticks of a crystal clock of 24 MHz.
    pub const USUAL: Clocks = Clocks {
        tsc: false,
        mtc: false,
        cyc: false,
        mtc_freq: 3,
        crystal: (168, 2),
        threshold: 0,
        cycles: 8,
        varies: false,
        stops: false,
        offset: 0,
    };

    pub fn config(&self) -> Config {
        Config { mtc_freq: self.mtc_freq, tsc_ctc_ratio: self.crystal, nominal_ratio: NOMINAL, ..Config::default() }
    }

    /// Ticks of the crystal up to a time, and the time of one of them.
    fn counts(&self, parts: u64) -> u64 {
        let (ticks, counts) = self.crystal;
        (u128::from(parts) * u128::from(counts) / (u128::from(ticks) << FRACTION)) as u64
    }

    fn parts(&self, counts: u64) -> u64 {
        let (ticks, of) = self.crystal;
        ((u128::from(counts) * u128::from(ticks)) << FRACTION).div_ceil(u128::from(of)) as u64
    }
}

pub struct Clock {
    clocks: Clocks,
    /// In parts of a TSC tick.
    now: u64,
    /// Core to bus ratio as CBR has it, and how many parts of a TSC tick a cycle is.
    ratio: u8,
    cycle: u64,
    cycles: u64,
    /// Cycles up to the last CYC.
    told: u64,
    /// In VMX non-root operation.
    pub guest: bool,
}

impl Clock {
    pub fn new(clocks: Clocks) -> Clock {
        let cycle = 1 << FRACTION;
        Clock { clocks, now: 1 << 30 << FRACTION, ratio: NOMINAL, cycle, cycles: 0, told: 0, guest: false }
    }

    /// TSC ticks.
    pub fn now(&self) -> u64 {
        self.now >> FRACTION
    }

    /// Core cycles so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    pub fn cbr(&self) -> Packet {
        Packet::Cbr { ratio: self.ratio }
    }

    /// Time passes, up to the next MTC at most; whether it came to that one.
    pub fn pass(&mut self, cycles: &mut u64) -> bool {
        let until = self.next_mtc();
        let ahead = until.saturating_sub(self.now).div_ceil(self.cycle);
        let passed = ahead.min(*cycles);
        *cycles -= passed;
        self.cycles += passed;
        self.now += passed * self.cycle;
        passed == ahead
    }

    fn next_mtc(&self) -> u64 {
        let freq = self.clocks.mtc_freq;
        self.clocks.parts(((self.clocks.counts(self.now) >> freq) + 1) << freq)
    }

    /// An MTC is due.
    pub fn mtc(&mut self, stream: &mut Vec<u8>) {
        if self.clocks.mtc {
            self.cyc(self.cycles, stream);
            write(stream, Packet::Mtc((self.clocks.counts(self.now) >> self.clocks.mtc_freq) as u8));
        }
    }

    /// A CYC in front of what happened when there had been so many cycles.
    pub fn cyc(&mut self, cycles: u64, stream: &mut Vec<u8>) {
        let passed = cycles - self.told;
        if self.clocks.cyc && passed != 0 && passed >= self.clocks.threshold {
            write(stream, Packet::Cyc(passed));
            self.told = cycles;
        }
    }

    /// TSC, and the TMA that is always behind it.
    pub fn tsc(&self) -> Vec<Packet> {
        if !self.clocks.tsc {
            return Vec::new();
        }
        let offset = if self.guest { self.clocks.offset } else { 0 };
        let mut packets = vec![Packet::Tsc(self.now() + offset)];
        if self.clocks.mtc {
            let count = self.clocks.counts(self.now);
            let fast_counter = (self.now - self.clocks.parts(count)) >> FRACTION;
            packets.push(Packet::Tma { ctc: count as u16, fast_counter: fast_counter as u16 });
        }
        packets
    }

    /// The core's clock stands still for a while, and there are no MTCs.
    pub fn sleep(&mut self, random: &mut Random) {
        self.now += random.0 % (self.clocks.parts(2 << self.clocks.mtc_freq) << random.below(10));
    }

    /// Cycles that were not told are forgotten.
    pub fn reset(&mut self) {
        self.told = self.cycles;
    }

    /// Another core to bus ratio.
    pub fn change(&mut self, random: &mut Random) {
        self.ratio = 8 + random.below(32) as u8;
        self.drift(random);
    }

    /// CBR has the ratio rounded.
    pub fn drift(&mut self, random: &mut Random) {
        let sixteenths = 16 * u64::from(self.ratio) - 8 + random.below(16) as u64;
        self.cycle = (u64::from(NOMINAL) << (FRACTION + 4)) / sixteenths;
    }

    /// How many cycles an instruction takes.
    pub fn any_cycles(&self, random: &mut Random) -> u64 {
        let few = 1 + random.below(self.clocks.cycles) as u64;
        few << if random.below(32) == 0 { random.below(6) } else { 0 }
    }
}

//! Where threads made up at random take turns on a core: nothing but user code is traced, and the operating system says when.
//!
//! `PERMILLE_MUTATIONS` asks for more of them.

use crate::mutations::{rounds, Random};
use pt_capture::{place, Turn};
use pt_flow::Config;
use pt_packet::{writer::write, Compression, Ip, Packet};

/// TSC ticks per tick of the crystal, every 2^3 of which there is an MTC.
const CRYSTAL: u64 = 84;
const PERIOD: u64 = CRYSTAL << 3;
const RATIO: u8 = 20;

#[derive(Clone, Copy, Debug)]
struct Habits {
    cyc: bool,
    /// The core's clock stands still while it is idle.
    sleeps: bool,
    /// A core's clock that CBR tells rounded: cycles for each 1000 ticks.
    pace: u64,
    psb_bytes: usize,
}

struct Core {
    habits: Habits,
    random: Random,
    data: Vec<u8>,
    now: u64,
    cycles: u64,
    told: u64,
    last_psb: usize,
    enabled: bool,
    asleep: bool,
    turns: Vec<Turn>,
    /// From which offset on which view holds.
    truth: Vec<(usize, u32)>,
}

fn full(payload: u64) -> Ip {
    Ip { compression: Compression::Full, payload }
}

impl Core {
    fn new(seed: u64, habits: Habits) -> Core {
        Core {
            habits,
            random: Random(seed),
            data: Vec::new(),
            now: 1 << 30,
            cycles: 0,
            told: 0,
            last_psb: 0,
            enabled: false,
            asleep: false,
            turns: Vec::new(),
            truth: vec![(0, 0)],
        }
    }

    fn below(&mut self, limit: usize) -> u64 {
        self.random.below(limit) as u64
    }

    fn packet(&mut self, packet: Packet) {
        write(&mut self.data, packet);
    }

    fn cyc(&mut self) {
        if self.habits.cyc && self.cycles > self.told {
            self.packet(Packet::Cyc(self.cycles - self.told));
            self.told = self.cycles;
        }
    }

    fn pass(&mut self, mut ticks: u64) {
        while ticks != 0 {
            let step = ticks.min(PERIOD - self.now % PERIOD);
            let before = self.now;
            (self.now, ticks) = (self.now + step, ticks - step);
            if !self.asleep {
                self.cycles += (self.now * self.habits.pace) / 1000 - before * self.habits.pace / 1000;
            }
            if self.now % PERIOD == 0 {
                self.cyc();
                self.packet(Packet::Mtc((self.now / PERIOD) as u8));
            }
        }
    }

    fn psb(&mut self, ip: u64) {
        self.last_psb = self.data.len();
        self.packet(Packet::Psb);
        self.packet(Packet::Tsc(self.now));
        let count = self.now / CRYSTAL;
        self.packet(Packet::Tma { ctc: count as u16, fast_counter: (self.now - count * CRYSTAL) as u16 });
        self.packet(Packet::Cbr { ratio: RATIO });
        if self.enabled {
            self.packet(Packet::Fup(full(ip)));
        }
        self.packet(Packet::Psbend);
    }

    /// One thread after the other, each of which makes system calls and has page faults.
    fn run(&mut self, turns: u32) {
        let (mut ip, mut view) = (0x1000, 0);
        self.psb(ip);
        while view < turns {
            self.cyc();
            self.packet(Packet::TipPge(full(ip)));
            self.enabled = true;
            for _ in 0..self.below(6) {
                let (ticks, bits) = (self.below(400), self.below(64));
                self.pass(ticks);
                self.cyc();
                self.packet(Packet::Tnt { bits, count: 6 });
                if self.data.len() - self.last_psb > self.habits.psb_bytes {
                    self.psb(ip);
                }
            }
            ip += self.below(1 << 10);
            let ticks = 1 + self.below(300);
            self.pass(ticks);
            self.cyc();
            let is_fault = self.below(3) == 0;
            if is_fault {
                self.packet(Packet::Fup(full(ip)));
            }
            self.packet(Packet::TipPgd(Ip::SUPPRESSED));
            self.enabled = false;
            let gap = self.data.len();
            let within = self.below(600);
            self.pass(100 + within);
            if self.below(4) == 0 {
                // Of some nothing is traced before the next one comes.
                for _ in 0..=u64::from(self.below(8) == 0) {
                    view += 1;
                    let from = self.now;
                    let (between, idle) = (self.below(50), self.below(8) == 0);
                    let ticks = if idle { self.below(1 << 16) } else { between };
                    self.asleep = idle && self.habits.sleeps;
                    self.pass(ticks);
                    self.asleep = false;
                    self.turns.push(Turn { from, to: self.now, view, pid: 0 });
                    let ticks = 50 + self.below(500);
                    self.pass(ticks);
                }
                ip = 0x1_0000 * u64::from(view) + self.below(1 << 10);
                self.truth.push((gap, view));
            } else if !is_fault {
                ip += 2;
            }
        }
        for _ in 0..3 {
            self.psb(ip);
            self.pass(3 * PERIOD);
        }
    }
}

fn config() -> Config {
    Config { mtc_freq: 3, tsc_ctc_ratio: (CRYSTAL as u32, 1), nominal_ratio: RATIO, ..Config::default() }
}

/// Turns, those that are not where they were, and those of which it is said that they may not be.
fn count(cyc: bool, sleeps: bool, programs: u64) -> (usize, usize, usize) {
    let mut sums = (0, 0, 0);
    for seed in 1..=programs {
        let mut random = Random(seed ^ 1 << 40);
        let pace = 980 + random.below(41) as u64;
        let psb_bytes = [200, 2000, usize::MAX][random.below(3)];
        let mut core = Core::new(seed, Habits { cyc, sleeps, pace, psb_bytes });
        core.run(100);
        let placed = place(&core.data, &config(), 0, &core.turns);
        let wrong = core.truth.iter().filter(|turn| !placed.epochs.contains(turn)).count();
        sums.0 += core.truth.len();
        sums.1 += wrong;
        sums.2 += placed.ambiguous + placed.coarse;
    }
    sums
}

#[test]
fn turns_are_where_they_were_or_it_is_said_that_they_may_not_be() {
    let programs = rounds(1000);
    for (cyc, sleeps) in [(false, false), (false, true), (true, false), (true, true)] {
        let (turns, wrong, doubts) = count(cyc, sleeps, programs);
        let told = format!("{wrong} of {turns} wrong, {doubts} doubtful; cycles {cyc}, sleeps {sleeps}");
        println!("{told}");
        assert!(wrong <= doubts, "{told}");
        // One in ten thousand where core cycles tell, one in fifty where clock packets alone do.
        assert!(wrong <= turns / if cyc { 10_000 } else { 50 }, "{told}");
    }
}

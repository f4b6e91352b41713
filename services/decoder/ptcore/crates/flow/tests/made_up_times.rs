//! Times of programs made up at random, held against a processor's clock.
//!
//! The time told with a block is that of the last timing packet in front of the packet that told how the block was left, or of a
//! block that is left without one, in front of the packet before. So what is told ran no earlier than that, and no later than the
//! time that is told next, each as far as the uncertainty goes. With MTC packets, in front of which processors write what was
//! before, the uncertainty spans both: the last instruction of a block that a packet tells of ran within it. Without CYC packets no
//! time is later than the truth, but for the part of a tick that packets leave out.
//!
//! As documented, nothing is said between the TSC of a guest and the next one of its host, where a CYC is taken to be damaged, and
//! where packets were dropped, up to the next clock packet: programs with overflows have times that do not go back, and the same
//! in parts.
//!
//! `PERMILLE_SEED` chooses other ones than usual, `PERMILLE_MUTATIONS` how many.

use crate::machine::{Clocks, Habits, Machine};
use crate::made_up::{any_habits, seeds};
use crate::mutations::Random;
use crate::support::blocks_of_parts;
use pt_flow::{Block, BlockKind, Config, DisableKind, Flow, Loss, Notice, NoticeKind, Sink};

const INSTRUCTIONS: usize = 600;

/// A block, or what is told between two.
#[derive(Debug, PartialEq)]
struct Told {
    /// Instructions up to its end.
    ran: usize,
    tsc: u64,
    uncertainty: Option<u64>,
    /// A packet of its own tells it.
    by_packet: bool,
}

#[derive(Debug, Default, PartialEq)]
struct Times {
    told: Vec<Told>,
    ran: usize,
    uncertainty: Option<u64>,
    losses: usize,
}

impl Times {
    fn tell(&mut self, tsc: u64, by_packet: bool) {
        let Times { ran, uncertainty, .. } = *self;
        self.told.push(Told { ran, tsc, uncertainty, by_packet });
    }
}

impl Sink for Times {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.ran += block.instructions as usize;
        let alone =
            matches!(block.kind, BlockKind::Linear | BlockKind::Jump | BlockKind::Call | BlockKind::Interrupted);
        self.tell(tsc, !alone);
    }
    fn enabled(&mut self, _: u64, _: bool, tsc: u64) {
        self.tell(tsc, true);
    }
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, tsc: u64) {
        self.tell(tsc, true);
    }
    fn interrupt(&mut self, _: u64, _: u64, tsc: u64) {
        self.tell(tsc, true);
    }
    fn loss(&mut self, _: &Loss) {
        self.losses += 1;
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, tsc: u64) {
        self.tell(tsc, true);
    }
    fn notice(&mut self, notice: &Notice, tsc: u64) {
        if let NoticeKind::Uncertainty(ticks) = notice.kind {
            self.uncertainty = ticks;
        }
        assert!(self.told.last().is_none_or(|told| told.tsc <= tsc));
    }
}

/// TSC ticks of a tick of the crystal: with some two MTCs are a power of two apart, or half a tick more, with some no whole number.
const CRYSTALS: [(u32, u32); 7] = [(168, 2), (128, 1), (216, 2), (176, 2), (292, 3), (64, 1), (257, 2)];

fn any_clocks(random: &mut Random) -> Clocks {
    let mtc_freq = [0, 3, 3, 6, 9, 12][random.below(6)];
    let crystal = CRYSTALS[random.below(CRYSTALS.len())];
    let period = (1 << mtc_freq) * crystal.0 as usize / crystal.1 as usize;
    let mut does = || random.below(2) == 0;
    let (tsc, mtc, cyc, varies, stops) = (!does() || does(), does(), does(), does(), does());
    Clocks {
        tsc,
        mtc,
        cyc,
        mtc_freq,
        crystal,
        threshold: [0, 0, 16, 256, 4096][random.below(5)],
        cycles: (period >> random.below(8)).max(2),
        varies,
        stops,
        offset: [0, 5000, 1 << 40][random.below(3)],
    }
}

fn each(overflows: usize, mut run: impl FnMut(&Made, &mut Random)) {
    for (seed, mut random) in seeds(500) {
        let (habits, clocks) = (any_habits(&mut random), any_clocks(&mut random));
        // Without PIP nothing tells a guest's TSC from the host's.
        let offset = if habits.guests && habits.paging { clocks.offset } else { 0 };
        // A CYC in front of a TNT would be later than a target that was held back.
        let deferred = habits.deferred && !clocks.cyc;
        let overflows = [0, overflows][random.below(2)];
        let habits = Habits { deferred, overflows, cut_psbs: true, clocks: Clocks { offset, ..clocks }, ..habits };
        let mut config = clocks.config();
        match random.below(8) {
            0 => config.nominal_ratio = 0,
            1 => config.tsc_ctc_ratio = (0, 0),
            _ => {}
        }
        let mut machine = Machine::new(seed, habits);
        machine.run(INSTRUCTIONS);
        run(&Made { machine, habits, config, words: format!("{seed}, {habits:?}, {config:?}") }, &mut random);
    }
}

/// A program that ran, and what is known of the processor.
struct Made {
    machine: Machine,
    habits: Habits,
    config: Config,
    words: String,
}

impl Made {
    /// Whether MTC packets tell the time.
    fn is_tied(&self) -> bool {
        let Clocks { tsc, mtc, .. } = self.habits.clocks;
        tsc && mtc && self.config.tsc_ctc_ratio != (0, 0)
    }

    /// Whether they always do: behind a TSC of a guest none does up to the next one of its host. Where CYC packets have a threshold, a
    /// cycle that is measured from MTC to MTC may be so long that a CYC is taken to be damaged.
    fn is_bounded(&self) -> bool {
        let Clocks { cyc, threshold, .. } = self.habits.clocks;
        self.is_tied() && !(cyc && threshold != 0) && !self.habits.guests
    }
}

#[test]
fn what_ran_was_when_it_is_told() {
    let (mut bounded, mut all) = (0, 0);
    each(0, |made, _| {
        let Made { machine, habits, config, words } = made;
        let mut flow = Flow::new(&machine.program.code);
        let mut decode = || {
            let mut times = Times::default();
            flow.decode(&machine.stream, config, &[], &mut times);
            times
        };
        let times = decode();
        assert_eq!((times.ran, times.losses), (machine.ran.len(), 0), "{words}");
        assert!(times.told.is_sorted_by_key(|told| told.tsc), "{words}");
        let next_time = |number: usize, tsc| times.told[number..].iter().find(|next| next.tsc > tsc);
        for (number, told) in times.told.iter().enumerate().filter(|(_, told)| told.by_packet) {
            let Told { ran, tsc, uncertainty, .. } = *told;
            let what = || format!("{ran} at {tsc}, {uncertainty:?}: {words}");
            assert!(uncertainty.is_some() || !made.is_bounded(), "nothing bounds {}", what());
            all += 1;
            let is_block = ran != number.checked_sub(1).map_or(0, |before| times.told[before].ran);
            // Without cycles times are those of packets, in whole ticks.
            let late = if habits.clocks.cyc { uncertainty } else { Some(1) };
            let behind = machine.times.get(if is_block { ran - 1 } else { ran });
            if let (Some(late), Some(&behind)) = (late, behind) {
                assert!(tsc <= behind + late, "too late by {}: {}", tsc - behind, what());
            }
            let Some(uncertainty) = uncertainty.filter(|_| ran != 0) else { continue };
            let until = if made.is_tied() { Some(told) } else { next_time(number, tsc) };
            let Some(&Told { tsc, uncertainty: Some(other), .. }) = until else { continue };
            let before = machine.times[ran - 1];
            assert!(before <= tsc + uncertainty.max(other), "too early by {}: {}", before - tsc, what());
            bounded += 1;
        }
        for pass in 1..4 {
            assert!(times == decode(), "pass {pass}: {words}");
        }
    });
    assert!(bounded * 4 > all, "{bounded} of {all}");
}

#[test]
fn parts_tell_the_times_of_the_whole() {
    each(200, |made, random| {
        let (memory, stream) = (&made.machine.program.code, &made.machine.stream);
        let (whole, _) = blocks_of_parts(memory, stream, &made.config, 1, usize::MAX);
        let (parts, _) = blocks_of_parts(memory, stream, &made.config, 2, 100 + random.below(1000));
        assert_eq!(whole, parts, "{}", made.words);
        assert!(whole.is_sorted_by_key(|&(_, tsc)| tsc), "{}", made.words);
    });
}

//! Time from TSC, TMA, MTC, CYC and CBR packets.
//!
//! SDM section "Tracking Time". A TSC says the time. With the TMA behind it the time of the crystal clock's last count
//! before is known: TSC less the fast counter. An MTC is the time of a count; what lies between two counts is so many
//! TSC ticks as CPUID leaf 15H says. A CYC adds the core cycles since the one before, at the rate of the clocks.

mod crystal_counts;
mod cycles;
mod grain;
mod latest;
mod over_parts;
mod pace;
mod uncertainty;
mod world;

use crate::calibration::{Calibration, Rate};
use crate::crystal::Crystal;
use crate::{whole_tsc, Config};
use grain::Grain;
pub use latest::Latest;
pub use pace::Pace;
use pt_packet::Packet;
use uncertainty::Calm;
pub use world::World;

/// What the present time is reckoned from. From `Tsc` on times are known, from `PartOfCount` on the crystal is tied to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Anchor {
    Nothing,
    /// A count by MTC without any TSC: only times from the first MTC on.
    CountAlone,
    /// A TSC, which no crystal count belongs to yet.
    Tsc,
    /// A TMA that has not all the bits of its count.
    PartOfCount,
    /// A count by TMA or MTC.
    Count,
}

/// Follows the timing packets of a stream; `now` never goes back.
#[derive(Clone, Debug)]
pub struct Time {
    of_libipt: bool,
    forget_rate_at_overflow: bool,
    reference_tsc: u64,
    crystal: Crystal,
    now: u64,
    estimate: u64,
    anchor: Anchor,
    /// Time and crystal count of the anchor.
    base: u64,
    count: u64,
    /// TSC ticks since, by cycles and fast counter.
    fast: u64,
    /// What is left over of the last CYC's, in parts of a tick.
    part: u64,
    /// Of the crystal counts up to the anchor, those since the last MTC before which cycles were counted: the next CYC
    /// has them in it.
    uncounted: u64,
    /// What division left over of the last MTC.
    rest: u64,
    /// A CYC could not be used for want of a rate.
    lost_cycles: bool,
    grain: Grain,
    in_psb: bool,
    /// The PSB+ says where execution is.
    runs_at_psb: bool,
    pub(crate) world: World,
    /// A packet since the last TSC was not taken in, as it cannot be right.
    doubtful: bool,
    /// Packets were dropped since a clock told the time, for nobody knows how long.
    behind_loss: bool,
    calibration: Calibration,
    told: Option<u64>,
    calm: Calm,
    /// TSC ticks from one MTC to the next, rounded up.
    period: Option<u64>,
}

impl Time {
    pub fn new(config: Config) -> Self {
        let crystal = Crystal::new(&config);
        Time {
            of_libipt: config.clock_of_libipt,
            forget_rate_at_overflow: config.forget_rate_at_overflow,
            reference_tsc: config.reference_tsc,
            crystal,
            now: 0,
            estimate: 0,
            anchor: Anchor::Nothing,
            base: 0,
            count: 0,
            fast: 0,
            part: 0,
            uncounted: 0,
            rest: 0,
            lost_cycles: false,
            grain: Grain::default(),
            in_psb: false,
            runs_at_psb: false,
            world: World::default(),
            doubtful: false,
            behind_loss: false,
            calibration: Calibration::new(&config),
            told: None,
            calm: Calm::default(),
            period: crystal.in_tsc(crystal.period(), 0).map(|(ticks, rest)| ticks + u64::from(rest != 0)),
        }
    }

    /// TSC ticks; 0 before the first TSC packet.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The best estimate by the packets so far, which a later packet may correct backwards; without any TSC it counts
    /// from the first timing packet on.
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    /// TSC ticks per core cycle, when known.
    pub fn rate(&self) -> Option<Rate> {
        self.calibration.rate()
    }

    /// Whether the TSC and the crystal clock are tied to each other.
    #[inline(always)]
    fn tied(&self) -> bool {
        self.anchor >= Anchor::PartOfCount
    }

    /// Takes in a packet, whichever it is. True for one that may move the time, or what bounds it.
    #[inline(always)]
    pub fn take(&mut self, packet: &Packet) -> bool {
        match *packet {
            Packet::Tsc(ticks) => self.tsc(whole_tsc(ticks, self.reference_tsc)),
            Packet::Tma { ctc, fast_counter } => self.tma(ctc, fast_counter),
            Packet::Mtc(payload) => self.mtc(payload),
            Packet::Cyc(cycles) => self.cyc(cycles),
            Packet::Cbr { ratio } => self.cbr(ratio),
            Packet::Psb => {
                (self.in_psb, self.runs_at_psb) = (true, false);
                self.calibration.psb();
                return false;
            }
            Packet::Fup(_) => {
                self.runs_at_psb = true;
                return false;
            }
            Packet::Psbend => {
                // Behind an OVF it says nothing.
                if std::mem::take(&mut self.in_psb) && !self.runs_at_psb {
                    // So tracing begins again (SDM section "Packet Stream Boundary (PSB) Packet").
                    self.calibration.gap();
                }
                return false;
            }
            Packet::Ovf => {
                self.in_psb = false;
                self.calibration.overflow(self.forget_rate_at_overflow);
                self.lose_packets();
            }
            Packet::Pip { non_root, .. } => {
                self.world.enter(non_root);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Packets could not be read: no cycle is measured over them.
    #[cold]
    pub(crate) fn miss_packets(&mut self) {
        if !self.of_libipt {
            self.calibration.overflow(false);
        }
        self.lose_packets();
    }

    fn lose_packets(&mut self) {
        (self.behind_loss, self.calm) = (true, Calm::default());
    }

    #[inline]
    fn tsc(&mut self, ticks: u64) {
        if self.is_foreign() {
            return self.tsc_of_guest();
        }
        if self.wants_host() {
            self.hosts_first();
        }
        self.calibration.tsc(ticks, self.in_psb);
        self.reanchor(Anchor::Tsc, ticks);
        self.grain = Grain::since_tsc(&self.calibration);
        (self.doubtful, self.behind_loss) = (false, false);
        (self.count, self.uncounted, self.rest) = (0, 0, 0);
        self.reach(ticks);
    }

    /// From here on cycles add to `base`.
    #[inline]
    fn reanchor(&mut self, anchor: Anchor, base: u64) {
        (self.anchor, self.base, self.fast, self.part, self.lost_cycles) = (anchor, base, 0, 0, false);
    }

    fn cbr(&mut self, ratio: u8) {
        let before = self.calibration.rate();
        self.calibration.cbr(ratio, self.in_psb);
        self.grain.ratio(&self.calibration, before);
    }

    #[inline(always)]
    fn reach(&mut self, ticks: u64) {
        self.estimate = ticks;
        if self.anchor >= Anchor::Tsc {
            self.now = self.now.max(ticks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn skylake() -> Time {
        Time::new(Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() })
    }

    #[test]
    fn no_time_is_known_before_the_first_tsc() {
        let mut time = skylake();
        time.tma(1, 1);
        time.mtc(3);
        time.cyc(100);
        assert_eq!(time.now(), 0);
    }

    #[test]
    fn times_go_on_where_the_bits_that_packets_have_of_the_tsc_wrap() {
        const WRAP: u64 = 1 << 56;
        let mut time = Time::new(Config { reference_tsc: 3 * WRAP - 1000, ..Config::default() });
        for ticks in [3 * WRAP - 2000, 3 * WRAP - 1, 3 * WRAP + 5] {
            assert!(time.take(&Packet::Tsc(ticks % WRAP)));
            assert_eq!((time.now(), time.estimate()), (ticks, ticks));
        }
    }

    #[test]
    fn time_never_goes_back() {
        let mut time = skylake();
        time.cbr(20);
        time.tsc(1000);
        time.cyc(500);
        time.tsc(1200);
        assert_eq!(time.now(), 1500);
        time.cyc(400);
        assert_eq!(time.now(), 1600);
    }
}

//! Time from TSC, TMA, MTC, CYC and CBR packets.
//!
//! SDM section "Timing Packets". A TSC says the time. With the TMA behind it the time of the crystal clock's last count
//! before is known: TSC less the fast counter. An MTC is the time of a count; what lies between two counts is so many
//! TSC ticks as CPUID leaf 15H says. A CYC adds the core cycles since the one before, at the rate of the clocks.

use crate::calibration::{Calibration, Rate};
use crate::crystal::Crystal;
use crate::Config;
use pt_packet::Packet;

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
    crystal: Crystal,
    now: u64,
    estimate: u64,
    anchor: Anchor,
    /// Time and crystal count of the anchor.
    base: u64,
    count: u64,
    /// TSC ticks since, by cycles and fast counter.
    fast: u64,
    /// Of the crystal counts up to the anchor, those since the last MTC before which cycles were counted: the next CYC
    /// has them in it.
    uncounted: u64,
    /// What division left over of the last MTC.
    rest: u64,
    /// A CYC could not be used for want of a rate.
    lost_cycles: bool,
    in_psb: bool,
    calibration: Calibration,
    told: Option<u64>,
    calm: Calm,
    /// TSC ticks from one MTC to the next.
    period: Option<u64>,
}

/// While the clock is tied and `now` is ahead by `start` up to `size` more ticks, the uncertainty is the one that was told.
#[derive(Clone, Copy, Debug, Default)]
struct Calm {
    start: u64,
    size: u64,
}

impl Time {
    pub fn new(config: Config) -> Self {
        let crystal = Crystal::new(&config);
        Time {
            of_libipt: config.clock_of_libipt,
            forget_rate_at_overflow: config.forget_rate_at_overflow,
            crystal,
            now: 0,
            estimate: 0,
            anchor: Anchor::Nothing,
            base: 0,
            count: 0,
            fast: 0,
            uncounted: 0,
            rest: 0,
            lost_cycles: false,
            in_psb: false,
            calibration: Calibration::new(&config),
            told: None,
            calm: Calm::default(),
            period: crystal.in_tsc(crystal.period(), 0).map(|(ticks, _)| ticks),
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

    /// How far, in TSC ticks, the true time of what happens between this packet and the next timing packet may be from
    /// `now`: `None` when nothing bounds it.
    ///
    /// With MTC that is the time between two of them, if none was dropped. With CYC alone it is what an error of half
    /// a unit of the core to bus ratio makes of the cycles since the last TSC.
    #[inline]
    pub fn uncertainty(&self) -> Option<u64> {
        let ahead = self.ahead();
        if self.tied() {
            let ticks = self.period?;
            return Some(ahead.saturating_add(ticks).max(1));
        }
        if self.anchor != Anchor::Tsc {
            return None;
        }
        let ratio = self.calibration.core_ratio()?;
        Some(ahead.saturating_add(self.fast / (2 * u64::from(ratio))).saturating_add(1))
    }

    /// The uncertainty, rounded up to a power of two, when that changed since it was last asked for.
    #[inline(always)]
    pub fn uncertainty_news(&mut self) -> Option<Option<u64>> {
        if self.tied() && self.ahead().wrapping_sub(self.calm.start) < self.calm.size {
            return None;
        }
        self.new_uncertainty()
    }

    #[inline(never)]
    fn new_uncertainty(&mut self) -> Option<Option<u64>> {
        let bound = self.uncertainty().map(|ticks| ticks.checked_next_power_of_two().unwrap_or(u64::MAX));
        self.calm = match (self.tied(), self.period, bound) {
            (true, Some(period), Some(bound)) if bound.is_power_of_two() => {
                let start = (bound / 2 + 1).saturating_sub(period);
                Calm { start, size: bound - period - start + 1 }
            }
            _ => Calm::default(),
        };
        (bound != self.told).then(|| {
            self.told = bound;
            bound
        })
    }

    /// How far `now` is ahead of what the packets say.
    #[inline(always)]
    fn ahead(&self) -> u64 {
        self.now.saturating_sub(self.estimate)
    }

    /// Takes in a packet, whichever it is. True for one that may move the time.
    #[inline(always)]
    pub fn take(&mut self, packet: &Packet) -> bool {
        match *packet {
            Packet::Tsc(ticks) => self.tsc(ticks),
            Packet::Tma { ctc, fast_counter } => self.tma(ctc, fast_counter),
            Packet::Mtc(payload) => self.mtc(payload),
            Packet::Cyc(cycles) => self.cyc(cycles),
            Packet::Cbr { ratio } => self.cbr(ratio),
            Packet::Psb => {
                self.in_psb = true;
                self.calibration.psb();
                return false;
            }
            Packet::Psbend => {
                self.in_psb = false;
                return false;
            }
            Packet::Ovf => {
                self.in_psb = false;
                self.calibration.overflow(self.forget_rate_at_overflow);
                return false;
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn tsc(&mut self, ticks: u64) {
        self.calibration.tsc(ticks, self.in_psb);
        self.reanchor(Anchor::Tsc, ticks);
        (self.count, self.uncounted, self.rest) = (0, 0, 0);
        self.reach(ticks);
    }

    /// From here on cycles add to `base`.
    #[inline]
    fn reanchor(&mut self, anchor: Anchor, base: u64) {
        (self.anchor, self.base, self.fast, self.lost_cycles) = (anchor, base, 0, false);
    }

    fn tma(&mut self, ctc: u16, fast_counter: u16) {
        if self.anchor != Anchor::Tsc || !self.crystal.is_known() {
            return;
        }
        let whole = self.crystal.tma_is_whole();
        self.anchor = if whole { Anchor::Count } else { Anchor::PartOfCount };
        self.count = self.crystal.at_tma(ctc);
        let fast = u64::from(fast_counter);
        (self.base, self.fast) = (self.base.saturating_sub(fast), self.fast.saturating_add(fast));
    }

    #[inline(always)]
    fn mtc(&mut self, payload: u8) {
        let count = self.crystal.at_mtc(payload);
        if !self.next_mtc(count) {
            self.any_mtc(count);
        }
    }

    /// The MTC that is due, a whole number of ticks behind the one before, with cycles between them. False for any other.
    #[inline(always)]
    fn next_mtc(&mut self, count: u64) -> bool {
        let Some(ticks) = self.period.filter(|_| self.crystal.ticks_are_whole()) else { return false };
        let due = self.crystal.since(count, self.count) == self.crystal.period();
        if !(due
            && self.anchor == Anchor::Count
            && self.fast != 0
            && self.calibration.next_mtc(self.count, count, ticks))
        {
            return false;
        }
        (self.count, self.uncounted) = (count, 0);
        (self.base, self.fast, self.lost_cycles) = (self.base.saturating_add(ticks), 0, false);
        self.reach(self.base);
        true
    }

    #[inline(never)]
    fn any_mtc(&mut self, count: u64) {
        self.calibration.mtc(count, self.crystal);
        let before = match self.anchor {
            // Between a TSC and its TMA the bits cannot be told from those of a later one.
            Anchor::Tsc => return,
            // Nobody knows how long ago the MTC before would have been.
            Anchor::Nothing => None,
            Anchor::PartOfCount => Some(self.crystal.completed(self.count, count)),
            Anchor::CountAlone | Anchor::Count => Some(self.count),
        };
        let elapsed = before.map_or(0, |before| self.crystal.since(count, before));
        let counted = self.fast != 0 || self.lost_cycles || !matches!(self.anchor, Anchor::CountAlone | Anchor::Count);
        self.uncounted = if counted { 0 } else { self.crystal.since(self.uncounted.wrapping_add(elapsed), 0) };
        self.count = count;
        let anchor = if self.tied() { Anchor::Count } else { Anchor::CountAlone };
        let passed = before.and_then(|_| self.crystal.in_tsc(elapsed, self.rest));
        let (ticks, rest) = passed.unwrap_or((0, self.rest));
        self.rest = if self.of_libipt { 0 } else { rest };
        self.reanchor(anchor, self.base.saturating_add(ticks));
        if passed.is_some() {
            self.reach(self.base);
        }
    }

    #[inline(always)]
    fn cyc(&mut self, cycles: u64) {
        self.calibration.cyc(cycles);
        match self.calibration.rate() {
            Some(rate) if self.fast != 0 || self.uncounted == 0 => self.pass(rate.ticks(cycles)),
            _ => self.cyc_over_mtc(cycles),
        }
    }

    #[inline(always)]
    fn pass(&mut self, ticks: u64) {
        self.fast = self.fast.saturating_add(ticks);
        self.reach(self.base.saturating_add(self.fast));
    }

    /// A CYC that reaches over MTCs: what belongs to the time before the last of them does not count.
    fn cyc_over_mtc(&mut self, cycles: u64) {
        let Some(rate) = self.calibration.rate() else {
            self.lost_cycles = true;
            return;
        };
        let before = self.crystal.in_tsc(self.uncounted, 0).map_or(0, |(ticks, _)| rate.cycles(ticks));
        self.pass(rate.ticks(cycles.saturating_sub(before)));
    }

    fn cbr(&mut self, ratio: u8) {
        self.calibration.cbr(ratio, self.in_psb);
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

    fn skylake() -> Time {
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
    fn an_mtc_is_its_distance_in_crystal_ticks_from_the_tma() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0x1235, 40); // crystal tick 0x1235 at 9960; MTC payload bits 0x46, 5 ticks behind it
        time.mtc(0x47); // 3 ticks later
        assert_eq!(time.now(), 9_960 + 3 * 84);
        time.mtc(0x49);
        assert_eq!(time.now(), 9_960 + 19 * 84);
    }

    #[test]
    fn mtc_payloads_wrap() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0xff << 3, 0);
        time.mtc(0x01);
        assert_eq!(time.now(), 10_000 + 16 * 84);
    }

    #[test]
    fn cycles_count_in_the_ratio_of_the_clocks() {
        let mut time = skylake();
        time.cbr(40);
        time.tsc(1000);
        time.cyc(10);
        time.cyc(11);
        assert_eq!(time.now(), 1010);
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

    #[test]
    fn cycles_are_measured_between_mtcs_when_no_ratio_is_known() {
        let mut time = Time::new(Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), ..Config::default() });
        time.tsc(10_000);
        time.tma(0x46 << 3, 0);
        time.cyc(100);
        assert_eq!(time.now(), 10_000);
        time.cyc(236);
        time.mtc(0x47);
        time.cyc(168);
        time.mtc(0x48); // 672 ticks in 168 cycles
        time.cyc(10);
        assert_eq!(time.now(), 10_000 + 2 * 672 + 40);
    }

    #[test]
    fn mtcs_bound_the_time_by_their_distance() {
        let mut time = skylake();
        assert_eq!(time.uncertainty(), None);
        time.tsc(10_000);
        assert_eq!(time.uncertainty(), None);
        time.tma(0x46 << 3, 0);
        assert_eq!(time.uncertainty(), Some(8 * 84));
        time.mtc(0x47);
        assert_eq!(time.uncertainty_news(), Some(Some(1024)));
        assert_eq!(time.uncertainty_news(), None);
    }

    #[test]
    fn cycles_alone_bound_the_time_by_the_grain_of_the_core_ratio() {
        let mut time = skylake();
        time.tsc(10_000);
        time.cbr(20);
        time.cyc(4000);
        assert_eq!((time.now(), time.uncertainty()), (14_000, Some(101)));
    }

    #[test]
    fn no_cycle_is_measured_over_a_time_that_was_not_recorded() {
        let told = |clock_of_libipt| {
            let config = Config { mtc_freq: 3, tsc_ctc_ratio: (108, 1), nominal_ratio: 27, ..Config::default() };
            let mut time = Time::new(Config { clock_of_libipt, ..config });
            time.cbr(27);
            time.tsc(108 << 10);
            time.tma(1 << 10, 0);
            time.cyc(864);
            time.mtc(0x81);
            // Tracing stopped for 1000 crystal ticks less the 100 cycles that follow.
            time.tsc((2032 * 108) - 100);
            time.tma(2031, 8);
            time.cyc(100);
            time.mtc(0xfe);
            time.cyc(10);
            time.now()
        };
        assert_eq!(told(false), 2032 * 108 + 10);
        assert!(told(true) > 2032 * 108 + 10_000, "libipt's cycle becomes {} ticks", (told(true) - 2032 * 108) / 10);
    }
}

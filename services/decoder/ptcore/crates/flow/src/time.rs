//! Time from TSC, TMA, MTC, CYC and CBR packets.

use crate::calibration::{Calibration, Rate};
use crate::Config;
use pt_packet::Packet;

/// Bits of the crystal clock in a TMA and in an MTC.
const TMA_BITS: u32 = 16;
const MTC_BITS: u32 = 8;

/// Follows the timing packets of a stream; `now` never goes back.
///
/// SDM section "Timing packets": TMA ties the TSC to the crystal clock (the fast counter is the TSC ticks since that
/// clock's last tick), MTC carries 8 bits of the crystal clock from bit `mtc_freq` on, CYC counts core cycles since the
/// last CYC.
#[derive(Clone, Debug)]
pub struct Time {
    config: Config,
    now: u64,
    estimate: u64,
    /// The time of the crystal tick that `crystal` names, or of the last TSC, and the ticks since.
    base: u64,
    fast: u64,
    /// Whether a TSC was seen, a TMA since, and `crystal` is all that an MTC would say.
    known: bool,
    tied: bool,
    ticking: bool,
    /// Crystal ticks at the last TMA or MTC, as far as they have bits.
    crystal: u64,
    /// The same at the last MTC before which there was a CYC: from there on cycles count.
    crystal_of_cycles: u64,
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
    pub fn new(mut config: Config) -> Self {
        // Most processors have whole numbers of ticks: no division then.
        if let (numerator, denominator @ 1..) = config.tsc_ctc_ratio {
            if numerator % denominator == 0 {
                config.tsc_ctc_ratio = (numerator / denominator, 1);
            }
        }
        let mut time = Time {
            config,
            now: 0,
            estimate: 0,
            base: 0,
            fast: 0,
            known: false,
            tied: false,
            ticking: false,
            crystal: 0,
            crystal_of_cycles: 0,
            rest: 0,
            lost_cycles: false,
            in_psb: false,
            calibration: Calibration::default(),
            told: None,
            calm: Calm::default(),
            period: None,
        };
        time.period = time.in_tsc(1 << time.shift(), 0).map(|(ticks, _)| ticks);
        time
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

    /// How far, in TSC ticks, the true time of what happens between this packet and the next timing packet may be from
    /// `now`: `None` when nothing bounds it.
    ///
    /// With MTC that is the time between two of them, if none was dropped. With CYC alone it is what an error of half
    /// a unit of the core to bus ratio makes of the cycles since the last TSC.
    #[inline]
    pub fn uncertainty(&self) -> Option<u64> {
        if !self.known {
            return None;
        }
        let ahead = self.ahead();
        if self.tied {
            let ticks = self.period?;
            return Some(ahead.saturating_add(ticks).max(1));
        }
        let ratio = self.calibration.core_ratio()?;
        Some(ahead.saturating_add(self.fast / (2 * u64::from(ratio))).saturating_add(1))
    }

    /// The uncertainty, rounded up to a power of two, when that changed since it was last asked for.
    #[inline(always)]
    pub fn uncertainty_news(&mut self) -> Option<Option<u64>> {
        if self.tied && self.ahead().wrapping_sub(self.calm.start) < self.calm.size {
            return None;
        }
        self.new_uncertainty()
    }

    #[inline(never)]
    fn new_uncertainty(&mut self) -> Option<Option<u64>> {
        let bound = self.uncertainty().map(|ticks| ticks.checked_next_power_of_two().unwrap_or(u64::MAX));
        self.calm = match (self.tied, self.period, bound) {
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
                self.calibration.overflow(self.config.forget_rate_at_overflow);
                return false;
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn tsc(&mut self, ticks: u64) {
        self.calibration.tsc(ticks, self.in_psb);
        (self.known, self.tied, self.ticking) = (true, false, false);
        (self.base, self.fast, self.crystal, self.rest) = (ticks, 0, 0, 0);
        self.lost_cycles = false;
        self.reach(ticks);
    }

    fn tma(&mut self, ctc: u16, fast_counter: u16) {
        if !self.known || self.tied || self.in_tsc(1, 0).is_none() {
            return;
        }
        self.tied = true;
        self.base = self.base.saturating_sub(fast_counter.into());
        self.fast = self.fast.saturating_add(fast_counter.into());
        self.crystal = u64::from(ctc) & self.mask();
        self.crystal_of_cycles = self.crystal;
        // With fewer bits than an MTC has, the next MTC has to complete them.
        self.ticking = self.shift() + MTC_BITS <= TMA_BITS;
    }

    #[inline]
    fn mtc(&mut self, payload: u8) {
        let crystal = u64::from(payload) << self.shift();
        if let Some(period) = self.calibration.mtc(crystal, self.mask()) {
            let ticks = self.in_tsc(period, 0).map(|(ticks, _)| ticks);
            self.calibration.mtc_period(period, ticks, &self.config);
        }
        // Between TSC and TMA its bits cannot be told from those of a later one.
        if self.known && !self.tied {
            return;
        }
        let (last, ticking) = (self.crystal, self.ticking);
        if self.fast != 0 || self.lost_cycles || !ticking {
            self.crystal_of_cycles = crystal;
        }
        (self.ticking, self.fast, self.crystal, self.lost_cycles) = (true, 0, crystal, false);
        let last = match (ticking, self.tied) {
            (true, _) => last,
            (false, true) => self.completed(last, crystal),
            // The first one without a TMA: nobody knows how long ago the one before would have been.
            (false, false) => return,
        };
        let Some((ticks, rest)) = self.in_tsc(crystal.wrapping_sub(last) & self.mask(), self.rest) else { return };
        self.rest = rest;
        self.base = self.base.saturating_add(ticks);
        self.reach(self.base);
    }

    /// The crystal ticks of a TMA, of which only the low 16 bits are known, right before those of an MTC.
    fn completed(&self, tma: u64, mtc: u64) -> u64 {
        let low = (1 << TMA_BITS) - 1;
        let high = if mtc & low < tma { (mtc & !low).wrapping_sub(1 << TMA_BITS) } else { mtc & !low };
        (high | tma) & self.mask()
    }

    #[inline(always)]
    fn cyc(&mut self, cycles: u64) {
        self.calibration.cyc(cycles);
        match self.calibration.rate() {
            Some(rate) if self.fast != 0 || self.crystal == self.crystal_of_cycles => self.pass(rate.ticks(cycles)),
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
        let before = self.crystal.wrapping_sub(self.crystal_of_cycles) & self.mask();
        let before = self.in_tsc(before, 0).map_or(0, |(ticks, _)| rate.cycles(ticks));
        self.pass(rate.ticks(cycles.saturating_sub(before)));
    }

    fn cbr(&mut self, ratio: u8) {
        self.calibration.cbr(ratio, self.in_psb, self.config.nominal_ratio);
    }

    #[inline(always)]
    fn reach(&mut self, ticks: u64) {
        self.estimate = ticks;
        if self.known {
            self.now = self.now.max(ticks);
        }
    }

    fn shift(&self) -> u32 {
        u32::from(self.config.mtc_freq & 15)
    }

    /// The bits of the crystal clock up to the highest an MTC has.
    fn mask(&self) -> u64 {
        (1 << (self.shift() + MTC_BITS)) - 1
    }

    /// Crystal ticks as TSC ticks, and the remainder; `None` when their ratio is not known.
    #[inline]
    fn in_tsc(&self, crystal: u64, rest: u64) -> Option<(u64, u64)> {
        let (numerator, denominator) = self.config.tsc_ctc_ratio;
        if numerator == 0 || denominator == 0 {
            return None;
        }
        if let Some(ticks) = crystal.checked_mul(numerator.into()).and_then(|ticks| ticks.checked_add(rest)) {
            let denominator = u64::from(denominator);
            return Some(if denominator == 1 { (ticks, 0) } else { (ticks / denominator, ticks % denominator) });
        }
        let ticks = u128::from(crystal) * u128::from(numerator) + u128::from(rest);
        let denominator = u128::from(denominator);
        Some(((ticks / denominator) as u64, (ticks % denominator) as u64))
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
}

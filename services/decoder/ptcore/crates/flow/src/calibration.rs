//! How long a core cycle is: from the nominal ratio and CBR, or measured between two MTC or two TSC packets.

use crate::crystal::Crystal;
use crate::Config;
use std::num::NonZeroU64;

/// TSC ticks per core cycle, as a fixed-point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    pub const FRACTION: u32 = 16;
    /// Of what is not a whole tick.
    pub const PART: u64 = (1 << Rate::FRACTION) - 1;

    #[inline]
    fn new(ticks: u64, cycles: u64) -> Option<Rate> {
        if let (Some(rate), true) = ((ticks << Self::FRACTION).checked_div(cycles), ticks >> 48 == 0) {
            return NonZeroU64::new(rate).map(Rate);
        }
        let shifted = u128::from(ticks) << Self::FRACTION;
        let rate = shifted.checked_div(cycles.into())?;
        u64::try_from(rate).ok().and_then(NonZeroU64::new).map(Rate)
    }

    #[inline(always)]
    pub fn ticks(self, cycles: u64) -> u64 {
        match cycles.checked_mul(self.0.get()) {
            Some(ticks) => ticks >> Self::FRACTION,
            None => {
                u64::try_from((u128::from(cycles) * u128::from(self.0.get())) >> Self::FRACTION).unwrap_or(u64::MAX)
            }
        }
    }

    /// Ticks, and the part of one that is left over; `part` is what was left over before.
    #[inline(always)]
    pub fn ticks_and_part(self, cycles: u64, part: u64) -> (u64, u64) {
        match cycles.checked_mul(self.0.get()).and_then(|parts| parts.checked_add(part)) {
            Some(parts) => (parts >> Self::FRACTION, parts & Rate::PART),
            None => (self.ticks(cycles), part),
        }
    }

    pub fn cycles(self, ticks: u64) -> u64 {
        if ticks >> 48 == 0 {
            return (ticks << Self::FRACTION) / self.0;
        }
        u64::try_from((u128::from(ticks) << Self::FRACTION) / u128::from(self.0.get())).unwrap_or(u64::MAX)
    }

    /// In 256ths of a tick.
    fn coarse(self) -> Option<Rate> {
        NonZeroU64::new(self.0.get() & !0xff).map(Rate)
    }

    pub fn ratio(self) -> f64 {
        self.0.get() as f64 / f64::from(1 << Self::FRACTION)
    }
}

/// Cycles since a moment at which another clock was read.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// What the other clock said.
    since: Option<u64>,
    /// How many cycles had been counted.
    from: u64,
}

impl Stretch {
    /// Ends it and begins the next; what the clock said at the beginning, and the cycles.
    #[inline]
    fn renew(&mut self, clock: u64, cycles: u64) -> Option<(u64, u64)> {
        let Stretch { since, from } = std::mem::replace(self, Stretch { since: Some(clock), from: cycles });
        since.map(|since| (since, cycles.wrapping_sub(from)))
    }

    /// When it began, and the cycles up to now.
    fn as_of(self, cycles: u64) -> Option<(u64, u64)> {
        self.since.map(|since| (since, cycles.wrapping_sub(self.from)))
    }
}

/// A core does not become so many times faster or slower from one MTC to the next.
pub const FASTER: u64 = 8;

/// SKL168: the cycle counter has twelve bits, and the CYC that tells of its wrap may be missing before a PSB. A
/// sixteenth less allows for the clocks' variation.
const LOST_WRAP: u64 = (1 << 12) - (1 << 8);
/// From this MTC frequency on a period has so many cycles that a lost wrap does not stand out.
const WRAP_DROWNS: u8 = 10;

/// The rate of the core's clock, from whichever packets tell it best.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    config: Config,
    rate: Option<Rate>,
    core_ratio: Option<u8>,
    /// Counted so far.
    cycles: u64,
    by_tsc: Stretch,
    by_mtc: Stretch,
    /// How often that began anew where it is rare.
    renewals: u64,
    /// No MTC was seen since the last PSB.
    behind_psb: bool,
    /// There were MTCs to measure by.
    by_clock: bool,
}

impl Calibration {
    pub fn new(config: &Config) -> Self {
        Calibration { config: *config, ..Calibration::default() }
    }

    #[inline(always)]
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Whether there was a CYC: they are recorded.
    pub fn has_cycles(&self) -> bool {
        self.cycles != 0
    }

    /// Whether an MTC was seen since packets may have been missing.
    pub fn has_mtc(&self) -> bool {
        self.by_mtc.since.is_some()
    }

    /// Core to bus clock ratio by the last CBR, where that says how long a cycle is.
    #[inline]
    pub fn core_ratio(&self) -> Option<u8> {
        self.core_ratio.filter(|_| self.config.nominal_ratio != 0)
    }

    /// Whether what follows up to `ended` is measured from `joined` on as it would be from here on.
    pub fn leads_to(&self, joined: &Calibration, ended: &Calibration) -> bool {
        let same = (self.rate, self.core_ratio) == (joined.rate, joined.core_ratio)
            && (self.behind_psb, self.by_clock) == (joined.behind_psb, joined.by_clock)
            && self.has_cycles() == joined.has_cycles()
            && self.by_tsc.as_of(self.cycles) == joined.by_tsc.as_of(joined.cycles);
        let stretches = (self.by_mtc.as_of(self.cycles), joined.by_mtc.as_of(joined.cycles));
        // Clock packets without cycles between them measure nothing.
        let idle = matches!(stretches, (Some((_, 0)), Some((_, 0)))) && joined.cycles == ended.cycles;
        same && (stretches.0 == stretches.1 || idle)
    }

    /// What was begun before `joined` and goes on here was begun where `before` says, which leads there.
    pub fn go_on_from(&mut self, before: &Calibration, joined: &Calibration) {
        if self.renewals == joined.renewals && self.cycles == joined.cycles {
            let counted = before.cycles.wrapping_sub(before.by_mtc.from);
            self.by_mtc = Stretch { since: before.by_mtc.since, from: self.cycles.wrapping_sub(counted) };
        }
    }

    #[inline(always)]
    fn measured(&mut self, ticks: u64, cycles: u64) {
        let rate = Rate::new(ticks, cycles);
        self.rate = match self.config.clock_of_libipt {
            false => rate.or(self.rate),
            // A stretch of no ticks, as its count went once around, takes the rate away.
            true if cycles != 0 => rate.and_then(Rate::coarse),
            true => self.rate,
        };
    }

    pub fn psb(&mut self) {
        self.behind_psb = true;
    }

    /// Time may be missing in the stream: no stretch between clock packets goes over it.
    #[cold]
    pub fn gap(&mut self) {
        if !self.config.clock_of_libipt {
            self.by_mtc = Stretch::default();
            self.renewals += 1;
        }
    }

    /// Cycles were lost.
    pub fn overflow(&mut self, forget: bool) {
        if forget {
            self.forget();
        }
        (self.by_tsc, self.by_mtc) = (Stretch::default(), Stretch::default());
        self.renewals += 1;
    }

    /// What was measured last may be wrong: the ratio of the last CBR holds.
    #[cold]
    pub fn distrust(&mut self) {
        self.overflow(false);
        self.rate = self.by_ratio();
    }

    /// By the last CBR.
    fn by_ratio(&self) -> Option<Rate> {
        self.core_ratio.and_then(|ratio| Rate::new(self.config.nominal_ratio.into(), ratio.into()))
    }

    /// Whether a stretch over several MTCs has so few cycles that the core slept, or one of the two is damaged.
    fn is_no_rate(&self, ticks: u64, cycles: u64) -> bool {
        let known = self.by_ratio().or(self.rate).filter(|_| !self.config.clock_of_libipt);
        known.is_some_and(|rate| rate.ticks(cycles).saturating_mul(FASTER) < ticks)
    }

    fn forget(&mut self) {
        let (cycles, renewals) = (self.cycles, self.renewals + 1);
        *self = Calibration { cycles, renewals, ..Calibration::new(&self.config) };
    }

    /// A TSC; one outside of a PSB+ stands where time may be missing in front of it.
    pub fn tsc(&mut self, ticks: u64, in_psb: bool) {
        let stretch = self.by_tsc.renew(ticks, self.cycles);
        if !in_psb {
            return self.gap();
        }
        // Two MTCs are nearer to each other, and so to the present rate, than two PSBs. A CYC behind a TSC may have begun before it:
        // nobody knows then how far a rate by few of them is off, and how far one by the ratio is off is known. That MTCs come is
        // known where tracing began again, too, in front of the next one.
        let is_better_known = self.by_clock || self.core_ratio().is_some();
        let needless = self.by_mtc.since.is_some() || is_better_known && !self.config.clock_of_libipt;
        if let (Some((since, cycles)), false) = (stretch, needless) {
            if let Some(passed) = ticks.checked_sub(since) {
                self.measured(passed, cycles);
            }
        }
    }

    /// A CBR outside of a PSB+ tells of a change.
    pub fn cbr(&mut self, ratio: u8, in_psb: bool) {
        if ratio == 0 {
            return;
        }
        if !in_psb {
            self.forget();
        }
        self.core_ratio = Some(ratio);
        if self.config.nominal_ratio != 0 {
            self.measured(self.config.nominal_ratio.into(), ratio.into());
        }
    }

    /// Rate, cycles, and those counted at the last MTC, where the next one will do nothing but measure from that at `count`.
    pub fn steady(&self, count: u64) -> Option<(u64, u64, u64)> {
        let measures = !self.behind_psb && !self.config.clock_of_libipt && self.by_mtc.since == Some(count);
        self.rate.filter(|_| measures).map(|rate| (rate.0.get(), self.cycles, self.by_mtc.from))
    }

    /// Goes on where that has come to.
    pub fn go_on(&mut self, count: u64, rate: u64, cycles: u64, from: u64) {
        (self.rate, self.cycles) = (NonZeroU64::new(rate).map(Rate), cycles);
        self.by_mtc = Stretch { since: Some(count), from };
    }

    #[inline(always)]
    pub fn cyc(&mut self, cycles: u64) {
        self.cycles = self.cycles.wrapping_add(cycles);
    }

    /// The MTC at `count`, `ticks` behind the one at `before`. False when there is more to it.
    #[inline(always)]
    pub fn next_mtc(&mut self, before: u64, count: u64, ticks: u64) -> bool {
        if self.behind_psb || self.by_mtc.since != Some(before) || self.by_mtc.from == self.cycles {
            return false;
        }
        let cycles = self.cycles.wrapping_sub(self.by_mtc.from);
        self.by_mtc = Stretch { since: Some(count), from: self.cycles };
        self.measured(ticks, cycles);
        true
    }

    /// An MTC at a count. Those without cycles since the one before are passed over.
    #[inline]
    pub fn mtc(&mut self, count: u64, crystal: Crystal) {
        let behind_psb = std::mem::take(&mut self.behind_psb);
        if !crystal.is_known() && !self.config.clock_of_libipt {
            // Nothing can be measured between these: TSCs are what is left.
            return;
        }
        if self.by_mtc.since.is_some() && self.by_mtc.from == self.cycles {
            return;
        }
        self.renewals += 1;
        self.by_clock = true;
        let Some((since, cycles)) = self.by_mtc.renew(count, self.cycles) else { return };
        let counts = crystal.since(count, since);
        let Some((ticks, _)) = crystal.in_tsc(counts, 0) else { return };
        let over_mtc = counts > crystal.period();
        let misses = behind_psb && self.config.errata.skl168 && self.misses_cycles(over_mtc, ticks, cycles);
        if !(misses || over_mtc && self.is_no_rate(ticks, cycles)) {
            self.measured(ticks, cycles);
        }
    }

    /// Whether a stretch over a PSB lacks cycles.
    #[cold]
    fn misses_cycles(&self, over_mtc: bool, ticks: u64, cycles: u64) -> bool {
        let with_wrap = |rate: Rate| rate.ticks(cycles.saturating_add(LOST_WRAP));
        over_mtc || self.config.mtc_freq < WRAP_DROWNS && self.rate.is_some_and(|rate| with_wrap(rate) < ticks)
    }
}

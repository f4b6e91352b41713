//! How long a core cycle is: from the nominal ratio and CBR, or measured between two MTC or two TSC packets.

use crate::Config;
use std::num::NonZeroU64;

/// TSC ticks per core cycle, as a fixed-point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    const FRACTION: u32 = 16;

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

    pub fn cycles(self, ticks: u64) -> u64 {
        if ticks >> 48 == 0 {
            return (ticks << Self::FRACTION) / self.0;
        }
        u64::try_from((u128::from(ticks) << Self::FRACTION) / u128::from(self.0.get())).unwrap_or(u64::MAX)
    }

    pub fn ratio(self) -> f64 {
        self.0.get() as f64 / f64::from(1 << Self::FRACTION)
    }
}

/// The CYC counter of processors with SKL168 wraps after 4096 cycles; a little less allows for variation.
const LOST_WRAP: u64 = 0xf00;
/// Above this MTC frequency a wrap that was lost does not stand out.
const WRAP_STANDS_OUT: u8 = 10;

#[derive(Clone, Debug, Default)]
pub struct Calibration {
    rate: Option<Rate>,
    core_ratio: Option<u8>,
    last_tsc: Option<u64>,
    cycles_since_tsc: u64,
    last_mtc: Option<u64>,
    cycles_since_mtc: u64,
    /// No MTC was seen since the last PSB.
    behind_psb: bool,
}

impl Calibration {
    #[inline(always)]
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Core to bus clock ratio by the last CBR.
    #[inline]
    pub fn core_ratio(&self) -> Option<u8> {
        self.core_ratio
    }

    pub fn psb(&mut self) {
        self.behind_psb = true;
    }

    /// Cycles were lost.
    pub fn overflow(&mut self, forget: bool) {
        if forget {
            *self = Calibration::default();
        }
        (self.last_tsc, self.cycles_since_tsc, self.last_mtc, self.cycles_since_mtc) = (None, 0, None, 0);
    }

    /// A TSC outside of PSB+ may stand where time was lost: only one within it measures.
    pub fn tsc(&mut self, ticks: u64, in_psb: bool) {
        let cycles = std::mem::take(&mut self.cycles_since_tsc);
        let last = self.last_tsc.replace(ticks);
        // MTCs measure better.
        let (true, None, Some(last)) = (in_psb, self.last_mtc, last) else { return };
        if ticks >= last {
            self.rate = Rate::new(ticks - last, cycles).or(self.rate);
        }
    }

    /// A CBR outside of PSB+ is a change of the core's clock.
    pub fn cbr(&mut self, ratio: u8, in_psb: bool, nominal: u8) {
        if ratio == 0 {
            return;
        }
        if !in_psb {
            *self = Calibration::default();
        }
        self.core_ratio = Some(ratio);
        if nominal != 0 {
            self.rate = Rate::new(nominal.into(), ratio.into());
        }
    }

    #[inline(always)]
    pub fn cyc(&mut self, cycles: u64) {
        self.cycles_since_tsc = self.cycles_since_tsc.saturating_add(cycles);
        self.cycles_since_mtc = self.cycles_since_mtc.saturating_add(cycles);
    }

    /// An MTC; the crystal ticks since the last one before which there were cycles, when that can measure.
    #[inline]
    pub fn mtc(&mut self, crystal: u64, mask: u64) -> Option<u64> {
        let Some(last) = self.last_mtc else {
            (self.last_mtc, self.cycles_since_mtc, self.behind_psb) = (Some(crystal), 0, false);
            return None;
        };
        if self.cycles_since_mtc == 0 {
            self.behind_psb = false;
            return None;
        }
        self.last_mtc = Some(crystal);
        Some(crystal.wrapping_sub(last) & mask)
    }

    /// `ticks` in TSC of the period that `mtc` found.
    #[inline]
    pub fn mtc_period(&mut self, period: u64, ticks: Option<u64>, config: &Config) {
        let cycles = std::mem::take(&mut self.cycles_since_mtc);
        let behind_psb = std::mem::take(&mut self.behind_psb);
        let Some(ticks) = ticks else { return };
        if config.errata.skl168 && behind_psb {
            let lost_mtc = period > 1 << (config.mtc_freq & 15);
            let lost_wrap = config.mtc_freq < WRAP_STANDS_OUT
                && self.rate.is_some_and(|rate| rate.ticks(cycles.saturating_add(LOST_WRAP)) < ticks);
            if lost_mtc || lost_wrap {
                return;
            }
        }
        self.rate = Rate::new(ticks, cycles).or(self.rate);
    }
}

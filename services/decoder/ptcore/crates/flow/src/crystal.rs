//! The crystal clock, as TMA and MTC packets tell it.

use crate::Config;

/// Bits of the clock in a TMA and in an MTC.
const TMA_BITS: u32 = 16;
const MTC_BITS: u32 = 8;

/// Counts of the clock up to the highest bit that an MTC has, and what they are in TSC ticks (CPUID leaf 15H).
#[derive(Clone, Copy, Debug)]
pub struct Crystal {
    /// The lowest bit that an MTC has.
    shift: u32,
    numerator: u64,
    /// 0 when the ratio of the clocks is not known.
    denominator: u64,
}

impl Crystal {
    pub fn new(config: &Config) -> Self {
        let shift = u32::from(config.mtc_freq & 15);
        let (numerator, denominator) = match config.tsc_ctc_ratio {
            (0, _) | (_, 0) => (0, 0),
            // Most processors have whole numbers of ticks: no division then.
            (numerator, denominator) if numerator % denominator == 0 => (numerator / denominator, 1),
            known => known,
        };
        Crystal { shift, numerator: numerator.into(), denominator: denominator.into() }
    }

    pub fn is_known(self) -> bool {
        self.denominator != 0
    }

    pub fn shift(self) -> u32 {
        self.shift
    }

    /// Counts from one MTC to the next.
    pub fn period(self) -> u64 {
        1 << self.shift
    }

    #[inline]
    pub fn at_mtc(self, payload: u8) -> u64 {
        u64::from(payload) << self.shift
    }

    /// What a TMA tells of the count.
    pub fn at_tma(self, ctc: u16) -> u64 {
        self.since(ctc.into(), 0)
    }

    /// Whether a TMA has all bits of a count.
    pub fn tma_is_whole(self) -> bool {
        self.shift + MTC_BITS <= TMA_BITS
    }

    /// The count at a TMA that lacks its high bits, taken to be the last one like that before an MTC.
    pub fn completed(self, tma: u64, mtc: u64) -> u64 {
        let low = (1 << TMA_BITS) - 1;
        self.since(mtc, mtc.wrapping_sub(tma) & low)
    }

    /// From one count to another, at most once around.
    #[inline]
    pub fn since(self, later: u64, earlier: u64) -> u64 {
        later.wrapping_sub(earlier) & ((1 << (self.shift + MTC_BITS)) - 1)
    }

    /// After how many counts those since an MTC are the same again; since a TMA that lacks bits of its count.
    pub fn around(self, since_part: bool) -> u64 {
        1 << if since_part { TMA_BITS } else { self.shift + MTC_BITS }
    }

    /// Whether a count is a whole number of ticks.
    #[inline(always)]
    pub fn ticks_are_whole(self) -> bool {
        self.denominator == 1
    }

    /// Counts in TSC ticks, and what the division leaves; `rest` is what one before left.
    #[inline]
    pub fn in_tsc(self, counts: u64, rest: u64) -> Option<(u64, u64)> {
        if !self.is_known() {
            return None;
        }
        if let Some(ticks) = counts.checked_mul(self.numerator).and_then(|ticks| ticks.checked_add(rest)) {
            return Some(if self.ticks_are_whole() {
                (ticks, 0)
            } else {
                (ticks / self.denominator, ticks % self.denominator)
            });
        }
        let ticks = u128::from(counts) * u128::from(self.numerator) + u128::from(rest);
        let denominator = u128::from(self.denominator);
        Some(((ticks / denominator) as u64, (ticks % denominator) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_few_bits_is_the_last_one_before_the_mtc() {
        let crystal = Crystal::new(&Config { mtc_freq: 12, tsc_ctc_ratio: (1, 1), ..Config::default() });
        assert!(!crystal.tma_is_whole());
        assert_eq!(crystal.completed(0x1000, crystal.at_mtc(0x35)), 0x3_1000);
        assert_eq!(crystal.completed(0x6000, crystal.at_mtc(0x35)), 0x2_6000);
        assert_eq!(crystal.completed(0x6000, crystal.at_mtc(0x05)), 0xf_6000);
    }

    #[test]
    fn ticks_that_are_no_whole_numbers_leave_a_rest() {
        let crystal = Crystal::new(&Config { tsc_ctc_ratio: (7, 2), ..Config::default() });
        assert_eq!(crystal.in_tsc(3, 0), Some((10, 1)));
        assert_eq!(crystal.in_tsc(3, 1), Some((11, 0)));
        assert_eq!(Crystal::new(&Config::default()).in_tsc(3, 0), None);
    }
}

//! The clock of perf in terms of the TSC.

/// Parameters of the perf event page (`time_mult`, `time_shift`, `time_zero`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    pub mult: u64,
    pub shift: u32,
    pub zero: u64,
}

impl Conversion {
    /// `None` for parameters that no kernel gives.
    pub fn new(mult: u64, shift: u64, zero: u64) -> Option<Self> {
        let shift = u32::try_from(shift).ok().filter(|&shift| shift < 64)?;
        (mult != 0 && mult <= u64::from(u32::MAX)).then_some(Conversion { mult, shift, zero })
    }

    /// The line through two moments, each (TSC ticks, nanoseconds); `None` where they are none of a clock that goes on.
    pub fn through((tsc0, ns0): (u64, u64), (tsc1, ns1): (u64, u64)) -> Option<Self> {
        let (ticks, time) = (tsc1.checked_sub(tsc0)?, ns1.checked_sub(ns0)?);
        let mult = |shift: u32| (u128::from(time) << shift) / u128::from(ticks.max(1));
        let fits = |shift: &u32| (1..=u128::from(u32::MAX)).contains(&mult(*shift));
        let shift = (0..=32).rev().find(fits).filter(|_| ticks > 0)?;
        let line = Conversion { mult: mult(shift) as u64, shift, zero: 0 };
        Some(Conversion { zero: ns0.wrapping_sub(line.nanoseconds(tsc0)), ..line })
    }

    /// TSC ticks at a time in nanoseconds; perf_event_open(2), `cap_user_time_zero`, solved for the TSC.
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        let since = u128::from(nanoseconds.wrapping_sub(self.zero));
        u64::try_from((since << self.shift) / u128::from(self.mult)).unwrap_or(u64::MAX)
    }

    /// Nanoseconds at a time in TSC ticks.
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let since = (u128::from(ticks) * u128::from(self.mult)) >> self.shift;
        self.zero.wrapping_add(since as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_are_each_others_inverse() {
        let conversion = Conversion::new(1_076_264_588, 31, 18_433_473_881_008_870_804).unwrap();
        for ticks in [0, 1, 40_450_073_633_302_607, 1 << 55] {
            let there = conversion.ticks(conversion.nanoseconds(ticks));
            assert!(there.abs_diff(ticks) <= 2, "{ticks}: {there}");
        }
    }

    #[test]
    fn two_moments_make_a_line() {
        let (first, last) = ((9_000_000_000_000_000, 700_000_000), (9_000_002_500_000_000, 1_700_000_000));
        let line = Conversion::through(first, last).unwrap();
        for (tsc, ns) in [first, (9_000_001_250_000_000, 1_200_000_000), last] {
            assert!(line.nanoseconds(tsc).abs_diff(ns) <= 2, "{}", line.nanoseconds(tsc));
            assert!(line.ticks(ns).abs_diff(tsc) <= 4000, "{}", line.ticks(ns));
        }
        let too_fast = ((0, 0), (3, (3 << 32) + 1));
        for (first, last) in [((5, 1), (5, 2)), ((5, 1), (4, 2)), ((5, 2), (6, 1)), ((0, 0), (u64::MAX, 1)), too_fast] {
            assert_eq!(Conversion::through(first, last), None);
        }
    }

    #[test]
    fn parameters_that_cannot_be_are_none() {
        assert!(Conversion::new(0, 31, 0).is_none());
        assert!(Conversion::new(1 << 33, 31, 0).is_none());
        assert!(Conversion::new(1, 64, 0).is_none());
    }
}

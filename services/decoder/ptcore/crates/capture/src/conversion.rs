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
    fn parameters_that_cannot_be_are_none() {
        assert!(Conversion::new(0, 31, 0).is_none());
        assert!(Conversion::new(1 << 33, 31, 0).is_none());
        assert!(Conversion::new(1, 64, 0).is_none());
    }
}

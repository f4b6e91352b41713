//! How exact times by cycles alone are.

use crate::calibration::{Calibration, Rate};

/// What that depends on, since the last TSC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grain {
    /// The least core to bus ratio.
    ratio: Option<u8>,
    /// The next CYC may have begun before the TSC, or before a CBR.
    open: bool,
    /// The rate before that CBR.
    before: Option<Rate>,
    /// Ticks of CYCs like that.
    ticks: u64,
}

impl Grain {
    pub fn since_tsc(calibration: &Calibration) -> Grain {
        Grain { ratio: calibration.core_ratio(), open: true, before: None, ticks: 0 }
    }

    /// Behind a CBR; `before` is the rate before that.
    pub fn ratio(&mut self, calibration: &Calibration, before: Option<Rate>) {
        let Some(ratio) = calibration.core_ratio() else { return };
        self.ratio = Some(self.ratio.map_or(ratio, |least| least.min(ratio)));
        if before != calibration.rate() {
            (self.open, self.before) = (true, self.before.max(before));
        }
    }

    #[inline(always)]
    pub fn pass(&mut self, rate: Rate, cycles: u64) {
        if self.open {
            let slowest = self.before.map_or(rate, |before| before.max(rate));
            self.ticks = self.ticks.saturating_add(slowest.ticks(cycles));
            (self.open, self.before) = (false, None);
        }
    }

    /// What half a unit of the ratio makes of so many ticks, and what may have begun before.
    pub fn bound(&self, ticks: u64) -> Option<u64> {
        let ratio = u64::from(self.ratio?);
        Some((ticks / (2 * ratio - 1)).saturating_add(self.ticks))
    }
}

#[cfg(test)]
mod tests {
    use crate::time::tests::skylake;
    use crate::time::Time;
    use crate::Config;
    use pt_packet::Packet;

    #[test]
    fn cycles_alone_bound_the_time_by_the_grain_of_the_core_ratio() {
        let mut time = skylake();
        time.tsc(10_000);
        time.cbr(20);
        time.cyc(0);
        time.cyc(4000);
        assert_eq!((time.now(), time.uncertainty()), (14_000, Some(103)));
    }

    #[test]
    fn nothing_bounds_the_time_by_cycles_of_which_nobody_knows_how_long_they_are() {
        let mut time = Time::new(Config::default());
        for packet in [Packet::Tsc(10_000), Packet::Cbr { ratio: 20 }, Packet::Cyc(4000)] {
            time.take(&packet);
        }
        assert_eq!((time.now(), time.uncertainty()), (10_000, None));
        let mut time = skylake();
        for packet in [Packet::Tsc(10_000), Packet::Cyc(4000), Packet::Cbr { ratio: 20 }, Packet::Cyc(10)] {
            time.take(&packet);
        }
        assert_eq!((time.now(), time.uncertainty()), (10_010, None));
    }

    #[test]
    fn a_cycle_count_behind_a_tsc_or_another_ratio_may_have_begun_before_it() {
        let mut time = skylake();
        time.cbr(20);
        time.tsc(10_000);
        time.cyc(600);
        assert_eq!((time.now(), time.uncertainty()), (10_600, Some(600 + 600 / 39 + 1)));
        time.cbr(40);
        time.cyc(600);
        // They may have been those of the ratio before.
        assert_eq!((time.now(), time.uncertainty()), (10_900, Some(1200 + 900 / 39 + 1)));
    }

    #[test]
    fn the_grain_of_a_ratio_counts_behind_another_one() {
        let mut time = skylake();
        time.cbr(5);
        time.tsc(10_000);
        time.cyc(1);
        time.cyc(3999);
        assert_eq!((time.now(), time.uncertainty()), (26_000, Some(4 + 16_000 / 9 + 1)));
        time.cbr(40);
        assert_eq!(time.uncertainty(), Some(4 + 16_000 / 9 + 1));
    }

    #[test]
    fn a_rate_is_that_of_the_ratio_wherever_in_a_psb_it_is_told() {
        for in_front in [false, true] {
            let mut time = skylake();
            for ticks in [10_000, 11_000] {
                let (cbr, tsc) = (Packet::Cbr { ratio: 20 }, Packet::Tsc(ticks));
                let told = if in_front { [cbr, tsc] } else { [tsc, cbr] };
                // Of the cycles behind the first TSC some had begun before it.
                for packet in [Packet::Psb, told[0], told[1], Packet::Psbend, Packet::Cyc(2000)] {
                    time.take(&packet);
                }
            }
            assert_eq!(time.rate().map(|rate| rate.ratio()), Some(1.0), "CBR in front: {in_front}");
        }
    }
}

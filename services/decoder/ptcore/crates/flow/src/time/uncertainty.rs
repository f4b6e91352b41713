//! How far true times may be off.

use super::{Anchor, Time};

/// While the clock is tied and `now` is ahead by `start` up to `size` more ticks, the uncertainty is the one that was told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    pub start: u64,
    pub size: u64,
}

impl Calm {
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.size)
    }
}

impl Time {
    /// How far, in TSC ticks, the true time of what happens between this packet and the next timing packet may be from
    /// `now`: `None` when nothing bounds it.
    ///
    /// With MTC that is the time between two of them; behind an OVF nothing bounds it up to the next one, and what was dropped is
    /// taken to be less than 256 of them, where no cycles say how long it was. With CYC alone the true time of this packet is meant:
    /// it is what an error of half a unit of the core to bus ratio makes of the cycles since the last TSC.
    #[inline]
    pub fn uncertainty(&self) -> Option<u64> {
        if self.doubtful || self.behind_loss {
            return None;
        }
        let ahead = self.ahead();
        if self.tied() {
            let ticks = self.period?;
            return Some(ahead.saturating_add(ticks).max(1));
        }
        if self.anchor != Anchor::Tsc || !self.calibration.has_cycles() || self.lost_cycles {
            return None;
        }
        Some(ahead.saturating_add(self.grain.bound(self.fast)?).saturating_add(1))
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

    /// How far `now` is ahead of what the packets say: where cycles lead beyond the next MTC, of that.
    #[inline(always)]
    fn ahead(&self) -> u64 {
        let due = if self.tied() { self.base.saturating_add(self.period.unwrap_or(0)) } else { u64::MAX };
        self.now.saturating_sub(self.estimate.min(due))
    }
}

#[cfg(test)]
mod tests {
    use crate::time::tests::skylake;
    use crate::time::Time;
    use crate::Config;
    use pt_packet::Packet;

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
    fn nothing_bounds_the_time_behind_dropped_packets_up_to_the_next_mtc() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0x46 << 3, 0);
        assert_eq!(time.uncertainty_news(), Some(Some(1024)));
        time.take(&Packet::Ovf);
        assert_eq!(time.uncertainty_news(), Some(None));
        time.mtc(0x51);
        assert_eq!(time.uncertainty_news(), Some(Some(1024)));
    }

    #[test]
    fn parts_of_a_tick_between_two_mtcs_count_as_one() {
        let mut time = Time::new(Config { tsc_ctc_ratio: (257, 2), ..Config::default() });
        time.tsc(10_000);
        time.tma(1, 0);
        assert_eq!(time.uncertainty(), Some(129));
    }

    #[test]
    fn nothing_bounds_the_time_between_tscs_alone() {
        let mut time = skylake();
        time.tsc(10_000);
        time.cbr(20);
        assert_eq!(time.uncertainty(), None);
    }

    #[test]
    fn cycles_that_lead_beyond_the_next_mtc_may_be_as_late_as_they_lead() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0x46 << 3, 0);
        time.cbr(20);
        time.cyc(3 * 672);
        assert_eq!((time.now(), time.uncertainty()), (10_000 + 3 * 672, Some(3 * 672)));
        time.mtc(0x47);
        assert_eq!((time.now(), time.uncertainty()), (10_000 + 3 * 672, Some(3 * 672)));
    }
}

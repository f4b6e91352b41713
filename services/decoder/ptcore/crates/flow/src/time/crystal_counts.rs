//! TMA and MTC: counts of the crystal clock.

use super::{Anchor, Time};

impl Time {
    pub(super) fn tma(&mut self, ctc: u16, fast_counter: u16) {
        if self.anchor != Anchor::Tsc || self.doubtful || self.is_foreign() || !self.crystal.is_known() {
            return;
        }
        let whole = self.crystal.tma_is_whole();
        self.anchor = if whole { Anchor::Count } else { Anchor::PartOfCount };
        self.count = self.crystal.at_tma(ctc);
        let fast = u64::from(fast_counter);
        (self.base, self.fast) = (self.base.saturating_sub(fast), self.fast.saturating_add(fast));
    }

    #[inline(always)]
    pub(super) fn mtc(&mut self, payload: u8) {
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
        self.reanchor(Anchor::Count, self.base.saturating_add(ticks));
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
        let elapsed = if self.behind_loss { elapsed.saturating_add(self.turns(elapsed)) } else { elapsed };
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
            self.behind_loss &= !self.tied();
        }
    }

    /// Counts by which the clock has gone around behind dropped packets, as often as the cycles since say: the CYC of an OVF has
    /// those meanwhile.
    #[cold]
    fn turns(&self, elapsed: u64) -> u64 {
        let around = self.crystal.around(self.anchor == Anchor::PartOfCount);
        let in_tsc = |counts| self.crystal.in_tsc(counts, 0).map(|(ticks, _)| ticks);
        let (Some(told), Some(turn)) = (in_tsc(elapsed), in_tsc(around)) else { return 0 };
        if self.of_libipt || self.lost_cycles {
            return 0;
        }
        (self.fast.saturating_sub(told).saturating_add(turn / 2) / turn.max(1)).saturating_mul(around)
    }
}

#[cfg(test)]
mod tests {
    use crate::time::tests::skylake;
    use pt_packet::Packet;

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
    fn behind_an_overflow_cycles_tell_how_often_the_count_went_around() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0x46 << 3, 0);
        time.cbr(20);
        time.mtc(0x47);
        time.take(&Packet::Ovf);
        time.cyc(3 * 256 * 672 + 5 * 672 - 100);
        time.mtc(0x4c);
        assert_eq!(time.now(), 10_000 + (1 + 3 * 256 + 5) * 672);
    }

    #[test]
    fn mtc_payloads_wrap() {
        let mut time = skylake();
        time.tsc(10_000);
        time.tma(0xff << 3, 0);
        time.mtc(0x01);
        assert_eq!(time.now(), 10_000 + 16 * 84);
    }
}

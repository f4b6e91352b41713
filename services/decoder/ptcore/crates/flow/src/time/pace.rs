//! Time as it mostly goes on: by cycles, and by clock packets that are due.

use super::latest::SLACK;
use super::{Anchor, Time};
use crate::calibration::Rate;

/// What of a [`Time`] changes then, with the few conditions that are left.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    steady: bool,
    pub now: u64,
    base: u64,
    /// When the next clock packet is due.
    due: u64,
    /// By cycles since the base, in parts of a tick (`Rate::FRACTION`).
    fast: u64,
    count: u64,
    rate: u64,
    cycles: u64,
    /// Cycles that had been counted at the last clock packet.
    from: u64,
    calm_from: u64,
    calm: u64,
    /// Of a clock packet.
    ticks: u64,
    shift: u32,
    mask: u64,
}

/// What is far from every clock and every time, and far enough from 2^64 that no stream adds up to that.
const FASTEST: u64 = 1 << (8 + Rate::FRACTION);
const MOST_TICKS: u64 = 1 << 24;
const LATEST: u64 = 1 << 62;
/// In ticks: a pace is calm up to twice that, and so has room for parts of them.
const FARTHEST: u64 = 1 << 40;

impl Time {
    #[inline]
    pub fn pace(&self) -> Pace {
        let known = self.period.zip(self.calibration.steady(self.count));
        let (ticks, (rate, cycles, from)) = known.unwrap_or_default();
        let estimate = self.base.saturating_add(self.fast);
        let steady = known.is_some()
            && self.anchor == Anchor::Count
            && self.uncounted == 0
            && self.crystal.ticks_are_whole()
            && rate < FASTEST
            && ticks < MOST_TICKS
            && self.estimate == estimate
            && self.fast < FARTHEST
            && estimate < LATEST
            && self.calm.end().saturating_add(ticks) <= SLACK;
        // From `SLACK` on each CYC is held against what is ahead: a pace that is calm comes nowhere near it. What is not steady
        // is calm nowhere: no packet is taken in.
        let (base, rate, calm) = if steady { (self.base, rate, self.calm.size) } else { (0, 0, 0) };
        Pace {
            steady,
            now: self.now,
            base,
            due: base + ticks,
            fast: if steady { self.fast << Rate::FRACTION | self.part } else { 0 },
            count: self.count,
            rate,
            cycles,
            from,
            calm_from: self.calm.start,
            calm,
            ticks,
            shift: self.crystal.shift(),
            mask: self.crystal.since(u64::MAX, 0),
        }
    }

    /// Goes on where the pace has come to; one that is not steady comes nowhere.
    #[inline]
    pub fn keep(&mut self, pace: &Pace) {
        if !pace.steady {
            return;
        }
        (self.fast, self.part) = (pace.fast >> Rate::FRACTION, pace.fast & Rate::PART);
        (self.now, self.base, self.estimate) = (pace.now, pace.base, pace.base + self.fast);
        self.count = pace.count;
        self.calibration.go_on(pace.count, pace.rate, pace.cycles, pace.from);
    }
}

impl Pace {
    /// Takes in so many cycles, less than 2^20. False when there is more to it.
    #[inline(always)]
    pub fn cyc(&mut self, cycles: u64) -> bool {
        let fast = self.fast + cycles * self.rate;
        let estimate = self.base + (fast >> Rate::FRACTION);
        let now = self.now.max(estimate);
        let told = estimate.min(self.due);
        if (now - told).wrapping_sub(self.calm_from) >= self.calm {
            return false;
        }
        (self.fast, self.now) = (fast, now);
        self.cycles = self.cycles.wrapping_add(cycles);
        true
    }

    /// Takes in a clock packet. False when there is more to it.
    #[inline(always)]
    pub fn mtc(&mut self, payload: u8) -> bool {
        let count = u64::from(payload) << self.shift;
        let cycles = self.cycles.wrapping_sub(self.from);
        let due = count.wrapping_sub(self.count) & self.mask == 1 << self.shift;
        let estimate = self.due;
        let now = self.now.max(estimate);
        let calm = (now - estimate).wrapping_sub(self.calm_from) < self.calm;
        if !(due && calm && self.fast >> Rate::FRACTION != 0 && cycles != 0) {
            return false;
        }
        let rate = (self.ticks << Rate::FRACTION) / cycles;
        if rate >= FASTEST {
            return false;
        }
        if rate != 0 {
            self.rate = rate;
        }
        (self.base, self.due, self.fast, self.now) = (estimate, estimate + self.ticks, 0, now);
        (self.count, self.from) = (count, self.cycles);
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::time::tests::skylake;
    use crate::time::Time;
    use pt_packet::Packet;

    /// The same by each packet and at the pace, where that goes on; how many of the packets did nothing else.
    fn both(time: &mut Time, packets: &[Packet]) -> usize {
        let mut alone = time.clone();
        let mut pace = time.pace();
        let mut steady = 0;
        for packet in packets {
            alone.take(packet);
            let news = alone.uncertainty_news();
            let goes_on = match *packet {
                Packet::Cyc(cycles) => pace.cyc(cycles),
                Packet::Mtc(payload) => pace.mtc(payload),
                _ => false,
            };
            if goes_on {
                assert_eq!(news, None);
                steady += 1;
            } else {
                time.keep(&pace);
                time.take(packet);
                assert_eq!(time.uncertainty_news(), news);
                pace = time.pace();
            }
            assert_eq!(pace.now, alone.now());
        }
        time.keep(&pace);
        assert_eq!(format!("{time:?}"), format!("{alone:?}"));
        steady
    }

    fn begun() -> Time {
        let mut time = skylake();
        for packet in [Packet::Cbr { ratio: 20 }, Packet::Tsc(10_000), Packet::Tma { ctc: 0x46 << 3, fast_counter: 0 }]
        {
            time.take(&packet);
            time.uncertainty_news();
        }
        time
    }

    #[test]
    fn times_at_the_pace_are_those_of_packets_one_by_one() {
        // 672 ticks from one MTC to the next.
        let mut packets = Vec::new();
        for count in 0x47..=0xff {
            packets.extend([
                Packet::Cyc(300),
                Packet::Cyc(1),
                Packet::Cyc(380 + u64::from(count & 7)),
                Packet::Mtc(count),
            ]);
        }
        let steady = both(&mut begun(), &packets);
        assert!(steady * 10 > packets.len() * 9, "{steady} of {}", packets.len());
    }

    #[test]
    fn whatever_is_not_due_is_left_to_the_time() {
        let cyc = Packet::Cyc(600);
        let lost =
            [cyc, Packet::Mtc(0x47), cyc, Packet::Mtc(0x48), cyc, Packet::Mtc(0x4c), cyc, Packet::Mtc(0x4d), cyc];
        both(&mut begun(), &lost);
        let without_cycles = [cyc, Packet::Mtc(0x47), Packet::Mtc(0x48), cyc, Packet::Mtc(0x49), cyc];
        both(&mut begun(), &without_cycles);
        let slower =
            [cyc, Packet::Mtc(0x47), Packet::Cyc(50), Packet::Mtc(0x48), Packet::Cyc(5000), Packet::Mtc(0x49), cyc];
        both(&mut begun(), &slower);
        let tsc = [cyc, Packet::Mtc(0x47), cyc, Packet::Tsc(20_000), cyc, Packet::Mtc(0x48), cyc];
        both(&mut begun(), &tsc);
    }

    #[test]
    fn packets_by_chance_have_the_same_times() {
        let mut state = 1_u64;
        let mut chance = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut count = 0x46_u8;
            let packets: Vec<_> = (0..300)
                .map(|_| match chance(40) {
                    0 => Packet::Tsc(chance(1 << 20) << chance(36)),
                    1 => Packet::Cbr { ratio: 1 + chance(40) as u8 },
                    2 => Packet::Psb,
                    3 => Packet::Psbend,
                    4 => Packet::Ovf,
                    5 => Packet::Mtc(chance(256) as u8),
                    6 => Packet::Cyc(chance(2) + (chance(1 << 19) & chance(2).wrapping_neg())),
                    7..=16 => {
                        count = count.wrapping_add(1);
                        Packet::Mtc(count)
                    }
                    _ => Packet::Cyc(chance(700)),
                })
                .collect();
            both(&mut begun(), &packets);
        }
    }
}

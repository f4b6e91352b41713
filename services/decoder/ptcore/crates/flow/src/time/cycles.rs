//! CYC: core cycles since the packet before.

use super::Time;
use crate::calibration::Rate;

impl Time {
    #[inline(always)]
    pub(super) fn cyc(&mut self, cycles: u64) {
        self.calibration.cyc(cycles);
        match self.calibration.rate() {
            Some(rate) if self.fast != 0 || self.uncounted == 0 => {
                self.grain.pass(rate, cycles);
                self.pass(rate, cycles);
            }
            _ => self.cyc_over_mtc(cycles),
        }
    }

    #[inline(always)]
    fn pass(&mut self, rate: Rate, cycles: u64) {
        let (ticks, part) = rate.ticks_and_part(cycles, self.part);
        self.part = if self.of_libipt { 0 } else { part };
        self.fast = self.fast.saturating_add(ticks);
        self.reach(self.base.saturating_add(self.fast));
    }

    /// A CYC that reaches over MTCs: what belongs to the time before the last of them does not count.
    fn cyc_over_mtc(&mut self, cycles: u64) {
        let Some(rate) = self.calibration.rate() else {
            self.lost_cycles = true;
            return;
        };
        let before = self.crystal.in_tsc(self.uncounted, 0).map_or(0, |(ticks, _)| rate.cycles(ticks));
        self.pass(rate, cycles.saturating_sub(before));
        if !self.of_libipt {
            // The next one begins here, behind those MTCs.
            self.uncounted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::time::tests::skylake;
    use crate::time::Time;
    use crate::Config;
    use pt_packet::{Ip, Packet};

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
    fn what_cycles_leave_over_of_a_tick_counts() {
        let mut time = skylake();
        time.cbr(40);
        time.tsc(1000);
        (0..1001).for_each(|_| time.cyc(1));
        assert_eq!(time.now(), 1500);
    }

    #[test]
    fn what_ran_before_mtcs_is_taken_from_the_first_cyc_behind_them_alone() {
        let mut time = skylake();
        time.cbr(20);
        time.tsc(10_000);
        time.tma(0x46 << 3, 0);
        time.mtc(0x47);
        time.mtc(0x48);
        // Less than the crystal counted, as cores are not as fast as they say they are.
        time.cyc(2 * 672 - 4);
        assert_eq!(time.now(), 10_000 + 2 * 672);
        time.cyc(300);
        assert_eq!(time.now(), 10_000 + 2 * 672 + 300);
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
    fn no_cycle_is_measured_over_a_time_that_was_not_recorded() {
        let told = |clock_of_libipt, in_psb| {
            let config = Config { mtc_freq: 3, tsc_ctc_ratio: (108, 1), nominal_ratio: 27, ..Config::default() };
            let mut time = Time::new(Config { clock_of_libipt, ..config });
            time.cbr(27);
            time.tsc(108 << 10);
            time.tma(1 << 10, 0);
            time.cyc(864);
            time.mtc(0x81);
            // Tracing stopped for two and a half periods, less than what cores get slower by at once.
            if in_psb {
                time.take(&Packet::Psb);
            }
            time.tsc(0x41c * 108);
            time.tma(0x41c, 0);
            if in_psb {
                time.take(&Packet::Psbend);
            }
            time.cyc(432);
            time.mtc(0x84);
            time.cyc(10);
            time.now() - 0x420 * 108
        };
        for in_psb in [false, true] {
            assert_eq!((told(false, in_psb), told(true, in_psb)), (10, 60), "libipt's; within a PSB+: {in_psb}");
        }
    }

    #[test]
    fn a_cycle_is_measured_over_a_psb_that_stands_in_what_runs() {
        let mut time = Time::new(Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), ..Config::default() });
        time.tsc(10_000);
        time.tma(0x46 << 3, 0);
        time.mtc(0x47);
        time.cyc(84);
        let psb = [Packet::Psb, Packet::Tsc(10_000 + 672 + 336), Packet::Tma { ctc: 0x47 << 3 | 4, fast_counter: 0 }];
        for packet in psb.iter().chain(&[Packet::Fup(Ip::SUPPRESSED), Packet::Psbend]) {
            time.take(packet);
        }
        time.cyc(84);
        time.mtc(0x48); // 672 ticks in 168 cycles
        time.cyc(10);
        assert_eq!(time.now(), 10_000 + 2 * 672 + 40);
    }

    #[test]
    fn where_clock_packets_measure_nothing_a_cycle_is_measured_between_psbs() {
        let mut time = Time::new(Config { mtc_freq: 3, ..Config::default() });
        for ticks in [10_000, 20_000] {
            for packet in [Packet::Psb, Packet::Tsc(ticks), Packet::Psbend, Packet::Mtc(1), Packet::Cyc(2_500)] {
                time.take(&packet);
            }
        }
        assert_eq!(time.now(), 30_000);
    }

    #[test]
    fn no_cycle_is_measured_over_packets_that_could_not_be_read() {
        let mut time = skylake();
        time.cbr(20);
        time.tsc(10_000);
        time.tma(0x46 << 3, 0);
        time.cyc(600);
        time.mtc(0x47);
        time.miss_packets();
        time.cyc(300);
        time.mtc(0x49);
        time.cyc(10);
        assert_eq!(time.now(), 10_000 + 3 * 672 + 10);
    }
}

//! Time that is carried from one part of a stream to the next.

use super::{Latest, Time};
use crate::Config;
use pt_packet::{find_psb, Packet, Reader};

impl Time {
    /// Takes in the packets from the PSB at `psb` up to `end`, and nothing but their times.
    pub(crate) fn follow(&mut self, config: &Config, data: &[u8], psb: usize, end: usize) {
        let (whole, data) = (data, &data[..end]);
        let mut latest = Latest::new(*config);
        let mut reader = Reader::with_errata(data, config.errata);
        reader.seek(psb);
        loop {
            match reader.read() {
                Ok(Some(packet)) => {
                    self.take_before(&packet, whole, reader.offset(), &mut latest);
                    if packet == Packet::Psb {
                        self.world.at_psb(whole, reader.offset(), config.errata);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    let Some(next) = find_psb(data, error.offset + 1) else { return };
                    reader.seek(next);
                    self.miss_packets();
                }
            }
        }
    }

    /// Whether a part of a stream that began at `joined` and ended at `ended` tells times as it would have from here on.
    pub fn leads_to(&self, joined: &Time, ended: &Time) -> bool {
        let same = self.now == joined.now
            && self.estimate == joined.estimate
            && (self.anchor, self.base, self.count, self.fast, self.part)
                == (joined.anchor, joined.base, joined.count, joined.fast, joined.part)
            && self.world == joined.world
            && (self.tied() || self.grain == joined.grain)
            && (self.uncounted, self.rest) == (joined.uncounted, joined.rest)
            && (self.lost_cycles, self.in_psb) == (joined.lost_cycles, joined.in_psb)
            && (self.doubtful, self.behind_loss) == (joined.doubtful, joined.behind_loss);
        same && self.calibration.leads_to(&joined.calibration, &ended.calibration)
    }

    /// This time is one of a part that began at `joined`: what of it was there before is that of `before`, which leads there.
    pub fn go_on_from(&mut self, before: &Time, joined: &Time) {
        self.calibration.go_on_from(&before.calibration, &joined.calibration);
    }
}

#[cfg(test)]
mod tests {
    use crate::time::tests::skylake;
    use crate::time::Time;
    use pt_packet::{Ip, Packet};

    impl Time {
        fn with_cycle(&self) -> Time {
            let mut time = self.clone();
            time.take(&Packet::Cyc(1));
            time
        }
    }

    fn psb(time: &mut Time, ticks: u64) {
        let tma = Packet::Tma { ctc: (ticks / 84) as u16, fast_counter: (ticks % 84) as u16 };
        let packets = [
            Packet::Psb,
            Packet::Tsc(ticks),
            tma,
            Packet::Cbr { ratio: 20 },
            Packet::Fup(Ip::SUPPRESSED),
            Packet::Psbend,
        ];
        for packet in &packets {
            time.take(packet);
        }
    }

    fn run(time: &mut Time, from: u8, counts: u8) {
        for count in from..from + counts {
            time.take(&Packet::Cyc(660));
            time.take(&Packet::Mtc(count));
        }
    }

    #[test]
    fn what_was_before_two_clock_packets_and_a_psb_does_not_matter() {
        let (mut whole, mut part) = (skylake(), skylake());
        psb(&mut whole, 672 * 10);
        run(&mut whole, 11, 10);
        for time in [&mut whole, &mut part] {
            psb(time, 672 * 20 + 300);
            run(time, 21, 1);
        }
        assert!(!whole.leads_to(&part, &part), "the first stretch of cycles reaches over the PSB");
        for time in [&mut whole, &mut part] {
            run(time, 22, 2);
            psb(time, 672 * 23 + 300);
        }
        assert!(whole.leads_to(&part, &part));
    }

    #[test]
    fn the_rate_in_front_of_a_psb_does_not_matter_to_clock_packets_behind_it() {
        let (mut whole, mut part) = (skylake(), skylake());
        psb(&mut whole, 672 * 10);
        run(&mut whole, 11, 10);
        for time in [&mut whole, &mut part] {
            psb(time, 672 * 20 + 300);
            run(time, 21, 3);
        }
        assert!(whole.leads_to(&part, &part));
    }

    #[test]
    fn clock_packets_without_cycles_do_not_matter_as_long_as_there_are_none() {
        let (mut whole, mut part) = (skylake(), skylake());
        whole.take(&Packet::Mtc(1));
        part.take(&Packet::Mtc(3));
        for time in [&mut whole, &mut part] {
            psb(time, 672 * 4);
        }
        let mut ended = part.clone();
        ended.take(&Packet::Mtc(5));
        assert!(whole.leads_to(&part, &ended));
        let mut next = ended.clone();
        next.go_on_from(&whole, &part);
        whole.take(&Packet::Mtc(5));
        assert!(whole.leads_to(&next, &next) && !whole.leads_to(&ended, &whole.with_cycle()));
    }
}

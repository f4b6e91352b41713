//! From when to when a stream is, by its TSC packets alone.

use pt_flow::{whole_tsc, Config, Latest, World};
use pt_packet::Packet;

/// The first and the latest time of the TSC packets of hosts and of guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    hosts: Option<(u64, u64)>,
    guests: Option<(u64, u64)>,
}

impl Times {
    /// Those of the host; those of guests where no others are known. `None` without any TSC.
    pub fn range(&self) -> Option<(u64, u64)> {
        self.hosts.or(self.guests)
    }

    /// Adds what stands behind.
    #[inline]
    pub(crate) fn add(&mut self, behind: Times) {
        for (all, behind) in [(&mut self.hosts, behind.hosts), (&mut self.guests, behind.guests)] {
            *all = match (*all, behind) {
                (Some((first, last)), Some((_, behind))) => Some((first, last.max(behind))),
                (before, behind) => before.or(behind),
            };
        }
    }
}

/// Tells the times of TSC packets. The flow's clock passes over the same ones: damaged ones, and guests' where a host's is known.
pub(crate) struct Clock<'c> {
    config: &'c Config,
    latest: Latest,
    world: World,
}

impl<'c> Clock<'c> {
    pub fn new(config: &'c Config) -> Self {
        Clock { config, latest: Latest::new(*config), world: World::default() }
    }

    /// Of a packet that ends at the offset.
    #[inline]
    pub fn take(&mut self, packet: &Packet, data: &[u8], offset: usize) -> Option<Times> {
        match *packet {
            Packet::Tsc(ticks) => self.tsc(whole_tsc(ticks, self.config.reference_tsc), data, offset),
            Packet::Pip { non_root, .. } => {
                self.world.enter(non_root);
                None
            }
            Packet::Psb => {
                // Nothing of what was before counts: so a part of a stream tells what the whole does.
                self.world = World::default();
                self.world.at_psb(data, offset, self.config.errata);
                None
            }
            _ => None,
        }
    }

    #[cold]
    fn tsc(&mut self, ticks: u64, data: &[u8], offset: usize) -> Option<Times> {
        let guest = self.world.is_guest();
        // No time is later than that of a PSB behind it.
        let told = (ticks <= self.latest.at(data, offset, Some(guest))).then_some((ticks, ticks))?;
        let (hosts, guests) = if guest { (None, Some(told)) } else { (Some(told), None) };
        Some(Times { hosts, guests })
    }
}

#[cfg(test)]
mod tests {
    use crate::Counts;
    use pt_flow::{Config, Workers};
    use pt_packet::writer::write;
    use pt_packet::{Packet, PSB};

    const ONE: Workers = Workers { threads: 1, part_bytes: usize::MAX };

    fn stream(packets: impl IntoIterator<Item = Packet>) -> Vec<u8> {
        let mut data = Vec::new();
        packets.into_iter().for_each(|packet| write(&mut data, packet));
        data
    }

    fn range(data: &[u8], config: &Config, workers: Workers) -> Option<(u64, u64)> {
        Counts::of(data, config, workers, &|| true).times.range()
    }

    #[test]
    fn times_that_go_back_end_where_they_were_latest() {
        let mut data = PSB.to_vec();
        data.extend(stream([1000, 4000, 500].map(Packet::Tsc)));
        let two = Workers { threads: 2, part_bytes: 100 };
        assert_eq!(range(&data, &Config::default(), ONE), Some((1000, 4000)));
        // The later times of next PSBs are no earlier than those in front of them.
        let data = stream((0..100).flat_map(|round| [Packet::Psb, Packet::Tsc(1000 + round), Packet::Psbend]));
        assert_eq!(range(&data, &Config::default(), two), Some((1000, 1099)));
    }

    #[test]
    fn a_damaged_time_is_none_of_the_streams() {
        for damaged in [0, 3, 7] {
            let bits = |round| if round == damaged { 1 << 55 } else { 0 };
            let psbs = (0..10).map(|round| [Packet::Psb, Packet::Tsc((1000 + round) | bits(round)), Packet::Psbend]);
            let data = stream(psbs.flatten());
            let first = if damaged == 0 { 1001 } else { 1000 };
            assert_eq!(range(&data, &Config::default(), ONE), Some((first, 1009)), "{damaged}");
        }
    }

    #[test]
    fn the_times_of_guests_count_where_there_are_no_others() {
        let pip = |non_root| Packet::Pip { cr3: 0x1000, non_root };
        let psb = |ticks, non_root| [Packet::Psb, Packet::Tsc(ticks), pip(non_root), Packet::Psbend];
        let guest = [psb(70_000, true), psb(80_000, true)];
        assert_eq!(range(&stream(guest.concat()), &Config::default(), ONE), Some((70_000, 80_000)));
        let entered = [[Packet::Tsc(2000), pip(true), Packet::Tsc(90_000), pip(false)]];
        let both = [&guest[..], &[psb(1000, false)], &entered[..], &[psb(3000, false)], &guest[..]].concat();
        assert_eq!(range(&stream(both.concat()), &Config::default(), ONE), Some((1000, 3000)));
    }

    #[test]
    fn times_go_on_where_the_bits_that_packets_have_of_the_tsc_wrap() {
        const WRAP: u64 = 1 << 56;
        let ticks = [3 * WRAP - 1000, 3 * WRAP - 1, 3 * WRAP + 5, 3 * WRAP + 9];
        let data = stream(ticks.into_iter().flat_map(|ticks| [Packet::Psb, Packet::Tsc(ticks % WRAP), Packet::Psbend]));
        let config = Config { reference_tsc: 3 * WRAP, ..Config::default() };
        assert_eq!(range(&data, &config, ONE), Some((ticks[0], ticks[3])));
    }
}

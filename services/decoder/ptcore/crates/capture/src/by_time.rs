//! Who runs in a stream, known by time: where that is in the stream is found while it is read.

use crate::attribute::{Placing, Turn};
use crate::guests::{BesideGuests, Guests};
use pt_flow::Config;
use pt_packet::{Packet, Reader};

/// Numbers of views, but for the times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByTime {
    pub(crate) first: u32,
    pub(crate) turns: Vec<Turn>,
    /// What holds in a stream without times, where that is known.
    pub(crate) alone: Option<u32>,
    pub(crate) guest: u32,
    /// Offsets of the stream in front of which packets are missing.
    pub(crate) missing: Vec<usize>,
}

impl ByTime {
    /// The views that may hold in the stream.
    pub fn all(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.first).chain(self.turns.iter().map(|turn| turn.view))
    }

    pub(crate) fn views<'d>(&'d self, data: &'d [u8], config: &Config) -> Views<'d> {
        let placing = Placing::new(data, &self.missing, config, self.first, &self.turns);
        let host = Host { placing, alone: self.alone };
        Views { of: self, data, both: BesideGuests::new(host, Guests::new(data, config.errata), self.guest) }
    }
}

/// From which offset on which view holds; one may be given again.
pub(crate) struct Views<'d> {
    of: &'d ByTime,
    data: &'d [u8],
    both: BesideGuests<Host<'d>, Guests<'d>>,
}

impl Iterator for Views<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        self.both.next()
    }
}

impl Views<'_> {
    /// Up to where turns were looked for.
    pub fn read_to(&self) -> usize {
        self.both.host.placing.scan_offset()
    }

    pub fn has_guests(&self) -> bool {
        self.both.guests.ran > 0
    }

    /// What is to be told of those that were given.
    pub fn warnings(&self, name: &str) -> Vec<String> {
        let (placed, ran) = (self.both.host.placing.placed(), self.both.guests.ran);
        let guests = format!("{name}: virtual machines ran {ran} times: what ran in them is not in the recording");
        let turns = |count: usize, what: &str| {
            format!("{name}: {count} of {} changes of thread or mappings: {what}", self.of.turns.len())
        };
        let of_several = placed.timeless && self.of.alone.is_none() && !self.of.turns.is_empty();
        let timeless = of_several && tells_what_ran(self.data);
        let whose = format!(
            "{name}: the packets have no times (tsc=0): which of several threads ran is not known; record without tsc=0, or given \
             threads with --per-thread"
        );
        let told = [
            (usize::from(timeless), whose),
            (ran, guests),
            (placed.ambiguous, turns(placed.ambiguous, "several places fit")),
            (placed.coarse, turns(placed.coarse, "only the clock packets tell")),
        ];
        told.into_iter().filter(|&(count, _)| count > 0).map(|(_, warning)| warning).collect()
    }
}

/// Whether there is anything to follow behind the first PSB.
fn tells_what_ran(data: &[u8]) -> bool {
    let mut reader = Reader::new(data);
    let _ = reader.synchronize();
    let mut packets = std::iter::from_fn(|| reader.read().ok().flatten());
    packets.any(|packet| matches!(packet, Packet::Tip(_) | Packet::TipPge(_) | Packet::Tnt { .. }))
}

struct Host<'d> {
    placing: Placing<'d>,
    alone: Option<u32>,
}

impl Iterator for Host<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        let (at, view) = self.placing.next()?;
        // Without a time all is over before the first one is given.
        let alone = self.alone.filter(|_| self.placing.placed().timeless);
        Some((at, alone.unwrap_or(view)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::AHEAD;
    use pt_packet::{writer, Compression, Ip, Packet};

    const GUEST: u32 = 9;

    /// Pieces of half of what is read ahead, each with a PSB+ that tells the time, from 100 on.
    fn stream(pieces: u64, behind_psb: impl Fn(u64) -> Vec<Packet>) -> Vec<u8> {
        let mut data = Vec::new();
        for piece in 0..pieces {
            let ip = Packet::Fup(Ip { compression: Compression::Full, payload: 0x1000 });
            let packets = [Packet::Psb, Packet::Tsc(100 * (piece + 1)), ip, Packet::Psbend];
            packets.into_iter().chain(behind_psb(piece)).for_each(|packet| writer::write(&mut data, packet));
            data.resize((piece as usize + 1) * AHEAD / 2, 0);
        }
        data
    }

    fn by_time(turns: &[(u64, u32)]) -> ByTime {
        let turn = |&(tsc, view): &(u64, u32)| Turn { from: tsc, to: tsc, view, pid: 0 };
        ByTime { first: 1, turns: turns.iter().map(turn).collect(), alone: None, guest: GUEST, missing: Vec::new() }
    }

    #[test]
    fn what_is_far_ahead_is_not_read_before_the_flow_comes_near() {
        let non_root = |piece: u64| Packet::Pip { cr3: 0x5000, non_root: piece % 8 == 6 };
        let data = stream(32, |piece| vec![non_root(piece)]);
        let by_time = by_time(&[(250, 2), (2550, 3)]);
        let mut views = by_time.views(&data, &Config::default());
        let (mut all, mut last) = (Vec::new(), 0);
        while let Some((at, view)) = views.next() {
            let placing = &views.both.host.placing;
            assert!(at >= last && placing.scan_offset().min(data.len()) <= at + 3 * AHEAD || placing.is_over());
            assert!(at - last <= AHEAD);
            (last, _) = (at, all.push((at, view)));
        }
        all.dedup_by_key(|&mut (_, view)| view);
        let seen: Vec<_> = all.iter().map(|&(at, view)| (at / (AHEAD / 2), view)).collect();
        let beside = |piece| [(piece, GUEST), (piece + 1, 2)];
        let [first, second, third] = [beside(6), beside(14), beside(22)];
        let last = [(25, 3), (30, GUEST), (31, 3)];
        assert_eq!(seen, [&[(0, 1), (2, 2)][..], &first, &second, &third, &last].concat());
        assert_eq!(views.warnings("x").len(), 2);
    }

    #[test]
    fn what_may_say_that_a_guest_runs_need_not() {
        let target = Packet::Tip(Ip { compression: Compression::Full, payload: 0x0143_0200 });
        let data = stream(6, |_| vec![target, target]);
        let views = by_time(&[]);
        let mut views = views.views(&data, &Config::default());
        assert!(views.by_ref().all(|(_, view)| view == 1));
        assert!(!views.has_guests());
    }

    #[test]
    fn a_stream_without_packets_wants_no_times() {
        let by_time = by_time(&[(250, 2)]);
        let mut views = by_time.views(&pt_packet::PSB, &Config::default());
        views.by_ref().for_each(drop);
        assert_eq!(views.warnings("x"), Vec::<String>::new());
    }

    #[test]
    fn a_stream_without_times_is_of_whoever_is_alone_in_it() {
        let mut data = Vec::new();
        let enables = Packet::TipPge(Ip { compression: Compression::Full, payload: 0x1000 });
        [Packet::Psb, Packet::Psbend, enables].into_iter().for_each(|packet| writer::write(&mut data, packet));
        data.resize(3 * AHEAD, 0);
        for (alone, first) in [(Some(5), 5), (None, 2)] {
            let by_time = ByTime { alone, ..by_time(&[(250, 2)]) };
            let mut views = by_time.views(&data, &Config::default());
            assert_eq!(views.next(), Some((0, first)));
            views.by_ref().for_each(drop);
            let begin = "x: the packets have no times (tsc=0): which of several threads ran is not known";
            let warned = views.warnings("x").iter().any(|warning| warning.starts_with(begin));
            assert_eq!(warned, alone.is_none());
        }
    }
}

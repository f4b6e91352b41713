//! How many packets of which kind a stream holds.

use crate::packets::NO_PSB;
use crate::times::{Clock, Times};
use pt_flow::{share, Config, Workers};
use pt_packet::{find_psb, Packet, Reader, PSB};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many gaps are kept one by one; all are counted.
pub const MAX_GAPS: usize = 1000;

/// Counts of the packets of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub bytes: u64,
    pub packets: BTreeMap<&'static str, u64>,
    pub tnt_bits: u64,
    /// Bytes that are no packet, as (offset, size, what is wrong); at most [`MAX_GAPS`].
    pub bad: Vec<(u64, u64, String)>,
    pub bad_count: u64,
    pub bad_bytes: u64,
    pub times: Times,
}

impl Counts {
    /// Counts a whole stream from its first PSB on; after bytes that are no packet it goes on at the next PSB. `workers`
    /// share the work, in parts of about so many bytes. `go_on` is asked from time to time: when it says no, the counts are
    /// those of some of the packets.
    pub fn of(data: &[u8], config: &Config, workers: Workers, go_on: &(dyn Fn() -> bool + Sync)) -> Counts {
        let mut counts = Counts { bytes: data.len() as u64, ..Counts::default() };
        let first = next_psb(data, 0, go_on).unwrap_or(data.len());
        if first > 0 {
            counts.is_bad(0, first, NO_PSB);
        }
        let begins = begins_of_parts(data, first, workers.part_bytes.max(1), go_on);
        let end_of = |number: usize| begins.get(number + 1).map_or(data.len(), |&end| end);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(&begin) = begins.get(number) else { return done };
                done.push((number, Counts::between(data, config, begin, end_of(number), go_on)));
                if !go_on() {
                    return done;
                }
            }
        };
        let threads = 0..workers.threads.clamp(1, begins.len());
        let mut parts: Vec<_> = share(threads, |_| work()).into_iter().flatten().collect();
        parts.sort_unstable_by_key(|&(number, _)| number);
        let mut at = first;
        for (number, (of_part, end)) in parts {
            // The packets before reached into this part, or bytes that are none did: its PSB is not where one begins.
            let (of_part, end) = match at == begins[number] {
                true => (of_part, end),
                false if at >= end_of(number) => continue,
                false => Counts::between(data, config, at, end_of(number), go_on),
            };
            counts.add(of_part);
            at = end;
        }
        counts
    }

    /// Of the packets that begin from `begin` on, which is where one does, and before `end`; where the last of them ended.
    fn between(
        data: &[u8],
        config: &Config,
        begin: usize,
        end: usize,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> (Counts, usize) {
        let mut counts = Counts::default();
        let mut reader = Reader::with_errata(data, config.errata);
        reader.seek(begin);
        let mut clock = Clock::new(config);
        let mut till_question = QUESTION;
        while reader.offset() < end {
            if till_question == 0 {
                till_question = QUESTION;
                if !go_on() {
                    break;
                }
            }
            till_question -= 1;
            match reader.read() {
                Ok(Some(Packet::Pad)) => {
                    let more = reader.skip_pads(till_question);
                    till_question -= more;
                    *counts.packets.entry(Packet::Pad.name()).or_default() += 1 + more as u64;
                }
                Ok(Some(packet)) => {
                    counts.packet(&packet);
                    if let Some(told) = clock.take(&packet, data, reader.offset()) {
                        counts.times.add(told);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    let next = next_psb(data, error.offset + 1, go_on).unwrap_or(data.len());
                    let told = error.to_string();
                    let what = told.split_once(": ").map_or(&*told, |(_, what)| what);
                    counts.is_bad(error.offset, next - error.offset, what);
                    reader.seek(next);
                }
            }
        }
        (counts, reader.offset())
    }

    /// Adds what stands behind.
    fn add(&mut self, behind: Counts) {
        for (name, count) in behind.packets {
            *self.packets.entry(name).or_default() += count;
        }
        self.tnt_bits += behind.tnt_bits;
        let room = MAX_GAPS.saturating_sub(self.bad.len());
        self.bad.extend(behind.bad.into_iter().take(room));
        self.bad_count += behind.bad_count;
        self.bad_bytes += behind.bad_bytes;
        self.times.add(behind.times);
    }

    fn is_bad(&mut self, offset: usize, size: usize, what: &str) {
        self.bad_count += 1;
        self.bad_bytes += size as u64;
        if self.bad.len() < MAX_GAPS {
            self.bad.push((offset as u64, size as u64, what.to_owned()));
        }
    }

    fn packet(&mut self, packet: &Packet) {
        *self.packets.entry(packet.name()).or_default() += 1;
        if let Packet::Tnt { count, .. } = *packet {
            self.tnt_bits += u64::from(count);
        }
    }
}

/// After so many packets or blocks it is asked whether to go on.
pub const QUESTION: usize = 1 << 20;
/// Bytes without a PSB behind which it is asked as well.
const QUESTION_BYTES: usize = 1 << 26;

/// The first PSB, and others at least `size` bytes from each other.
fn begins_of_parts(data: &[u8], first: usize, size: usize, go_on: &(dyn Fn() -> bool + Sync)) -> Vec<usize> {
    let next = |&psb: &usize| next_psb(data, psb.saturating_add(size), go_on);
    std::iter::successors(Some(first), next).collect()
}

/// The first PSB at or after `from`; `None` too where nobody waits for it any more.
fn next_psb(data: &[u8], from: usize, go_on: &(dyn Fn() -> bool + Sync)) -> Option<usize> {
    let mut at = from;
    while at < data.len() {
        let end = at.saturating_add(QUESTION_BYTES).min(data.len());
        match find_psb(&data[..end], at) {
            Some(psb) => return Some(psb),
            None if end == data.len() || !go_on() => return None,
            // One may begin in front of the end.
            None => at = end - PSB.len(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_packet::writer::write;

    const ONE: Workers = Workers { threads: 1, part_bytes: usize::MAX };

    #[test]
    fn several_threads_count_the_packets_that_one_counts() {
        let mut data = vec![0x05];
        for round in 0..200u64 {
            let pip = Packet::Pip { cr3: 0x1000, non_root: round % 5 > 2 };
            for packet in [Packet::Psb, Packet::Tsc(round), pip, Packet::Psbend, Packet::Tnt { bits: 5, count: 3 }] {
                write(&mut data, packet);
            }
            match round % 7 {
                // No packet; two PSBs of which the second begins within the first; a PSB within another packet.
                1 => data.extend([0x05, 0x01, 0x02]),
                2 => data.extend([0x02, 0x82].repeat(11)),
                4 => {
                    write(&mut data, Packet::Tsc(7));
                    data.truncate(data.len() - 3);
                }
                5 => write(&mut data, Packet::Tsc(round << 40)),
                6 => write(&mut data, Packet::Pip { cr3: 0x2000, non_root: true }),
                _ => {}
            }
        }
        let one = Counts::of(&data, &Config::default(), ONE, &|| true);
        assert!(one.bad_count > 20, "{one:?}");
        for (threads, part_bytes) in [(1, 1), (3, 1), (2, 50), (3, 700)] {
            assert_eq!(Counts::of(&data, &Config::default(), Workers { threads, part_bytes }, &|| true), one);
        }
    }

    #[test]
    fn packets_are_counted_by_kind_and_bad_bytes_with_their_place() {
        let mut data = Vec::new();
        for packet in [Packet::Psb, Packet::Tsc(1000), Packet::Psbend, Packet::Tnt { bits: 5, count: 3 }] {
            write(&mut data, packet);
        }
        let good = data.len();
        data.extend([0x05, 0x01]);
        for packet in [Packet::Psb, Packet::Tsc(4000), Packet::Psbend] {
            write(&mut data, packet);
        }
        let counts = Counts::of(&data, &Config::default(), ONE, &|| true);
        assert_eq!(counts.packets, BTreeMap::from([("PSB", 2), ("PSBEND", 2), ("TNT", 1), ("TSC", 2)]));
        assert_eq!((counts.bytes, counts.tnt_bits, counts.times.range()), (data.len() as u64, 3, Some((1000, 4000))));
        assert_eq!((counts.bad_count, counts.bad_bytes), (1, 2));
        assert_eq!((counts.bad[0].0, counts.bad[0].1), (good as u64, 2));
    }

    #[test]
    fn nothing_is_counted_after_it_was_stopped() {
        let mut data = PSB.to_vec();
        data.resize(3 << 20, 0);
        let counts = Counts::of(&data, &Config::default(), ONE, &|| false);
        assert_eq!(counts.packets["PAD"], QUESTION as u64 - 1);
    }
}

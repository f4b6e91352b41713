//! How much of everything a stream holds.

use crate::packets::NO_PSB;
use crate::stop;
use pt_calls::Blocks;
use pt_flow::{Block, BlockKind, DisableKind, Loss, Sink};
use pt_packet::{find_psb, Errata, Packet, Reader};
use std::collections::BTreeMap;

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
    /// Of the first and the last TSC packet; `None` without any.
    pub times: Option<(u64, u64)>,
}

impl Counts {
    /// Counts a whole stream from its first PSB on; after bytes that are no packet it goes on at the next PSB. `go_on` is asked from time to
    /// time: when it says no, the counts are those of the packets read so far.
    pub fn of(data: &[u8], errata: Errata, go_on: &dyn Fn() -> bool) -> Counts {
        let mut counts = Counts { bytes: data.len() as u64, ..Counts::default() };
        let mut reader = Reader::with_errata(data, errata);
        let first = find_psb(data, 0).unwrap_or(data.len());
        if first > 0 {
            counts.is_bad(0, first, NO_PSB);
        }
        reader.seek(first);
        let mut till_question = QUESTION;
        loop {
            till_question -= 1;
            if till_question == 0 {
                till_question = QUESTION;
                if !go_on() {
                    return counts;
                }
            }
            match reader.read() {
                Ok(Some(packet)) => counts.packet(&packet),
                Ok(None) => return counts,
                Err(error) => {
                    let next = find_psb(data, error.offset + 1).unwrap_or(data.len());
                    let told = error.to_string();
                    let what = told.split_once(": ").map_or(&*told, |(_, what)| what);
                    counts.is_bad(error.offset, next - error.offset, what);
                    reader.seek(next);
                }
            }
        }
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
        match *packet {
            Packet::Tnt { count, .. } => self.tnt_bits += u64::from(count),
            Packet::Tsc(ticks) => {
                let (first, _) = self.times.unwrap_or((ticks, ticks));
                self.times = Some((first, ticks));
            }
            _ => {}
        }
    }
}

const QUESTION: u32 = 1 << 20;

/// A stretch that yielded no flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub loss: Loss,
    /// Why, in words.
    pub told: String,
}

/// Counts of the flow of a stream: the [`Sink`] of `permille pt stat`.
pub struct Branches<'w> {
    pub instructions: u64,
    pub blocks: u64,
    pub taken: u64,
    pub not_taken: u64,
    pub jumps: u64,
    pub indirect_jumps: u64,
    pub direct_calls: u64,
    pub indirect_calls: u64,
    pub returns: u64,
    pub far: u64,
    pub interrupts: u64,
    pub overflows: u64,
    /// At most [`MAX_GAPS`].
    pub gaps: Vec<Gap>,
    pub gap_count: u64,
    pub lost_bytes: u64,
    pub last_tsc: u64,
    pub ran: Blocks,
    why: Box<dyn Fn(&Loss) -> String + 'w>,
    go_on: &'w dyn Fn() -> bool,
}

impl<'w> Branches<'w> {
    /// `why` puts into words why a stretch was lost. `go_on` is asked from time to time: when it says no, the decode ends
    /// by [`stop`].
    pub fn new(why: impl Fn(&Loss) -> String + 'w, go_on: &'w dyn Fn() -> bool) -> Self {
        Branches {
            instructions: 0,
            blocks: 0,
            taken: 0,
            not_taken: 0,
            jumps: 0,
            indirect_jumps: 0,
            direct_calls: 0,
            indirect_calls: 0,
            returns: 0,
            far: 0,
            interrupts: 0,
            overflows: 0,
            gaps: Vec::new(),
            gap_count: 0,
            lost_bytes: 0,
            last_tsc: 0,
            ran: Blocks::default(),
            why: Box::new(why),
            go_on,
        }
    }
}

impl Sink for Branches<'_> {
    #[inline]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.blocks += 1;
        if self.blocks % u64::from(QUESTION) == 0 && !(self.go_on)() {
            stop();
        }
        self.instructions += u64::from(block.instructions);
        self.ran.count(block);
        self.last_tsc = tsc;
        match block.kind {
            BlockKind::CondTaken => self.taken += 1,
            BlockKind::CondNotTaken => self.not_taken += 1,
            BlockKind::Jump => self.jumps += 1,
            BlockKind::IndirectJump => self.indirect_jumps += 1,
            BlockKind::Call => self.direct_calls += 1,
            BlockKind::IndirectCall => self.indirect_calls += 1,
            BlockKind::Return => self.returns += 1,
            BlockKind::Far => self.far += 1,
            BlockKind::Linear | BlockKind::Interrupted => {}
        }
    }

    fn enabled(&mut self, _ip: u64, _resumed: bool, _tsc: u64) {}

    fn disabled(&mut self, _kind: DisableKind, _at: u64, _target: Option<u64>, _tsc: u64) {}

    fn interrupt(&mut self, _from: u64, _to: u64, _tsc: u64) {
        self.interrupts += 1;
    }

    fn loss(&mut self, loss: &Loss) {
        self.gap_count += 1;
        self.lost_bytes += loss.size as u64;
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(Gap { loss: *loss, told: (self.why)(loss) });
        }
    }

    fn overflow(&mut self, _offset: usize, _from: Option<u64>, _tsc: u64) {
        self.overflows += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_packet::writer::write;
    use pt_packet::PSB;

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
        let counts = Counts::of(&data, Errata::default(), &|| true);
        assert_eq!(counts.packets, BTreeMap::from([("PSB", 2), ("PSBEND", 2), ("TNT", 1), ("TSC", 2)]));
        assert_eq!((counts.bytes, counts.tnt_bits, counts.times), (data.len() as u64, 3, Some((1000, 4000))));
        assert_eq!((counts.bad_count, counts.bad_bytes), (1, 2));
        assert_eq!((counts.bad[0].0, counts.bad[0].1), (good as u64, 2));
    }

    #[test]
    fn nothing_is_counted_after_it_was_stopped() {
        let mut data = PSB.to_vec();
        data.resize(3 << 20, 0);
        let counts = Counts::of(&data, Errata::default(), &|| false);
        assert_eq!(counts.packets["PAD"], u64::from(QUESTION) - 2);
    }
}

//! Pieces of a buffer that is written around: what is old in one was in the one before.

use crate::Bytes;
use pt_packet::{find_psb, psbs, Packet, Reader};

/// perf fills pieces up to a multiple of this, with zeros.
const FILLED: usize = 8;
/// Packets between a PSB and what ends it, at most.
const MOST_HEAD: usize = 64;
/// So many times the bytes of a piece are compared, at most: made up ones may be nearly the same everywhere.
const MOST_COMPARED: usize = 16;

/// How many bytes at the beginning of a piece are the end of the one before; `None` when packets between them are missing,
/// or when they have no PSB in common: then nothing of the piece in front of its first PSB can be decoded.
pub fn overlap(before: &[u8], piece: &[u8]) -> Option<usize> {
    let (first, first_old) = (find_psb(piece, 0)?, whole_psbs(before).next()?);
    let mut left = before.len().saturating_mul(MOST_COMPARED);
    let begins_later = whole_psbs(before).map(|psb| (psb, first));
    // A buffer that has been filled has more than what was new in it the last time.
    let begins_earlier = psbs(piece, 0).skip(1).map(|psb| (first_old, psb));
    for (psb, psb_in_piece) in begins_later.chain(begins_earlier) {
        // Whichever begins later; what it begins with is in the other one.
        let (old, new) = (psb.saturating_sub(psb_in_piece), psb_in_piece.saturating_sub(psb));
        let (end, rest) = (&before[old..], &piece[new..]);
        let same = end.iter().zip(rest).take_while(|(one, other)| one == other).count();
        let other = &end[same..];
        if other.len() < FILLED && other.iter().all(|&byte| byte == 0) && old + same > psb {
            return Some(new + same);
        }
        left = left.checked_sub(same)?;
    }
    None
}

/// The end of what stands in front of a piece, as far as another one is compared with it: from its last whole PSB on.
pub fn end_of(before: &Bytes) -> Bytes {
    before.part(whole_psbs(before).last().unwrap_or(before.len())..before.len())
}

/// PSBs of which all is there.
pub fn whole_psbs(data: &[u8]) -> impl Iterator<Item = usize> + '_ {
    psbs(data, 0).filter(|&psb| is_whole(&data[psb..]))
}

/// Whether all is there that a PSB announces: its time tells it from others.
fn is_whole(data: &[u8]) -> bool {
    let mut reader = Reader::new(data);
    let packets = std::iter::from_fn(|| reader.read().ok().flatten());
    packets.take(MOST_HEAD).any(|packet| matches!(packet, Packet::Psbend))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::recording::{words, Folder, Pipe};
    use crate::{Capture, Options};
    use pt_packet::writer::write;
    use pt_packet::PSB;

    const ROOM: usize = 1 << 10;

    /// Packets of some length, each PSB at another time.
    fn packets(seed: u64) -> Vec<u8> {
        let (mut data, mut chance) = (Vec::new(), seed);
        let mut next = |most: u64| {
            chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (chance >> 33) % most
        };
        for psb in 0..100 {
            [Packet::Psb, Packet::Tsc(psb * 1000 + next(1000)), Packet::Psbend]
                .into_iter()
                .for_each(|packet| write(&mut data, packet));
            for _ in 0..next(60) {
                write(&mut data, Packet::Cyc(next(3)));
                write(&mut data, Packet::Tnt { bits: next(64), count: 6 });
            }
        }
        data
    }

    /// What perf makes of it where it takes snapshots of a buffer that has got so far: what is new, until the buffer has been filled,
    /// and the whole buffer from then on (tools/perf/arch/x86/util/intel-pt.c, intel_pt_find_snapshot).
    fn snapshots(data: &[u8], at: &[usize]) -> Capture {
        let mut pipe = Pipe::new();
        pipe.record(70, 0, &words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 1, 1]));
        let mut last = 0;
        for &end in at {
            match end.checked_sub(ROOM) {
                None => pipe.packets(0, last as u64, &data[last..end]),
                Some(from) => pipe.packets(0, (end % ROOM) as u64, &data[from..end]),
            }
            last = end;
        }
        let folder = Folder::new(&format!("overlap-{}-{}", data.len(), at.len()));
        pipe.open(&folder, Options::default())
    }

    fn without_pads(data: &[u8]) -> Vec<Packet> {
        let mut reader = Reader::new(data);
        reader.synchronize();
        let all = std::iter::from_fn(|| reader.read().unwrap());
        all.filter(|packet| !matches!(packet, Packet::Pad)).collect()
    }

    /// Ends of packets, as the processor leaves them when it is stopped; the first ones in front of a buffer that is full.
    fn ends(data: &[u8], steps: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut reader = Reader::new(data);
        let mut ends = Vec::new();
        let mut wanted = 0;
        for step in steps {
            wanted += step;
            while reader.offset() < wanted && reader.read().unwrap().is_some() {}
            ends.push(reader.offset());
        }
        ends
    }

    #[test]
    fn what_comes_in_two_snapshots_is_there_once() {
        for seed in 0..50 {
            let data = packets(seed);
            // Never so many new packets that no PSB of the snapshot before is left.
            let steps = [100, 300, 7, 350, 400, 200, 17, 550, 1, 480, 333]
                .map(|step: usize| (step + seed as usize).min(ROOM - 300));
            let at = ends(&data, steps.into_iter());
            let capture = snapshots(&data, &at);
            let stream = &capture.streams[0];
            let places = stream.lost.len();
            let begin = format!("core 0: tracing was off while snapshots were taken, at {places} places: ");
            assert!(capture.warnings[0].starts_with(&begin), "seed {seed}: {:?}", capture.warnings);
            assert_eq!(without_pads(&stream.data), without_pads(&data[..*at.last().unwrap()]), "seed {seed}");
        }
    }

    #[test]
    fn packets_that_no_snapshot_has_are_lost_between_them() {
        let data = packets(1);
        let at = ends(&data, [900, 2 * ROOM, 300].into_iter());
        let capture = snapshots(&data, &at);
        let stream = &capture.streams[0];
        let first = at[0].next_multiple_of(8);
        assert_eq!(stream.lost[0], first);
        assert_eq!(without_pads(&stream.data[..first]), without_pads(&data[..at[0]]));
        assert_eq!(without_pads(&stream.data[first..]), without_pads(&data[at[1] - ROOM..at[2]]));
    }

    #[test]
    fn a_psb_that_is_cut_off_is_not_taken_for_another_one() {
        let psb = |tsc: u64| {
            let mut data = Vec::new();
            [Packet::Psb, Packet::Tsc(tsc), Packet::Psbend].into_iter().for_each(|packet| write(&mut data, packet));
            data
        };
        let before = [&psb(1)[..], &PSB].concat();
        assert_eq!(overlap(&before, &psb(3)), None);
        assert_eq!(overlap(&[&psb(1)[..], &psb(2)].concat(), &psb(2)), Some(psb(2).len()));
    }

    #[test]
    fn bytes_that_are_nearly_the_same_everywhere_are_given_up() {
        let mut head = Vec::new();
        [Packet::Psb, Packet::Psbend].into_iter().for_each(|packet| write(&mut head, packet));
        let all = head.repeat(1 << 16);
        let before = [&all[..], &[0x59]].concat();
        assert_eq!(overlap(&before, &all), None);
    }
}

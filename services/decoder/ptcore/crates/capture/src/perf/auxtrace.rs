//! PERF_RECORD_AUXTRACE and samples: pieces of the packet streams.

use super::id_index::Opened;
use super::overlap::{end_of, overlap, whole_psbs};
use crate::fields::{Fields, Short};
use crate::{Bytes, CaptureError, Of};
use pt_packet::{find_psb, psbs, ErrorKind, Reader};
use std::collections::BTreeMap;
use std::ops::Range;

/// A piece of a stream.
#[derive(Clone, Debug)]
enum Piece {
    /// Where it stands in the file, and where it stood in the stream as the kernel counts.
    Record(Range<usize>, u64),
    /// What led up to a sample.
    Sample(Bytes),
}

/// Whose stream: the queue's number, thread and core.
type Key = (u32, u32, u32);

/// Gathers the pieces of each stream in the order of the file.
#[derive(Default)]
pub struct Streams(BTreeMap<Key, Vec<Piece>>);

/// A whole stream.
pub struct Joined {
    pub name: String,
    pub tid: Option<u32>,
    pub cpu: Option<u32>,
    pub data: Bytes,
    /// Of the whole stream, of which `data` may be the beginning alone.
    pub size: usize,
    /// From which offset of the kernel on a piece stands at which offset of `data`.
    pub places: Vec<(u64, usize)>,
    /// Where the last one ends, as the kernel counts; none of samples.
    pub end: Option<u64>,
    /// Offsets of `data` at which pieces do not meet.
    pub broken: Vec<usize>,
    /// Offsets of `data` at which tracing was off while a snapshot was taken.
    pub paused: Vec<usize>,
    /// Bytes behind those places that are left out: in front of the first PSB nothing says where packets begin.
    pub undecodable: usize,
}

/// Neither a thread nor a core.
const NONE: u32 = u32::MAX;

impl Streams {
    /// Takes the record whose packets stand at `behind`; returns where they end, and how many are missing because the
    /// file ends before them.
    pub fn take(&mut self, body: &[u8], behind: usize, end: usize) -> Result<(usize, u64), Short> {
        let mut fields = Fields::new(body, 0);
        let (size, offset, _reference) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (queue, tid, cpu) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let there = usize::try_from(size).unwrap_or(usize::MAX).min(end.saturating_sub(behind));
        self.0.entry((queue, tid, cpu)).or_default().push(Piece::Record(behind..behind + there, offset));
        Ok((behind + there, size - there as u64))
    }

    /// Takes the packets of a sample, which come behind those of all samples before.
    pub fn take_sample(&mut self, of: Opened, packets: Bytes) {
        let key = match of.cpu {
            Some(cpu) => (cpu, NONE, cpu),
            None => (0, of.tid.unwrap_or(NONE), NONE),
        };
        self.0.entry(key).or_default().push(Piece::Sample(packets));
    }

    /// Pieces are taken in the order of the file, in which perf writes and reads those of a queue (tools/perf/util/auxtrace.c
    /// of Linux, auxtrace_queues__queue_buffer): their offsets say whether they meet. `around`: the buffers were written
    /// around, and pieces may overlap, as those of samples may. perf has tracing off while it reads them
    /// (tools/perf/builtin-record.c, record__read_auxtrace_snapshot).
    pub fn join(self, file: &Bytes, around: bool, beginnings: bool) -> Result<Vec<Joined>, CaptureError> {
        self.0.into_iter().map(|(key, pieces)| joined(key, pieces, file, around, beginnings)).collect()
    }
}

fn joined(
    (queue, tid, cpu): Key,
    pieces: Vec<Piece>,
    file: &Bytes,
    around: bool,
    beginnings: bool,
) -> Result<Joined, CaptureError> {
    let (mut parts, mut places, mut at) = (Vec::new(), Vec::new(), 0);
    let (mut broken, mut paused) = (Vec::new(), Vec::new());
    // Nothing says where packets begin until a PSB comes.
    let (mut astray, mut undecodable) = (false, 0);
    let mut before: Option<(Bytes, Option<u64>)> = None;
    for piece in pieces {
        let (bytes, offset, is_snapshot) = match piece {
            Piece::Record(part, offset) => (file.part(part), Some(offset), around),
            Piece::Sample(bytes) => (bytes, None, false),
        };
        let may_overlap = is_snapshot || offset.is_none();
        // Pieces are filled up to eight bytes.
        let filled = |expected: Option<u64>| {
            expected.zip(offset).map(|(one, other)| one.wrapping_sub(other)).filter(|&filled| filled < 8)
        };
        let mut met = None;
        let again = match &before {
            Some((before, expected)) => {
                met = filled(*expected).map(|filled| before.part(0..before.len().saturating_sub(filled as usize)));
                let again = match met {
                    Some(_) => Some(0),
                    None => may_overlap.then(|| overlap(before, &bytes)).flatten(),
                };
                match again {
                    Some(_) if is_snapshot => paused.push(at),
                    Some(_) => {}
                    None => {
                        broken.push(at);
                        astray = true;
                        without_half_a_packet(&mut parts);
                    }
                }
                again.unwrap_or(0)
            }
            None => 0,
        };
        let mut first = again;
        if astray {
            let psb = find_psb(&bytes, again);
            first = psb.unwrap_or(bytes.len());
            astray = psb.is_none();
            undecodable += first - again;
        }
        let new = bytes.part(first..bytes.len());
        places.extend(offset.map(|offset| (offset.wrapping_add(first as u64), at)));
        at += new.len();
        parts.push(new);
        let end = offset.map(|offset| offset.wrapping_add(bytes.len() as u64));
        // What has no PSB is compared behind the last one in front of it.
        before = match met.filter(|_| may_overlap && whole_psbs(&bytes).next().is_none()) {
            Some(met) => Some((Bytes::join(&[end_of(&met), bytes])?, end)),
            None => Some((bytes, end)),
        };
    }
    paused.dedup();
    let end = before.and_then(|(_, end)| end);
    let (tid, cpu) = (Some(tid).filter(|&tid| tid != NONE), Some(cpu).filter(|&cpu| cpu != NONE));
    let name = match (cpu, tid) {
        (Some(cpu), _) => format!("core {cpu}"),
        (_, Some(tid)) => format!("thread {tid}"),
        _ => format!("queue {queue}"),
    };
    let data = Bytes::join_for(&parts, beginnings)?;
    Ok(Joined { name, tid, cpu, data, size: at, places, end, broken, paused, undecodable })
}

/// A packet of which the rest is missing becomes padding: it would be read on in what comes behind.
fn without_half_a_packet(parts: &mut Vec<Bytes>) {
    let Some(last) = parts.pop() else { return };
    let begin = begin_of_half_a_packet(&last).unwrap_or(last.len());
    let rest = last.len() - begin;
    parts.extend([last.part(0..begin), Bytes::from(vec![0; rest])]);
}

fn begin_of_half_a_packet(data: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(data);
    reader.seek(psbs(data, 0).last()?);
    loop {
        match reader.read() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return (error.kind == ErrorKind::Truncated).then_some(error.offset),
        }
    }
}

impl Joined {
    pub fn of(&self, pid_of: impl Fn(u32) -> u32) -> Of {
        match (self.cpu, self.tid) {
            (Some(cpu), _) => Of::Core(cpu),
            (None, Some(tid)) => Of::Thread { pid: pid_of(tid), tid },
            (None, None) => Of::Core(0),
        }
    }

    /// The offset in `data` of an offset as the kernel counts.
    pub fn place(&self, offset: u64) -> usize {
        let (from, at) = match self.places.partition_point(|&(from, _)| from <= offset) {
            0 => return 0,
            number => self.places[number - 1],
        };
        at.saturating_add(usize::try_from(offset - from).unwrap_or(usize::MAX)).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use crate::perf::recording::{halves, losses, program, runs, words, Folder, Pipe, NOP_RET, USER};
    use crate::Options;
    use pt_flow::Reason;
    use pt_packet::{writer::write, Compression, Ip, Packet};

    fn full(payload: u64) -> Ip {
        Ip { compression: Compression::Full, payload }
    }

    fn bytes(packets: &[Packet]) -> Vec<u8> {
        let mut data = Vec::new();
        packets.iter().for_each(|&packet| write(&mut data, packet));
        data
    }

    #[test]
    fn what_the_kernel_could_not_write_is_a_loss_at_its_place() {
        let folder = Folder::new("aux");
        let mut pipe = Pipe::new();
        let (truncated, overwritten, partial) = (1, 2, 4);
        pipe.event(11, 0, &words(&[0, 8, truncated]), (7, 7, 20, 3));
        pipe.event(11, 0, &words(&[8, 8, overwritten]), (7, 7, 20, 3));
        pipe.event(11, 0, &words(&[16, 8, partial]), (7, 7, 20, 3));
        pipe.event(11, 0, &words(&[0, 16, truncated]), (7, 7, 20, 4));
        // LOST and LOST_SAMPLES: records that found no room.
        pipe.event(2, 0, &words(&[1, 40]), (7, 7, 20, 3));
        pipe.event(13, 0, &words(&[2]), (7, 7, 20, 3));
        pipe.event(13, 1 << 15, &words(&[1000]), (7, 7, 20, 3));
        pipe.packets(3, 0, &[0; 32]);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(capture.streams[0].lost, [8]);
        let not_all = "the kernel tells of 1 stretches in which it did not trace all the time: virtual machines ran, for instance";
        let wanted = ["core 3: packets were lost at 1 places: 0x8", not_all, "42 records of the kernel were lost"];
        assert_eq!(capture.warnings, wanted);
        assert!(capture.stays.is_none());
    }

    #[test]
    fn where_a_buffer_that_is_written_around_lost_packets_is_not_told() {
        let folder = Folder::new("around");
        let mut pipe = Pipe::with(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 1, 1]);
        let (truncated, overwritten) = (1, 2);
        pipe.event(11, 0, &words(&[8, 4096, truncated | overwritten]), (7, 7, 20, 3));
        pipe.event(11, 0, &words(&[24, 4096, truncated | overwritten]), (7, 7, 20, 3));
        pipe.packets(3, 0, &[0; 32]);
        let capture = pipe.open(&folder, Options::default());
        assert!(capture.streams[0].lost.is_empty());
        let wanted = "packets were lost 2 times in buffers that are written around: where is not told";
        assert_eq!(capture.warnings, [wanted]);
    }

    #[test]
    fn the_program_ran_on_while_a_snapshot_was_taken() {
        let folder = Folder::new("paused");
        program(&folder, "work", &NOP_RET);
        let mut pipe = Pipe::with(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 1, 1]);
        pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        pipe.enters((7, 7, 10, 0));
        let ran = |tsc| {
            bytes(&[Packet::Psb, Packet::Tsc(tsc), Packet::Psbend, Packet::TipPge(full(USER)), Packet::TipPgd(full(1))])
        };
        let (first, second) = (ran(20), ran(40));
        // The buffer has room behind the first one.
        pipe.packets(0, 0, &first);
        pipe.packets(0, first.len() as u64, &second);
        let capture = pipe.open(&folder, Options::default());
        let at = first.len().next_multiple_of(8);
        assert_eq!(runs(&capture), [(7, vec![2, 2])]);
        assert_eq!(losses(&capture), [(at, 0, Reason::MissingPackets)]);
        let warning = format!(
            "core 0: tracing was off while snapshots were taken, at 1 places: {at:#x}; what ran meanwhile and what stands in front \
             of the next PSB is not told"
        );
        assert_eq!(capture.warnings, [warning]);
    }

    #[test]
    fn behind_packets_that_are_missing_the_next_psb_is_waited_for() {
        let folder = Folder::new("hole");
        program(&folder, "work", &NOP_RET);
        let bytes = |packets: &[Packet]| {
            let mut data = bytes(packets);
            data.resize(data.len().next_multiple_of(8), 0);
            data
        };
        let begins = |tsc| [Packet::Psb, Packet::Tsc(tsc), Packet::Psbend, Packet::TipPge(full(USER))];
        // The middle of something: its returns are not those of what was there before.
        let middle = bytes(&[Packet::Tip(full(USER)); 3]);
        let last = bytes(&[&begins(40)[..], &[Packet::TipPgd(full(1))]].concat());
        let put = |pipe: &mut Pipe, offset: u64, data: &[u8]| {
            pipe.record(71, 0, &[words(&[data.len() as u64, offset, 0]), halves(&[0, u32::MAX, 0, 0])].concat());
            pipe.0.extend(data);
        };
        // Of the packet in front of what is missing so many bytes are there.
        for kept in 0..8 {
            let mut pipe = Pipe::new();
            pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
            pipe.enters((7, 7, 10, 0));
            let mut first = bytes(&[&begins(20)[..], &[Packet::Tip(full(USER))]].concat());
            first.extend(&bytes(&[Packet::Tsc(0x1234)])[..kept]);
            put(&mut pipe, 0, &first);
            put(&mut pipe, 1 << 20, &middle);
            put(&mut pipe, (1 << 20) + middle.len() as u64, &[&middle[..], &last].concat());
            let capture = pipe.open(&folder, Options::default());
            assert_eq!(capture.streams[0].lost, [first.len()]);
            assert_eq!(runs(&capture), [(7, vec![2, 2])], "{kept}");
            let what = format!("{} bytes behind them, up to the next PSB, cannot be decoded", 2 * middle.len());
            let warning = format!("core 0: packets were lost at 1 places: {:#x}; {what}", first.len());
            assert_eq!(capture.warnings, [warning]);
            // Half of one in front of a PSB, too.
            let mut pipe = Pipe::new();
            pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
            pipe.enters((7, 7, 10, 0));
            put(&mut pipe, 0, &first);
            put(&mut pipe, 1 << 20, &last);
            assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![2, 2])], "{kept}");
        }
    }

    #[test]
    fn nothing_is_read_over_packets_that_are_missing() {
        let folder = Folder::new("over");
        program(&folder, "work", &NOP_RET);
        let enable = Packet::TipPge(full(USER));
        let first = bytes(&[Packet::Psb, Packet::Tsc(20), Packet::Psbend, enable, Packet::Tip(full(USER))]);
        // As if nothing was missing: it goes on where it was.
        let here = Packet::Fup(full(USER));
        let last = bytes(&[Packet::Psb, Packet::Tsc(40), here, Packet::Psbend, Packet::TipPgd(full(1))]);
        let recording = || {
            let mut pipe = Pipe::new();
            pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
            pipe.enters((7, 7, 10, 0));
            pipe
        };
        let mut apart = recording();
        let at = first.len().next_multiple_of(8);
        apart.packets(0, 0, &first);
        apart.packets(0, 1 << 20, &last);
        assert_eq!(losses(&apart.open(&folder, Options::default())), [(at, 0, Reason::MissingPackets)]);
        // A buffer that was full in the middle of a packet.
        let half = bytes(&[Packet::Tip(full(USER + 0x10_0000))]);
        let mut in_half = recording();
        let at = first.len() + 3;
        in_half.event(11, 0, &words(&[0, at as u64, 1]), (7, 7, 30, 0));
        in_half.packets(0, 0, &[&first, &half[..3], &last].concat());
        let wanted = [(at - 3, 3, Reason::TruncatedPacket), (at, 0, Reason::MissingPackets)];
        assert_eq!(losses(&in_half.open(&folder, Options::default())), wanted);
    }

    #[test]
    fn the_thread_of_a_stream_of_its_own_belongs_to_the_process_that_tracing_began_for() {
        let folder = Folder::new("itrace");
        program(&folder, "work", &NOP_RET);
        let mut pipe = Pipe::new();
        pipe.event(12, 0, &halves(&[7, 9]), (7, 9, 1, 0));
        pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        let full = Ip { compression: Compression::Full, payload: USER };
        let mut data = Vec::new();
        for packet in [Packet::Psb, Packet::Tsc(50), Packet::Psbend, Packet::TipPge(full), Packet::TipPgd(full)] {
            write(&mut data, packet);
        }
        data.resize(data.len().next_multiple_of(8), 0);
        pipe.record(71, 0, &[words(&[data.len() as u64, 0, 0]), halves(&[0, 9, u32::MAX, 0])].concat());
        pipe.0.extend(data);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(capture.streams[0].of, crate::Of::Thread { pid: 7, tid: 9 });
        assert_eq!(runs(&capture), [(9, vec![2])]);
    }

    #[test]
    fn packets_that_a_file_was_cut_off_in_are_taken_as_far_as_they_go() {
        let folder = Folder::new("cut");
        program(&folder, "work", &NOP_RET);
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        pipe.enters((7, 7, 10, 0));
        let at = pipe.0.len();
        pipe.ran(0, &[(20, USER), (30, USER), (40, USER)]);
        // What is cut off begins within the last run.
        pipe.0.truncate(pipe.0.len() - 24);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(runs(&capture), [(7, vec![2, 2])]);
        let warning = format!("at offset {at:#x}: the file ends before the last 24 bytes of these packets");
        assert_eq!(capture.warnings, [warning]);
    }

    #[test]
    fn a_new_thread_belongs_to_its_process() {
        let folder = Folder::new("clone");
        let mut pipe = Pipe::new();
        pipe.event(7, 0, &[halves(&[7, 7, 9, 7]), words(&[20])].concat(), (7, 7, 20, 0));
        let head = [words(&[8, 0, 0]), halves(&[0, 9, u32::MAX, 0])].concat();
        pipe.record(71, 0, &head);
        pipe.0.extend([0; 8]);
        assert_eq!(pipe.open(&folder, Options::default()).streams[0].of, crate::Of::Thread { pid: 7, tid: 9 });
    }
}

//! PERF_RECORD_AUXTRACE: pieces of the packet streams.

use crate::fields::{Fields, Short};
use crate::{Bytes, Of};
use std::collections::BTreeMap;
use std::ops::Range;

/// A piece of a stream in the file.
#[derive(Clone, Debug)]
struct Piece {
    /// Where it stands in the file.
    part: Range<usize>,
    /// Where it stood in the stream as the kernel counts.
    offset: u64,
}

/// Whose stream: the queue's number, thread and core.
type Key = (u32, u32, u32);

#[derive(Default)]
pub struct Streams(BTreeMap<Key, Vec<Piece>>);

/// A whole stream.
pub struct Joined {
    pub name: String,
    pub tid: Option<u32>,
    pub cpu: Option<u32>,
    pub data: Bytes,
    /// From which offset of the kernel on a piece stands at which offset of `data`.
    pub places: Vec<(u64, usize)>,
    /// Offsets of `data` at which pieces do not meet.
    pub broken: Vec<usize>,
}

/// Neither a thread nor a core.
const NONE: u32 = u32::MAX;

impl Streams {
    /// Takes the record whose packets stand at `behind`; returns where they end.
    pub fn take(&mut self, body: &[u8], behind: usize, end: usize) -> Result<usize, Short> {
        let mut fields = Fields::new(body, 0);
        let (size, offset, _reference) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (queue, tid, cpu) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let there = end.saturating_sub(behind);
        let size = usize::try_from(size).ok().filter(|&size| size <= there);
        let size = size.ok_or(Short { at: 0, wanted: Fields::new(body, 0).u64()?, there })?;
        self.0.entry((queue, tid, cpu)).or_default().push(Piece { part: behind..behind + size, offset });
        Ok(behind + size)
    }

    pub fn join(self, file: &Bytes) -> std::io::Result<Vec<Joined>> {
        let joined = |((queue, tid, cpu), pieces): (Key, Vec<Piece>)| {
            let (mut places, mut broken, mut at) = (Vec::new(), Vec::new(), 0);
            let mut expected = None;
            for Piece { part, offset } in &pieces {
                // Pieces are filled up to eight bytes.
                if expected.is_some_and(|expected: u64| expected.wrapping_sub(*offset) >= 8) {
                    broken.push(at);
                }
                places.push((*offset, at));
                at += part.len();
                expected = Some(offset.wrapping_add(part.len() as u64));
            }
            let parts: Vec<_> = pieces.into_iter().map(|piece| file.part(piece.part)).collect();
            let (tid, cpu) = (Some(tid).filter(|&tid| tid != NONE), Some(cpu).filter(|&cpu| cpu != NONE));
            let name = match (cpu, tid) {
                (Some(cpu), _) => format!("core {cpu}"),
                (_, Some(tid)) => format!("thread {tid}"),
                _ => format!("queue {queue}"),
            };
            Ok(Joined { name, tid, cpu, data: Bytes::join(&parts)?, places, broken })
        };
        self.0.into_iter().map(joined).collect()
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
        at.saturating_add(usize::try_from(offset - from).unwrap_or(usize::MAX)).min(self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::perf::recording::{halves, program, runs, words, Folder, Pipe, NOP_RET, USER};
    use crate::Options;
    use pt_packet::{writer::write, Compression, Ip, Packet};

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
        pipe.packets(3, 0, &[0; 32]);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(capture.streams[0].lost, [8, 24]);
        let wanted = ["core 3: packets were lost at 2 places: 0x8, 0x18", "42 records of the kernel were lost"];
        assert_eq!(capture.warnings, wanted);
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

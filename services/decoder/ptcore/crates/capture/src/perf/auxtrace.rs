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

//! The head of perf.data (tools/perf/Documentation/perf.data-file-format.txt), and its way into a capture.

use super::attributes::Attribute;
use super::records::Records;
use super::sideband;
use crate::fields::{Fields, Short};
use crate::unpacked::left_out;
use crate::{Bytes, Capture, CaptureError, Kind, Options};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"PERFILE2";
/// The same from a machine of the other byte order.
const SWAPPED: &[u8] = b"2ELIFREP";
/// Size of the head of what was written into a pipe.
const PIPE_HEAD: u64 = 16;

pub fn is_file(data: &[u8]) -> bool {
    data.starts_with(MAGIC) || data.starts_with(SWAPPED)
}

pub fn read(path: &Path, data: Bytes, options: &Options) -> Result<Capture, CaptureError> {
    let short = |short: Short| CaptureError::damaged(path, short.at, short.to_string());
    if data.starts_with(SWAPPED) {
        let why = "a perf.data of a machine of the other byte order (big-endian), which has no Processor Trace";
        return Err(CaptureError::Unknown { path: path.to_owned(), why: why.to_owned() });
    }
    let mut records = Records::default();
    let mut fields = Fields::new(&data, MAGIC.len());
    let size = fields.u64().map_err(short)?;
    if size == PIPE_HEAD {
        if data.len() == PIPE_HEAD as usize {
            return Err(CaptureError::damaged(path, data.len(), "nothing stands behind the head of the file"));
        }
        records.read(path, &data, 0..data.len(), PIPE_HEAD as usize)?;
    } else {
        let entry = fields.u64().map_err(short)?;
        let attributes = section(&mut fields).map_err(short)?;
        let body = section(&mut fields).map_err(short)?;
        fields.bytes(16).map_err(short)?;
        let flags = [fields.u64(), fields.u64(), fields.u64(), fields.u64()];
        add_attributes(&mut records, &data, attributes, entry).map_err(short)?;
        let start = usize::try_from(body.0).unwrap_or(usize::MAX).min(data.len());
        // It is written when all else has been.
        let end = if body.1 == 0 { data.len() as u64 } else { body.0.saturating_add(body.1) };
        if body.1 == 0 {
            let what = "perf did not finish the file, as where it was killed: what its buffers still held is missing, packets \
                        and records; end perf with SIGINT";
            records.warnings.push(what.to_owned());
        }
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        if end > data.len() {
            let what = format!("the records are said to end at {end:#x}, the file ends at {:#x}", data.len());
            records.cut = Some((data.len(), what.clone()));
            records.warnings.push(what);
        }
        if body.1 != 0 && end <= data.len() {
            let (features, behind) = features(&data, end, &flags.map(|flags| flags.unwrap_or(0)));
            for (feature, from, size) in features {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(data.len());
                let size = usize::try_from(size).unwrap_or(usize::MAX).min(data.len() - from);
                records.features.take(feature, &data[from..from + size]);
            }
            if behind > data.len() as u64 {
                let there = data.len();
                records.warnings.push(format!(
                    "what stands behind the records is said to end at {behind:#x}, the file ends at {there:#x}: the \
                     processor, build ids and what else is told there may not be known"
                ));
            } else {
                records.warnings.extend(left_out("perf", &data[behind as usize..]));
            }
        }
        records.read(path, &data, 0..end, start)?;
    }
    let data = read_beside(path, data, &mut records)?;
    if records.info.is_some_and(|info| info.leaves_out_returns(&records.attributes.all)) {
        let why = "neither branches nor most returns were recorded (notnt), nothing tells what ran: record returns with `perf \
                   record -e intel_pt/notnt,noretcomp/`, or both without notnt";
        return Err(CaptureError::Unknown { path: path.to_owned(), why: why.to_owned() });
    }
    let cut = records.cut.take().filter(|_| !records.foreign);
    let mut capture = Capture::new(Kind::PerfData);
    sideband::fill(&mut capture, &data, records, options)?;
    match cut {
        Some((at, what)) if capture.streams.is_empty() => {
            Err(CaptureError::damaged(path, at, format!("{what}: no packets stand before")))
        }
        _ => Ok(capture),
    }
}

/// The file with what `perf record --threads` puts beside it, one for each thread that wrote: records, without a head.
fn read_beside(path: &Path, data: Bytes, records: &mut Records) -> Result<Bytes, CaptureError> {
    let mut at = data.len();
    let mut all = vec![data];
    let beside: Vec<_> = beside(path).collect();
    for path in &beside {
        all.push(Bytes::open(path).map_err(|error| CaptureError::unreadable(path, error))?);
    }
    let whole = Bytes::join(&all)?;
    for (path, file) in beside.iter().zip(&all[1..]) {
        records.read(path, &whole, at..at + file.len(), at)?;
        at += file.len();
    }
    Ok(whole)
}

fn beside(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    let numbers = 0..if path.ends_with("data") { u32::MAX } else { 0 };
    numbers.map(|number| path.with_file_name(format!("data.{number}"))).take_while(|path| path.is_file())
}

fn section(fields: &mut Fields<'_>) -> Result<(u64, u64), Short> {
    Ok((fields.u64()?, fields.u64()?))
}

/// Attributes in entries of `entry` bytes, each with the place of its ids.
fn add_attributes(records: &mut Records, data: &[u8], (from, size): (u64, u64), entry: u64) -> Result<(), Short> {
    const IDS: u64 = 16;
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let mut table = Fields::new(data, from);
    let table = table.bytes(size)?;
    let Some(whole) = usize::try_from(entry).ok().filter(|&entry| entry as u64 > IDS) else {
        return Err(Short { at: MAGIC.len() + 8, wanted: IDS + 1, there: entry as usize });
    };
    for (number, bytes) in table.chunks_exact(whole).enumerate() {
        let at = from + number * whole;
        let outer = |short: Short| Short { at: at + short.at, ..short };
        let attribute = Attribute::read(&mut Fields::new(bytes, 0)).map_err(outer)?;
        let mut place = Fields::new(bytes, whole - IDS as usize);
        let (ids, size) = section(&mut place).map_err(outer)?;
        let ids = Fields::new(data, usize::try_from(ids).unwrap_or(usize::MAX)).bytes(size)?;
        let mut ids = Fields::new(ids, 0);
        records.attributes.add(attribute, std::iter::from_fn(|| ids.u64().ok()));
    }
    Ok(())
}

/// Number, offset and size of each feature: a table behind the records, by the bits of the flags. And where all that
/// ends.
fn features(data: &[u8], end: usize, flags: &[u64; 4]) -> (Vec<(u32, u64, u64)>, u64) {
    let mut table = Fields::new(data, end);
    let set: Vec<_> = (0..256u32).filter(|&bit| flags[bit as usize / 64] >> (bit % 64) & 1 != 0).collect();
    let table_end = end as u64 + set.len() as u64 * 16;
    let features = set.into_iter().map_while(|bit| section(&mut table).ok().map(|(from, size)| (bit, from, size)));
    let features: Vec<_> = features.collect();
    let ends = features.iter().map(|&(_, from, size)| from.saturating_add(size));
    let behind = ends.max().map_or(table_end, |last| last.max(table_end));
    (features, behind)
}

#[cfg(test)]
mod tests {
    use super::PIPE_HEAD;
    use crate::perf::recording::{halves, program, runs, text, words, Folder, Pipe, NOP_RET, USER};
    use crate::{open, CaptureError, Options};

    #[test]
    fn threads_of_perf_have_files_of_their_own() {
        let folder = Folder::new("threads");
        program(&folder, "work", &NOP_RET);
        let (mut head, mut first, mut last) = (Pipe::new(), Pipe(Vec::new()), Pipe(Vec::new()));
        head.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        first.enters((7, 7, 10, 0));
        first.ran(0, &[(20, USER)]);
        last.enters((7, 9, 10, 1));
        let entered = last.0.len();
        last.ran(1, &[(20, USER), (30, USER)]);
        folder.add("data", &head.0);
        for (number, pipe) in [&first, &Pipe(Vec::new()), &last].into_iter().enumerate() {
            folder.add(&format!("data.{number}"), &pipe.0);
        }
        let options = Options { symbols: vec![folder.0.clone()], ..Options::default() };
        let capture = open(&folder.0, &options).unwrap();
        assert_eq!(runs(&capture), [(7, vec![2]), (9, vec![2, 2])]);
        assert!(capture.warnings.is_empty());

        let cut = folder.add("data.2", &last.0[..last.0.len() - 8]);
        let capture = open(&folder.0, &options).unwrap();
        // The end of its last run is missing.
        assert_eq!(runs(&capture), [(7, vec![2]), (9, vec![2, 0])]);
        let begin = format!("{}: at offset {:#x}: ", cut.display(), entered);
        assert!(capture.warnings[0].starts_with(&begin), "{:?}", capture.warnings);
    }

    /// Records in one of perf's own (COMPRESSED), as a zstd stream of blocks: their kind (0 for bytes as they are, 1 for
    /// one byte that is repeated), how many bytes they become, and their own (RFC 8878, section 3.1.1.2).
    fn packed(pipe: &mut Pipe, blocks: impl IntoIterator<Item = (u32, usize, Vec<u8>)>) {
        let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x58];
        for (kind, size, bytes) in blocks {
            stream.extend(&((size as u32) << 3 | kind << 1).to_le_bytes()[..3]);
            stream.extend(bytes);
        }
        stream.chunks(60_000).for_each(|piece| pipe.record(81, 0, piece));
    }

    fn stored(bytes: Vec<u8>) -> (u32, usize, Vec<u8>) {
        (0, bytes.len(), bytes)
    }

    /// Records that tell nothing (BPF_EVENT), of 65,008 bytes.
    fn large(count: usize) -> impl Iterator<Item = (u32, usize, Vec<u8>)> {
        let head = [&18u32.to_le_bytes()[..], &[0, 0], &65_008u16.to_le_bytes()].concat();
        (0..count).flat_map(move |_| [stored(head.clone()), (1, 65_000, vec![0])])
    }

    #[test]
    fn a_thread_that_wrote_much_leaves_room_for_the_records_of_the_others() {
        let folder = Folder::new("much");
        program(&folder, "work", &NOP_RET);
        let (mut head, mut first, mut last) = (Pipe::new(), Pipe(Vec::new()), Pipe(Vec::new()));
        head.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        head.ran(0, &[(20, USER)]);
        // More than what the little that the second one wrote may become.
        let mut stored_too = Pipe(Vec::new());
        stored_too.record(18, 0, &[0; 65_000]);
        packed(&mut first, large(1_100).chain([stored(stored_too.0)]));
        let mut enters = Pipe(Vec::new());
        enters.enters((7, 7, 10, 0));
        packed(&mut last, [stored(enters.0)]);
        folder.add("data", &head.0);
        folder.add("data.0", &first.0);
        folder.add("data.1", &last.0);
        let capture = open(&folder.0, &Options { symbols: vec![folder.0.clone()], ..Options::default() }).unwrap();
        assert_eq!(capture.warnings, Vec::<String>::new());
        assert_eq!(runs(&capture), [(7, vec![2])]);
    }

    #[test]
    fn a_thread_whose_records_end_in_damage_leaves_those_of_the_others_whole() {
        let folder = Folder::new("damaged");
        program(&folder, "work", &NOP_RET);
        let (mut head, mut first, mut last) = (Pipe::new(), Pipe(Vec::new()), Pipe(Vec::new()));
        head.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        head.ran(0, &[(20, USER)]);
        let reserved = (3, 0, Vec::new());
        packed(&mut first, large(60).chain([reserved]));
        let mut enters = Pipe(Vec::new());
        enters.enters((7, 7, 10, 0));
        packed(&mut last, [stored(enters.0)]);
        folder.add("data", &head.0);
        folder.add("data.0", &first.0);
        folder.add("data.1", &last.0);
        let capture = open(&folder.0, &Options { symbols: vec![folder.0.clone()], ..Options::default() }).unwrap();
        assert!(capture.warnings[0].contains("compressed records cannot be unpacked"), "{:?}", capture.warnings);
        assert_eq!(runs(&capture), [(7, vec![2])]);
    }

    #[test]
    fn a_file_that_perf_did_not_finish_is_told() {
        let folder = Folder::new("killed");
        // The size of the file's head and of an attribute with its ids; nothing of these, and records of no size yet.
        let head = words(&[104, 80, 104, 0, 104, 0, 0, 0, 0, 0, 0, 0]);
        let mut pipe = Pipe([&b"PERFILE2"[..], &head].concat());
        pipe.record(70, 0, &words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1]));
        pipe.packets(0, 0, &[0; 8]);
        let capture = pipe.open(&folder, Options { cpu: Some((6, 122, 1)), ..Options::default() });
        let warning = "perf did not finish the file, as where it was killed: what its buffers still held is missing, packets and \
                       records; end perf with SIGINT";
        assert_eq!((capture.streams.len(), capture.warnings), (1, vec![warning.to_owned()]));
    }

    #[test]
    fn a_recording_of_another_byte_order_is_none_of_processor_trace() {
        let folder = Folder::new("swapped");
        let path = folder.add("perf.data", &[&b"2ELIFREP"[..], &[0; 96]].concat());
        let Err(error) = open(&path, &Options::default()) else { panic!("it is none") };
        assert!(matches!(error, crate::CaptureError::Unknown { .. }), "{error}");
        assert!(error.to_string().contains("(big-endian), which has no Processor Trace"), "{error}");
    }

    #[test]
    fn a_recording_without_branches_and_with_compressed_returns_is_refused() {
        let folder = Folder::new("notnt");
        let mut pipe = Pipe::new();
        pipe.packets(0, 0, &[0; 8]);
        // Of the event's attribute, behind the head of the file, that of the record, type and size.
        let config = 16 + 8 + 8..16 + 8 + 8 + 8;
        let file = folder.0.join("perf.data");
        let mut read = |bits: u64| {
            pipe.0[config.clone()].copy_from_slice(&bits.to_le_bytes());
            folder.add("perf.data", &pipe.0);
            open(&file, &Options::default())
        };
        assert!(read(1 << 55 | 1 << 11).unwrap().config.without_tnt);
        let error = read(1 << 55).err().unwrap().to_string();
        assert!(error.starts_with(&file.display().to_string()) && error.contains("notnt,noretcomp"), "{error}");
    }

    #[test]
    fn a_file_that_was_cut_in_front_of_its_packets_is_damaged() {
        let folder = Folder::new("cut-in-front");
        let mut pipe = Pipe::new();
        pipe.event(3, 0, &[halves(&[7, 7]), text("work")].concat(), (7, 7, 0, 0));
        let behind = pipe.0.len();
        pipe.packets(0, 0, &[0; 8]);
        let file = folder.0.join("perf.data");
        let read = |size: usize| {
            folder.add("perf.data", &pipe.0[..size]);
            open(&file, &Options::default())
        };
        assert_eq!(read(pipe.0.len()).unwrap().streams.len(), 1);
        for size in [PIPE_HEAD as usize, behind - 1, behind + 4] {
            let cut = read(size).err().unwrap();
            assert!(matches!(cut, CaptureError::Damaged { .. }), "{size}: {cut}");
        }
        // What ends behind a record may be whole.
        let none = "perf recorded no Processor Trace (its event was there and left no packets): use `perf record -e intel_pt//`";
        assert_eq!(read(behind).unwrap().warnings, [none]);
    }

    #[test]
    fn records_that_become_too_much_are_left_out_with_a_word() {
        let folder = Folder::new("bomb");
        let mut pipe = Pipe::new();
        pipe.packets(0, 0, &[0; 8]);
        packed(&mut pipe, large(1_100));
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(capture.warnings, ["compressed records are left out from 67108864 unpacked bytes on"]);
    }
}

//! All records of a recording, unpacked, with what they need to be understood.

use super::address_filters::AddressFilters;
use super::attributes::{Attribute, Attributes};
use super::auxtrace::{Joined, Streams};
use super::build_ids::{Features, FEATURE_TRACING_DATA};
use super::id_index::{IdIndex, Opened};
use super::pt_info::{time_conversion, PtInfo};
use super::record::{kind, Record, HEAD};
use super::samples::Sample;
use crate::fields::Fields;
use crate::unpacked::max_unpacked;
use crate::{Bytes, CaptureError, Conversion};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// Where records stand: the file's own, or those that were compressed in it.
#[derive(Default)]
pub struct Records {
    pub attributes: Attributes,
    pub features: Features,
    pub streams: Streams,
    ids: IdIndex,
    pub info: Option<PtInfo>,
    pub filters: AddressFilters,
    pub conversion: Option<Conversion>,
    /// Offsets of the records that the kernel wrote.
    pub events: Vec<usize>,
    /// Records that were compressed, unpacked.
    pub unpacked: Vec<u8>,
    packed: Vec<(usize, usize)>,
    /// It has hardware traces of another kind.
    pub foreign: bool,
    /// Where the records end too early, and how that shows.
    pub cut: Option<(usize, String)>,
    /// Bytes of the last packets that the file ends before.
    missing: u64,
    /// Bytes that were unpacked to `unpacked`, of all files.
    packed_bytes: usize,
    /// Records of perf of kinds that are not known, by kind.
    pub unknown: BTreeMap<u32, u64>,
    pub warnings: Vec<String>,
}

impl Records {
    /// Reads the records of the file that stands at `file`, from `at` on. Damage ends it with a warning, unless nothing was
    /// found before.
    pub fn read(&mut self, path: &Path, data: &[u8], file: Range<usize>, at: usize) -> Result<(), CaptureError> {
        let end = file.end.min(data.len());
        let of = if file.start == 0 { String::new() } else { format!("{}: ", path.display()) };
        let mut next = at;
        while next < end {
            match self.record(&data[..end], next) {
                Ok(behind) => {
                    if let missing @ 1.. = std::mem::take(&mut self.missing) {
                        let at = next - file.start;
                        let what = format!("the file ends before the last {missing} bytes of these packets");
                        self.warnings.push(format!("{of}at offset {at:#x}: {what}"));
                    }
                    next = behind;
                }
                Err(what) if self.events.is_empty() && self.info.is_none() => {
                    return Err(CaptureError::damaged(path, next - file.start, what));
                }
                Err(what) => {
                    let (at, behind) = (next - file.start, end - next);
                    self.cut.get_or_insert_with(|| (at, what.clone()));
                    self.warnings
                        .push(format!("{of}at offset {at:#x}: {what}; the {behind} bytes behind are left out"));
                    break;
                }
            }
        }
        let begin = self.unpacked.len();
        self.unpack(data);
        self.end_with_a_whole_record(begin);
        Ok(())
    }

    /// Takes the record at the offset; returns where the next one is.
    fn record(&mut self, data: &[u8], at: usize) -> Result<usize, String> {
        let record = Record::at(data, at)?.ok_or("no record")?;
        let behind = at + HEAD + record.body.len();
        let text = |short: crate::fields::Short| format!("a record of kind {}: {short}", record.kind);
        match record.kind {
            kind::AUXTRACE => {
                let (behind, missing) = self.streams.take(record.body, behind, data.len()).map_err(text)?;
                self.missing = missing;
                return Ok(behind);
            }
            kind::AUXTRACE_INFO => match PtInfo::read(record.body).map_err(text)? {
                Ok(info) => {
                    self.conversion = info.conversion.or(self.conversion);
                    self.info = Some(info);
                    self.filters = AddressFilters::read(record.body);
                }
                Err(kind) => {
                    self.foreign = true;
                    let name = other_trace(kind).map_or(String::new(), |name| format!(" ({name})"));
                    self.warnings.push(format!("hardware trace of type {kind}{name} is no Intel PT: left out"));
                }
            },
            kind::TIME_CONV => self.conversion = time_conversion(record.body).or(self.conversion),
            kind::HEADER_ATTR => {
                let mut fields = Fields::new(record.body, 0);
                let attribute = Attribute::read(&mut fields).map_err(text)?;
                let ids = std::iter::from_fn(|| fields.u64().ok());
                self.attributes.add(attribute, ids);
            }
            kind::HEADER_FEATURE => {
                let mut fields = Fields::new(record.body, 0);
                let feature = fields.u64().map_err(text)?;
                let rest = fields.bytes(fields.left() as u64).map_err(text)?;
                self.features.take(u32::try_from(feature).unwrap_or(u32::MAX), rest);
            }
            kind::BUILD_ID => self.features.build_id(&record),
            kind::ID_INDEX => self.ids.take(record.body).map_err(text)?,
            kind::TRACING_DATA => {
                let size = Fields::new(record.body, 0).u32().map_err(text)? as usize;
                let size = size.checked_next_multiple_of(8).filter(|&size| size <= data.len() - behind);
                let size = size.ok_or_else(|| "tracing data beyond the end".to_owned())?;
                self.features.take(FEATURE_TRACING_DATA, &data[behind..behind + size]);
                return Ok(behind + size);
            }
            kind::COMPRESSED => self.packed.push((at + HEAD, behind)),
            kind::COMPRESSED2 => {
                let size = Fields::new(record.body, 0).u64().map_err(text)?;
                let there = (record.body.len() as u64).saturating_sub(8);
                self.packed.push((at + HEAD + 8, at + HEAD + 8 + size.min(there) as usize));
            }
            kind::AUXTRACE_ERROR => {
                // In the first format no time stands in front of what it says (tools/perf/util/auxtrace.c).
                let format = Fields::new(record.body, 20).u32().map_err(text)?;
                let rest = record.body.get(if format == 0 { 32 } else { 40 }..).unwrap_or_default();
                self.warnings.push(format!("perf says: {}", Fields::new(rest, 0).text()));
            }
            _ if record.kind < kind::USER => self.events.push(at),
            unknown if unknown > kind::LAST => *self.unknown.entry(unknown).or_default() += 1,
            _ => {}
        }
        Ok(behind)
    }

    /// Compressed records are a zstd stream over all of their pieces, one for each thread of perf that wrote.
    fn unpack(&mut self, data: &[u8]) {
        let packed = std::mem::take(&mut self.packed);
        let pieces: Vec<_> = packed.iter().map(|&(from, to)| &data[from..to]).collect();
        let mut left = pieces.iter().map(|piece| piece.len()).sum();
        self.packed_bytes += left;
        let limit = max_unpacked(self.packed_bytes);
        let mut reader = Pieces { pieces, at: 0 }.chain(STREAM_END);
        while left > 0 {
            let room = limit - self.unpacked.len() as u64;
            let unpacked = ruzstd::decoding::StreamingDecoder::new(&mut reader)
                .map_err(|error| error.to_string())
                .and_then(|mut decoder| {
                    let mut bounded = Read::by_ref(&mut decoder).take(room);
                    bounded.read_to_end(&mut self.unpacked).map_err(|error| error.to_string())
                });
            if let Err(error) = unpacked {
                self.warnings.push(format!("{left} bytes of compressed records cannot be unpacked: {error}"));
                return;
            }
            let still = reader.get_ref().0.left();
            if self.unpacked.len() as u64 == limit {
                self.warnings.push(format!("compressed records are left out from {limit} unpacked bytes on"));
                return;
            }
            if still == left {
                return;
            }
            left = still;
        }
    }

    /// What another thread of perf wrote is to begin at a record, wherever this one's ends.
    fn end_with_a_whole_record(&mut self, begin: usize) {
        let mut at = begin;
        while let Ok(Some(record)) = Record::at(&self.unpacked, at) {
            at += HEAD + record.body.len();
        }
        self.unpacked.truncate(at);
    }

    /// The events of the kernel, those of the file first.
    pub fn each<'d>(&'d self, data: &'d [u8]) -> impl Iterator<Item = Record<'d>> {
        self.own(data).map(|(_, record)| record).chain(self.unpacked())
    }

    /// Those that stand in the file itself, with the offsets of what is behind their heads.
    fn own<'d>(&'d self, data: &'d [u8]) -> impl Iterator<Item = (usize, Record<'d>)> {
        self.events.iter().filter_map(|&at| Some((at + HEAD, Record::at(data, at).ok().flatten()?)))
    }

    fn unpacked(&self) -> impl Iterator<Item = Record<'_>> {
        let mut at = 0;
        let all = std::iter::from_fn(move || {
            let record = Record::at(&self.unpacked, at).ok().flatten()?;
            at += HEAD + record.body.len();
            Some(record)
        });
        all.filter(|record| record.kind < kind::USER)
    }

    /// All packet streams.
    pub fn join(&mut self, file: &Bytes, beginnings: bool) -> Result<Vec<Joined>, CaptureError> {
        let mut streams = std::mem::take(&mut self.streams);
        if self.foreign && self.info.is_none() {
            return Ok(Vec::new());
        }
        if self.attributes.sample_packets() {
            let sample = |record: &Record<'_>| {
                let sample = (record.kind == kind::SAMPLE).then(|| Sample::read(record.body, &self.attributes).ok());
                sample.flatten().filter(|sample| !sample.packets.is_empty())
            };
            for (at, record) in self.own(file) {
                if let Some(sample) = sample(&record) {
                    let packets = file.part(at + sample.packets.start..at + sample.packets.end);
                    streams.take_sample(self.opened(&sample), packets);
                }
            }
            for record in self.unpacked() {
                if let Some(sample) = sample(&record) {
                    streams.take_sample(self.opened(&sample), record.body[sample.packets.clone()].to_vec().into());
                }
            }
        }
        let around = self.info.is_some_and(|info| info.snapshots);
        streams.join(file, around, beginnings)
    }

    /// Whose packets a sample has. Where it was taken it need not say: of a program that is recorded, but not its machine, it does
    /// not (evsel__config in tools/perf/util/evsel.c of Linux), though its buffer is that of a core, which other threads use too.
    fn opened(&self, sample: &Sample) -> Opened {
        let told = sample.event.and_then(|event| self.ids.opened(event));
        told.unwrap_or(Opened { cpu: sample.id.cpu, tid: sample.id.tid })
    }
}

/// What other hardware traces are (`enum auxtrace_type` in tools/perf/util/auxtrace.h of Linux).
fn other_trace(kind: u32) -> Option<&'static str> {
    let names = ["Intel BTS", "Arm CoreSight", "Arm SPE", "s390 CPU-MF", "HiSilicon PTT", "PowerPC VPA"];
    names.get(kind.checked_sub(2)? as usize).copied()
}

/// An empty last block, and room for a checksum: perf flushes its stream and never ends it (RFC 8878, section 3.1.1.2).
const STREAM_END: &[u8] = &[1, 0, 0, 0, 0, 0, 0];

struct Pieces<'d> {
    pieces: Vec<&'d [u8]>,
    at: usize,
}

impl Pieces<'_> {
    fn left(&self) -> usize {
        self.pieces[self.at.min(self.pieces.len())..].iter().map(|piece| piece.len()).sum()
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while let Some(piece) = self.pieces.get_mut(self.at) {
            let count = piece.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.at += 1;
        }
        Ok(0)
    }
}

//! Griffin containers: buffers of threads, and the pages of code that they ran.
//!
//! Little-endian: u32 magic, u32 version, then records {u32 kind, u32 size of the record, body}.

mod placed;
mod records;

use crate::bytes::IN_MEMORY;
use crate::fields::{Fields, Short};
use crate::{Bytes, Capture, CaptureError, Kind, Of, Options, Stream, View};
use pt_image::{Image, ImageError};
use pt_packet::find_psb;
use records::{Records, Refusal, Thread};
use std::collections::BTreeMap;
use std::path::Path;

pub const MAGIC: &[u8] = &[0xee, 0xff, 0xc0, 0x51];

const VERSION: u32 = 1;
const HEAD: usize = 8;

/// Pages of all processes, with those of the processes that they were forked from, are taken up to this many bytes.
const MAX_PAGES: usize = 1 << 30;

/// Pages that touch become one section of at most this size.
const MAX_SECTION: usize = 1 << 28;

pub fn read(path: &Path, data: &Bytes, options: &Options) -> Result<Capture, CaptureError> {
    let mut capture = Capture::new(Kind::Griffin);
    let mut records = records(path, data, &mut capture.warnings)?;
    capture.names = std::mem::take(&mut records.names);
    if records.inherited() > MAX_PAGES {
        let what = format!("the pages of all processes have more than {MAX_PAGES} bytes, with those that they inherit");
        return Err(CaptureError::damaged(path, 0, what));
    }
    let mut images = BTreeMap::new();
    for (&(tid, pid), thread) in &records.threads {
        if thread.parts.iter().all(|part| part.buffers.is_empty()) {
            continue;
        }
        let image = match images.get(&pid) {
            Some(&image) => image,
            None => {
                let own = image_of(&records, pid);
                capture.images.push(own.map_err(|error| CaptureError::damaged(path, 0, error.to_string()))?);
                let number = capture.images.len() - 1;
                images.insert(pid, number);
                number
            }
        };
        let joined = joined(thread, data);
        let epoch = |&(at, program): &(usize, usize)| {
            let view = View { pid, tid, image, epoch: program as u32, kernel: 0, stay: 0 };
            (at, capture.views.number(view))
        };
        let epochs = joined.programs.iter().map(epoch).collect();
        let size = joined.parts.iter().map(|part| part.len()).sum();
        let packets = Bytes::join_for(&joined.parts, options.beginnings)?;
        let name = format!("thread {tid}");
        if !joined.lost.is_empty() {
            let what = format!("{name}: buffers are missing at {} places", joined.lost.len());
            capture.warnings.push(what);
        }
        let stream = Stream::of_size(size, name, packets, Of::Thread { pid, tid });
        capture.streams.push(Stream { image, epochs, lost: joined.lost, ..stream });
    }
    if capture.streams.is_empty() {
        capture.warnings.push("the container holds no packets".to_owned());
    }
    Ok(capture)
}

/// A thread's packets in their order.
#[derive(Default)]
struct Joined {
    parts: Vec<Bytes>,
    /// From which offset on which program of its process runs.
    programs: Vec<(usize, usize)>,
    /// Offsets at which buffers are missing.
    lost: Vec<usize>,
}

fn joined(thread: &Thread<'_>, data: &Bytes) -> Joined {
    let (mut joined, mut at) = (Joined::default(), 0);
    for part in thread.parts.iter().filter(|part| !part.buffers.is_empty()) {
        joined.programs.push((at, part.program));
        let mut expected = None;
        for (&sequence, &packets) in &part.buffers {
            let start = packets.as_ptr() as usize - data.as_ptr() as usize;
            let mut first = 0;
            if expected.is_some_and(|expected| expected != sequence) {
                joined.lost.push(at);
                // Nothing says where packets begin until a PSB comes.
                first = find_psb(packets, 0).unwrap_or(packets.len());
            }
            joined.parts.push(data.part(start + first..start + packets.len()));
            at += packets.len() - first;
            expected = sequence.checked_add(1);
        }
    }
    joined
}

fn records<'d>(path: &Path, data: &'d Bytes, warnings: &mut Vec<String>) -> Result<Records<'d>, CaptureError> {
    let short = |short: Short| CaptureError::damaged(path, short.at, short.to_string());
    let mut head = Fields::new(data, MAGIC.len());
    let version = head.u32().map_err(short)?;
    let mut records = Records::default();
    if version != VERSION {
        warnings.push(format!("version {version} of the container is read like version {VERSION}"));
    }
    let mut released = 0;
    let (mut shorter, mut impossible) = (LeftOut::default(), LeftOut::default());
    while head.left() > 0 {
        let start = head.at();
        // The system maps what stands around each head as well.
        if start >= released + IN_MEMORY {
            released = start;
            data.release();
        }
        let (kind, body) = match record(&mut head) {
            Ok(record) => record,
            Err(what) if !records.have_packets() => return Err(CaptureError::damaged(path, start, what)),
            Err(what) => {
                warnings.push(format!("at offset {start:#x}: {what}; the container ends here"));
                break;
            }
        };
        let body_at = start + HEAD;
        match records.take(kind, body) {
            Ok(()) => {}
            Err(Refusal::Short(short)) => shorter.count(body_at + short.at, kind, || short.to_string()),
            Err(Refusal::Impossible(what)) => impossible.count(body_at, kind, || what),
        }
    }
    warnings.extend(shorter.warning("are shorter than what they should hold"));
    warnings.extend(impossible.warning("say what cannot be"));
    if records.replaced > 0 {
        let what = "nothing says when: the last is taken to have been there from the beginning";
        warnings.push(format!("{} times code was mapped where other code had been, and {what}", records.replaced));
    }
    for (kind, count) in &records.unknown {
        warnings.push(format!("{count} records are of kind {kind}, which is not known here: they are left out"));
    }
    Ok(records)
}

/// Records that are left out for one reason.
#[derive(Default)]
struct LeftOut {
    count: usize,
    first: String,
}

impl LeftOut {
    fn count(&mut self, at: usize, kind: u32, why: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = format!("{at:#x} in one of kind {kind}: {}", why());
        }
        self.count += 1;
    }

    fn warning(self, what: &str) -> Option<String> {
        let LeftOut { count, first } = self;
        (count > 0).then(|| format!("{count} records {what} and are left out, first at offset {first}"))
    }
}

/// Kind and body of the next record, or why it cannot be had.
fn record<'d>(fields: &mut Fields<'d>) -> Result<(u32, &'d [u8]), String> {
    let left = fields.left();
    let (Ok(kind), Ok(size)) = (fields.u32(), fields.u32()) else {
        return Err(format!("the head of a record has {HEAD} bytes; {left} bytes are left"));
    };
    let body = u64::from(size).checked_sub(HEAD as u64).and_then(|size| fields.bytes(size).ok());
    let what = || format!("a record of kind {kind} says its size is {size}; {left} bytes are left");
    Ok((kind, body.ok_or_else(what)?))
}

/// The pages of a process over those of the processes it was forked from; an epoch for each program that it executed.
fn image_of(records: &Records<'_>, pid: u32) -> Result<Image, ImageError> {
    let mut image = Image::new();
    for program in 0..records.programs(pid) {
        let epoch = program as u32;
        let before = program.checked_sub(1).map(|before| records.line(pid, before)).unwrap_or_default();
        for (&base, bytes) in before.into_iter().flatten() {
            image.unmap(epoch, base, bytes.len() as u64)?;
        }
        for pages in records.line(pid, program).into_iter().rev() {
            let mut run = (0, Vec::new());
            for (&base, &bytes) in pages {
                if base != u64::saturating_add(run.0, run.1.len() as u64) || run.1.len() + bytes.len() > MAX_SECTION {
                    put(&mut image, epoch, std::mem::replace(&mut run, (base, Vec::new())))?;
                }
                run.1.extend_from_slice(bytes);
            }
            put(&mut image, epoch, run)?;
        }
    }
    Ok(image)
}

fn put(image: &mut Image, epoch: u32, (base, bytes): (u64, Vec<u8>)) -> Result<(), ImageError> {
    if bytes.is_empty() {
        return Ok(());
    }
    image.code(epoch, base, bytes)
}

//! Griffin containers: buffers of threads, and the pages of code that they ran.
//!
//! Little-endian: u32 magic, u32 version, then records {u32 kind, u32 size of the record, body}.

use crate::bytes::IN_MEMORY;
use crate::fields::{Fields, Short};
use crate::{Bytes, Capture, CaptureError, Kind, Of, Options, Stream, View};
use pt_image::{Image, ImageError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub const MAGIC: &[u8] = &[0xee, 0xff, 0xc0, 0x51];

const VERSION: u32 = 1;
const HEAD: usize = 8;

const BUFFER: u32 = 0;
const PROCESS: u32 = 1;
const THREAD: u32 = 2;
const IMAGE: u32 = 3;
const XPAGE: u32 = 4;
const UNMAP: u32 = 5;
const FORK: u32 = 6;
const SECTION: u32 = 7;
const THREAD_END: u32 = 8;
/// System calls, of a later version.
const AUDIT: u32 = 9;

/// Size of a thread's name.
const NAME: u64 = 16;

/// Forks of forks are followed this far.
const MAX_ANCESTORS: usize = 64;
/// Pages of all processes, with those of the processes that they were forked from, are taken up to this many bytes.
const MAX_PAGES: usize = 1 << 30;

/// Pages that touch become one section of at most this size.
const MAX_SECTION: usize = 1 << 28;

#[derive(Default)]
struct Records<'d> {
    /// By thread, then by sequence number: process and packets.
    buffers: BTreeMap<u32, BTreeMap<u64, (u32, &'d [u8])>>,
    /// By process, then by address.
    pages: BTreeMap<u32, BTreeMap<u64, &'d [u8]>>,
    names: BTreeMap<u32, String>,
    parents: BTreeMap<u32, u32>,
    warnings: Vec<String>,
    /// Records of kinds that are not known, by kind.
    unknown: BTreeMap<u32, u64>,
}

pub fn read(path: &Path, data: &Bytes, options: &Options) -> Result<Capture, CaptureError> {
    let mut records = records(path, data)?;
    let mut capture = Capture::new(Kind::Griffin);
    capture.warnings = std::mem::take(&mut records.warnings);
    capture.names = std::mem::take(&mut records.names);
    if records.inherited() > MAX_PAGES {
        let what = format!("the pages of all processes have more than {MAX_PAGES} bytes, with those that they inherit");
        return Err(CaptureError::damaged(path, 0, what));
    }
    let mut images = BTreeMap::new();
    for (&tid, buffers) in &records.buffers {
        let pid = buffers.values().next().map_or(tid, |&(pid, _)| pid);
        let image = match images.get(&pid) {
            Some(&image) => image,
            None => {
                let own = image_of(records.line(pid), &records.pages);
                capture.images.push(own.map_err(|error| CaptureError::damaged(path, 0, error.to_string()))?);
                let number = capture.images.len() - 1;
                images.insert(pid, number);
                number
            }
        };
        let start = |packets: &[u8]| packets.as_ptr() as usize - data.as_ptr() as usize;
        let parts = buffers.values().map(|&(_, packets)| data.part(start(packets)..start(packets) + packets.len()));
        let parts: Vec<_> = parts.collect();
        let size = parts.iter().map(|part| part.len()).sum();
        let packets = Bytes::join_for(&parts, options.beginnings)?;
        let view = capture.views.number(View { pid, tid, image, epoch: 0, kernel: 0, stay: 0 });
        let of = Of::Thread { pid, tid };
        let stream = Stream::of_size(size, format!("thread {tid}"), packets, of);
        capture.streams.push(Stream { image, epochs: vec![(0, view)], ..stream });
    }
    if capture.streams.is_empty() {
        capture.warnings.push("the container holds no packets".to_owned());
    }
    Ok(capture)
}

fn records<'d>(path: &Path, data: &'d Bytes) -> Result<Records<'d>, CaptureError> {
    let short = |short: Short| CaptureError::damaged(path, short.at, short.to_string());
    let mut head = Fields::new(data, MAGIC.len());
    let version = head.u32().map_err(short)?;
    let mut records = Records::default();
    if version != VERSION {
        records.warnings.push(format!("version {version} of the container is read like version {VERSION}"));
    }
    let mut released = 0;
    while head.left() > 0 {
        let start = head.at();
        // The system maps what stands around each head as well.
        if start >= released + IN_MEMORY {
            released = start;
            data.release();
        }
        let (kind, body) = match record(&mut head) {
            Ok(record) => record,
            Err(what) if records.buffers.is_empty() => return Err(CaptureError::damaged(path, start, what)),
            Err(what) => {
                records.warnings.push(format!("at offset {start:#x}: {what}; the container ends here"));
                break;
            }
        };
        if let Err(short) = records.take(kind, body) {
            let offset = start + HEAD + short.at;
            return Err(CaptureError::damaged(path, offset, format!("in a record of kind {kind}: {short}")));
        }
    }
    for (kind, count) in &records.unknown {
        let what = "which is not known here: they are left out";
        records.warnings.push(format!("{count} records are of kind {kind}, {what}"));
    }
    Ok(records)
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

impl<'d> Records<'d> {
    fn take(&mut self, kind: u32, body: &'d [u8]) -> Result<(), Short> {
        let mut fields = Fields::new(body, 0);
        match kind {
            BUFFER => {
                let (tgid, pid) = (fields.u64()? as u32, fields.u64()? as u32);
                let (sequence, size) = (fields.u64()?, fields.u64()?);
                let packets = fields.bytes(size)?;
                self.buffers.entry(pid).or_default().insert(sequence, (tgid, packets));
            }
            PROCESS => {
                let (tgid, size) = (fields.u64()? as u32, fields.u64()?);
                let name = Fields::new(fields.bytes(size)?, 0).text();
                self.names.insert(tgid, name);
            }
            XPAGE => {
                let (tgid, base, size) = (fields.u64()? as u32, fields.u64()?, fields.u64()?);
                let bytes = fields.bytes(size)?;
                self.pages.entry(tgid).or_default().insert(base, bytes);
            }
            FORK => {
                let (parent, _, child, _) = (fields.u64()? as u32, fields.u64()?, fields.u64()? as u32, fields.u64()?);
                self.parents.insert(child, parent);
            }
            THREAD => {
                let (_, tid) = (fields.u64()?, fields.u64()? as u32);
                // Of a later version.
                if let Ok(name) = fields.bytes(NAME) {
                    self.names.entry(tid).or_insert_with(|| Fields::new(name, 0).text());
                }
            }
            // Code is known by its pages, a thread's end by its packets.
            IMAGE | UNMAP | SECTION | THREAD_END | AUDIT => {}
            _ => *self.unknown.entry(kind).or_default() += 1,
        }
        Ok(())
    }

    /// A process and those that it was forked from.
    fn line(&self, pid: u32) -> Vec<u32> {
        let mut line = vec![pid];
        while let Some(&parent) = self.parents.get(&line[line.len() - 1]).filter(|parent| !line.contains(parent)) {
            if line.len() > MAX_ANCESTORS {
                break;
            }
            line.push(parent);
        }
        line
    }

    /// Bytes of all processes that ran, with what they inherit.
    fn inherited(&self) -> usize {
        let of = |(&tid, buffers): (&u32, &BTreeMap<u64, (u32, &[u8])>)| {
            buffers.values().next().map_or(tid, |first| first.0)
        };
        let pids: BTreeSet<u32> = self.buffers.iter().map(of).collect();
        let pages = pids.into_iter().flat_map(|pid| self.line(pid)).filter_map(|pid| self.pages.get(&pid));
        pages.flat_map(BTreeMap::values).map(|bytes| bytes.len()).sum()
    }
}

/// The pages of a process over those of the processes it was forked from.
fn image_of(line: Vec<u32>, pages: &BTreeMap<u32, BTreeMap<u64, &[u8]>>) -> Result<Image, ImageError> {
    let mut image = Image::new();
    for pid in line.into_iter().rev() {
        let Some(pages) = pages.get(&pid) else { continue };
        let mut run = (0, Vec::new());
        for (&base, &bytes) in pages {
            if base != u64::saturating_add(run.0, run.1.len() as u64) || run.1.len() + bytes.len() > MAX_SECTION {
                put(&mut image, std::mem::replace(&mut run, (base, Vec::new())))?;
            }
            run.1.extend_from_slice(bytes);
        }
        put(&mut image, run)?;
    }
    Ok(image)
}

fn put(image: &mut Image, (base, bytes): (u64, Vec<u8>)) -> Result<(), ImageError> {
    if bytes.is_empty() {
        return Ok(());
    }
    image.code(0, base, bytes)
}

//! What vpt left in a process's folder (layout: `services/controller/vpt/include/permille/vpt.h`).
#![allow(dead_code)]

use pt_flow::{CodeMemory, CodeSlice, Config, Cpu, Errata};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;

const PAGE: u64 = 4096;
const MARK: u32 = 4;
const MAP: u32 = 1;
const UNMAP: u32 = 2;

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// One change of the image: `struct vpt_map` and what it brings.
struct Change {
    epoch: u32,
    address: u64,
    size: u64,
    offset: u64,
    content: Option<&'static [u8]>,
}

impl Change {
    fn covers(&self, page: u64) -> bool {
        self.address < (page + 1) * PAGE && self.address + self.size > page * PAGE
    }

    fn apply(&self, page: u64, bytes: &mut [Option<u8>]) {
        for (byte, address) in bytes.iter_mut().zip(page * PAGE..) {
            if address >= self.address && address - self.address < self.size {
                let at = (address - self.address + self.offset) as usize;
                *byte = self.content.and_then(|content| content.get(at).copied());
            }
        }
    }
}

/// How a page looks in a range of epochs.
#[derive(Clone, Copy)]
struct Snapshot {
    from: u32,
    until: u32,
    generation: u64,
    bytes: &'static [Option<u8>],
    plain: &'static [u8],
}

#[derive(Default)]
pub struct Image {
    changes: Vec<Change>,
    pages: RefCell<HashMap<u64, Vec<Snapshot>>>,
    snapshots: Cell<u64>,
}

impl Image {
    /// Snapshots are leaked: the flow borrows from them for as long as the program runs.
    fn snapshot(&self, page: u64, epoch: u32, generation: u64) -> Snapshot {
        let mut bytes = vec![None; PAGE as usize];
        let (mut from, mut until) = (0, u32::MAX);
        for change in self.changes.iter().filter(|change| change.covers(page)) {
            if change.epoch > epoch {
                until = change.epoch - 1;
                break;
            }
            from = change.epoch;
            change.apply(page, &mut bytes);
        }
        let plain = bytes.iter().map(|byte| byte.unwrap_or(0)).collect::<Vec<_>>();
        Snapshot { from, until, generation, bytes: bytes.leak(), plain: plain.leak() }
    }
}

impl CodeMemory for Image {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        let (page, at) = (address / PAGE, (address % PAGE) as usize);
        let mut pages = self.pages.borrow_mut();
        let found =
            pages.get(&page).and_then(|all| all.iter().find(|one| (one.from..=one.until).contains(&epoch)).copied());
        let Snapshot { bytes, plain, generation, .. } = found.unwrap_or_else(|| {
            let generation = self.snapshots.get();
            self.snapshots.set(generation + 1);
            let snapshot = self.snapshot(page, epoch, generation);
            pages.entry(page).or_default().push(snapshot);
            snapshot
        });
        let end = bytes[at..].iter().position(Option::is_none).map_or(bytes.len(), |length| at + length);
        (at < end).then(|| CodeSlice { bytes: &plain[at..end], generation })
    }
}

/// The image and the marks of one stream.
fn sideband(bytes: &[u8], stream: u32) -> (Image, Vec<(usize, u32)>) {
    let (mut image, mut marks, mut at) = (Image::default(), Vec::new(), 0);
    while at + 16 <= bytes.len() {
        let (kind, size) = (u32_at(bytes, at), u32_at(bytes, at + 4) as usize);
        let body = &bytes[at + 16..at + 16 + size];
        at += 16 + size;
        if kind == MARK {
            if u32_at(body, 0) == stream {
                marks.push((u64_at(body, 8) as usize, u32_at(body, 4)));
            }
            continue;
        }
        let tail = &body[64..];
        let content = match kind {
            MAP => std::fs::read(String::from_utf8_lossy(tail).as_ref()).ok().map(|file| &*file.leak()),
            UNMAP => None,
            _ => Some(&*tail.to_vec().leak()),
        };
        let offset = if kind == MAP { u64_at(body, 24) } else { 0 };
        let (epoch, address, size) = (u32_at(body, 0), u64_at(body, 8), u64_at(body, 16));
        image.changes.push(Change { epoch, address, size, offset, content });
    }
    image.changes.sort_by_key(|change| change.epoch);
    (image, marks)
}

/// A stream and what is needed to decode it.
pub struct Recording {
    pub packets: Vec<u8>,
    pub config: Config,
    pub image: Image,
    pub epochs: Vec<(usize, u32)>,
}

impl Recording {
    pub fn open(folder: &Path, stream: u32) -> Self {
        let control = std::fs::read(folder.join("control")).expect("control");
        let mut file = std::fs::read(folder.join(format!("stream-{stream}.pt"))).expect("the stream");
        let written = u64_at(&file, 32) as usize;
        file.drain(..PAGE as usize);
        file.truncate(written);
        let mut records = vec![0; u64_at(&control, 216) as usize];
        let mut from = std::fs::File::open(folder.join("sideband.bin")).expect("sideband.bin");
        std::io::Read::read_exact(&mut from, &mut records).expect("the whole sideband");
        let (image, epochs) = sideband(&records, stream);
        let number = |at| u32_at(&control, at);
        let cpu = Cpu { family: number(40) as u16, model: number(44) as u8, stepping: number(48) as u8 };
        let config = Config {
            mtc_freq: number(144) as u8,
            tsc_ctc_ratio: (number(52), number(56)),
            nominal_ratio: number(60) as u8,
            errata: Errata::of(cpu).expect("a known processor"),
            ..Config::default()
        };
        Recording { packets: file, config, image, epochs }
    }
}

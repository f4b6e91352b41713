//! The flow of one stream against the truth that vpt logged: `cargo run --release --example truth -- FOLDER STREAM`.
//!
//! FOLDER is a process's folder of a session in truth mode (layout: `services/controller/vpt/include/permille/vpt.h`).
//! Prints "equal N gaps N errors N missing N beyond N" as `tests/oracle/vpt_oracle.c` does; exit code 1 at a difference.

use pt_flow::{Block, CodeMemory, CodeSlice, Config, DisableKind, Flow, Loss, Sink};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;

const PAGE: u64 = 4096;
const MARK: u32 = 4;
const MAP: u32 = 1;
const UNMAP: u32 = 2;
const TRIM: u32 = u32::MAX;
const GAP: u32 = u32::MAX - 1;
const REPEATS: u32 = 1 << 31;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
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
struct Image {
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

enum Truth {
    Instruction(u64),
    Gap,
    End,
}

/// The truth log, instruction by instruction: the rules stand in vpt.h.
struct Log {
    entries: Vec<u8>,
    at: usize,
    blocks: Vec<(Vec<u64>, bool)>,
    now: std::vec::IntoIter<u64>,
    /// A repeating instruction is held back until it is known whether it retired.
    held: Option<u64>,
    behind: Option<Truth>,
}

impl Log {
    fn open(folder: &Path, stream: u32) -> Self {
        let defined = std::fs::read(folder.join("truth-blocks.bin")).expect("truth-blocks.bin");
        let entries = std::fs::read(folder.join(format!("truth-{stream}.bin"))).expect("the stream's truth");
        let (mut blocks, mut at) = (Vec::new(), 0);
        while at + 8 <= defined.len() {
            let count = u32_at(&defined, at + 4);
            let addresses =
                (0..(count & !REPEATS) as usize).map(|i| u64_at(&defined, at + 8 + 8 * i)).collect::<Vec<_>>();
            at += 8 + 8 * addresses.len();
            blocks.push((addresses, count & REPEATS != 0));
        }
        Log { entries, at: 0, blocks, now: Vec::new().into_iter(), held: None, behind: None }
    }

    fn entry(&self) -> Option<u32> {
        (self.at + 4 <= self.entries.len()).then(|| u32_at(&self.entries, self.at))
    }

    fn before(&mut self, what: Truth) -> Truth {
        match self.held.take() {
            Some(held) => {
                self.behind = Some(what);
                Truth::Instruction(held)
            }
            None => what,
        }
    }

    fn next(&mut self) -> Truth {
        loop {
            if let Some(address) = self.now.next() {
                return Truth::Instruction(address);
            }
            if let Some(behind) = self.behind.take() {
                return behind;
            }
            let Some(entry) = self.entry() else { return self.before(Truth::End) };
            self.at += 4;
            if entry == GAP {
                return self.before(Truth::Gap);
            }
            let (mut addresses, mut repeats) = self.blocks[entry as usize].clone();
            let first = addresses[0];
            if self.entry() == Some(TRIM) {
                let from = u64_at(&self.entries, self.at + 4);
                self.at += 12;
                while addresses.last().is_some_and(|last| *last >= from) {
                    addresses.pop();
                    repeats = false;
                }
            }
            let goes_on = self.held == Some(first);
            let held = self.held.take();
            if repeats {
                self.held = addresses.pop();
            }
            if goes_on {
                addresses.drain(..addresses.len().min(1));
            }
            self.now = addresses.into_iter();
            if let Some(held) = held.filter(|_| !goes_on) {
                return Truth::Instruction(held);
            }
        }
    }
}

struct Comparison {
    log: Log,
    ended: bool,
    different: bool,
    equal: u64,
    gaps: u64,
    errors: u64,
    missing: u64,
    beyond: u64,
}

impl Comparison {
    fn take(&mut self) -> Option<u64> {
        if self.ended {
            return None;
        }
        match self.log.next() {
            Truth::Instruction(address) => Some(address),
            Truth::Gap => {
                self.gaps += 1;
                None
            }
            Truth::End => {
                self.ended = true;
                None
            }
        }
    }

    /// Goes to behind the next gap, or to the end.
    fn skip_stretch(&mut self) {
        self.missing = 0;
        while self.take().is_some() {
            self.missing += 1;
        }
        if !self.ended {
            self.beyond = 0;
        }
    }
}

impl Sink for Comparison {
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        for address in block.addresses() {
            if self.different {
                return;
            }
            match self.take() {
                Some(truth) if truth == address => self.equal += 1,
                Some(truth) => {
                    println!("instruction {}: truth {truth:x} flow {address:x}", self.equal);
                    self.different = true;
                }
                None => self.beyond += 1,
            }
        }
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        println!("{loss:?}");
        self.errors += 1;
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {
        self.skip_stretch();
    }
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, stream] = &arguments[..] else { panic!("usage: truth FOLDER STREAM") };
    let (folder, stream) = (Path::new(folder), stream.parse().expect("a stream's number"));
    let control = std::fs::read(folder.join("control")).expect("control");
    let file = std::fs::read(folder.join(format!("stream-{stream}.pt"))).expect("the stream");
    let written = u64_at(&file, 32) as usize;
    let packets = &file[PAGE as usize..PAGE as usize + written];
    let mut records = vec![0; u64_at(&control, 216) as usize];
    let mut from = std::fs::File::open(folder.join("sideband.bin")).expect("sideband.bin");
    std::io::Read::read_exact(&mut from, &mut records).expect("the whole sideband");
    let (image, marks) = sideband(&records, stream);
    let config = Config {
        mtc_freq: u32_at(&control, 144) as u8,
        tsc_ctc_ratio: (u32_at(&control, 52), u32_at(&control, 56)),
        nominal_ratio: u32_at(&control, 60) as u8,
        ..Config::default()
    };
    let log = Log::open(folder, stream);
    let mut sink =
        Comparison { log, ended: false, different: false, equal: 0, gaps: 0, errors: 0, missing: 0, beyond: 0 };
    Flow::new(&image).decode(packets, &config, &marks, &mut sink);
    sink.skip_stretch();
    let Comparison { different, equal, gaps, errors, missing, beyond, .. } = sink;
    println!("equal {equal} gaps {gaps} errors {errors} missing {missing} beyond {beyond}");
    std::process::ExitCode::from(u8::from(different || errors > 0))
}

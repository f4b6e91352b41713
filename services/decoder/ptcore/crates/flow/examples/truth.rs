//! The flow of one stream against the truth that vpt logged: `cargo run --release --example truth -- FOLDER STREAM`.
//!
//! FOLDER is a process's folder of a session in truth mode (layout: `services/controller/vpt/include/permille/vpt.h`).
//! Prints "equal N gaps N errors N missing N beyond N" as `tests/oracle/vpt_oracle.c` does; exit code 1 at a difference.

#[path = "../tests/support/recording.rs"]
mod recording;

use pt_flow::{Block, DisableKind, Flow, Loss, Sink};
use recording::{u32_at, u64_at, Recording};
use std::path::Path;

const TRIM: u32 = u32::MAX;
const GAP: u32 = u32::MAX - 1;
const REPEATS: u32 = 1 << 31;

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
    let Recording { packets, config, image, epochs } = Recording::open(folder, stream);
    let log = Log::open(folder, stream);
    let mut sink =
        Comparison { log, ended: false, different: false, equal: 0, gaps: 0, errors: 0, missing: 0, beyond: 0 };
    Flow::new(&image).decode(&packets, &config, &epochs, &mut sink);
    sink.skip_stretch();
    let Comparison { different, equal, gaps, errors, missing, beyond, .. } = sink;
    println!("equal {equal} gaps {gaps} errors {errors} missing {missing} beyond {beyond}");
    std::process::ExitCode::from(u8::from(different || errors > 0))
}

//! The flow of one stream against the truth that vpt logged: `cargo run --release --example truth -- FOLDER STREAM`.
//!
//! FOLDER is a process's folder of a session in truth mode (layout: `services/controller/vpt/include/permille/vpt.h`).
//! Prints "equal N gaps N errors N missing N beyond N" as `tests/oracle/vpt_oracle.c` does; exit code 1 at a difference.

#[path = "../tests/support/recording.rs"]
mod recording;
#[path = "../tests/support/truth_log.rs"]
mod truth_log;

use pt_flow::{Block, DisableKind, Flow, Loss, Sink};
use recording::Recording;
use std::path::Path;
use truth_log::{Log, Truth};

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

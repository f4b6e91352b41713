//! What the tests share: where the reference data are, and a sink that counts.
#![allow(dead_code)]

use pt_flow::{Block, DisableKind, Loss, Sink};
use std::path::PathBuf;

/// The folder of the reference data: `PERMILLE_SHARED/data`, or `shared/data` beside the repository. `None`, with a
/// word on stderr, where there is none.
pub fn reference_data() -> Option<PathBuf> {
    let shared = match std::env::var_os("PERMILLE_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../../../shared"),
    };
    let data = shared.join("data");
    if !data.is_dir() {
        eprintln!("skipped: no reference data at {}; set PERMILLE_SHARED", data.display());
        return None;
    }
    Some(data)
}

/// The addresses of all instructions with their times, and what went wrong.
#[derive(Default, Debug)]
pub struct Told {
    pub instructions: Vec<u64>,
    pub times: Vec<u64>,
    pub losses: Vec<Loss>,
    pub enabled: Vec<u64>,
    pub disabled: usize,
    pub overflows: usize,
}

impl Sink for Told {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.instructions.extend(block.addresses());
        self.times.resize(self.instructions.len(), tsc);
    }
    fn enabled(&mut self, ip: u64, _: bool, _: u64) {
        self.enabled.push(ip);
    }
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {
        self.disabled += 1;
    }
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        self.losses.push(*loss);
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {
        self.overflows += 1;
    }
}

//! How long it takes to open a file, and to find the first and the next line and frames; and the memory of it.

use pt_image::{Binary, Search};
use std::time::Instant;

fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pick = |key| status.lines().find(|line: &&str| line.starts_with(key)).unwrap_or_default().replace('\t', " ");
    format!("{}, {}", pick("VmHWM"), pick("RssAnon"))
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: open FILE");
    let start = Instant::now();
    let binary = Binary::load(path.as_ref(), &Search::here()).unwrap_or_else(|error| panic!("{error}"));
    println!("{}: {} functions in {:?}; {}", binary.symbol_status(), binary.functions().len(), start.elapsed(), peak());
    let count = binary.functions().len();
    for number in [count / 2, count / 2, count / 3] {
        let Some(function) = binary.functions().get(number) else { return };
        let start = Instant::now();
        let line = binary.lines(&[function.address]).pop().flatten();
        println!("line of {:?}: {line:?} in {:?}; {}", binary.name(function), start.elapsed(), peak());
        let start = Instant::now();
        println!("{} frames in {:?}; {}", binary.frames(function.address).len(), start.elapsed(), peak());
    }
}

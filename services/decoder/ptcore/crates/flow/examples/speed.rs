//! Decodes the Griffin traces again and again: `cargo run --release --example speed -- [trace] [repetitions]`.

#[path = "../tests/support/mod.rs"]
mod support;

use pt_flow::{Block, Config, DisableKind, Flow, Loss, Sink};
use pt_packet::Reader;
use std::hint::black_box;
use std::time::Instant;

/// Counts executions of every block, the least a use of the flow does.
#[derive(Default)]
struct Executions {
    of_block: Vec<u64>,
    errors: u64,
}

impl Sink for Executions {
    #[inline(always)]
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        let slot = (block.id as usize) << 4 | block.kind as usize;
        if slot >= self.of_block.len() && block.id != u32::MAX {
            self.of_block.resize(slot * 2, 0);
        }
        if let Some(count) = self.of_block.get_mut(slot) {
            *count += 1;
        }
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {
        self.errors += 1;
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("last", String::as_str);
    let repetitions: u32 = arguments.get(1).map_or(30, |number| number.parse().expect("a number of repetitions"));
    let Some(griffin) = support::griffin(name) else { return };
    let stream = griffin.streams.values().next().expect("a stream");
    let mut flow = Flow::new(&griffin.memory);
    let mut sink = Executions::default();
    let mut best = f64::MAX;
    let mut statistics = Default::default();
    for _ in 0..repetitions {
        let start = Instant::now();
        statistics = flow.decode(stream, &Config::default(), &[], &mut sink);
        best = best.min(start.elapsed().as_secs_f64());
    }
    let branches = statistics.conditional_branches as f64;
    println!(
        "flow {name}: {:.1} M conditional branches/s, {:.0} M instructions/s, {:.1} MB/s, {} losses",
        branches / best / 1e6,
        statistics.instructions as f64 / best / 1e6,
        stream.len() as f64 / best / 1e6,
        sink.errors
    );
    let mut best = f64::MAX;
    for _ in 0..repetitions {
        let start = Instant::now();
        black_box(
            Reader::new(black_box(stream)).map_while(Result::ok).fold(0, |sum, (offset, packet)| {
                sum + offset + usize::from(matches!(packet, pt_packet::Packet::Tip(_)))
            }),
        );
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("packets {name}: {:.0} MB/s", stream.len() as f64 / best / 1e6);
}

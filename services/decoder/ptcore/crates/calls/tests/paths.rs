//! Paths are a shortcut: whatever is known of a stream through them is what its blocks one by one say.

use crate::functions::{Functions, OneByOne};
use crate::support;
use pt_calls::{BlockCount, Calls, Coverage, FunctionKey, Trace};
use pt_flow::{Block, Config, DisableKind, Flow, Loss, Sink, Statistics};
use std::collections::BTreeMap;

const TRACES: [&str; 6] = ["last", "ovf-01-ben", "hello", "uaf-04-ben", "cve-2004-0597-poc", "cve-2005-0105-poc"];

/// Leaves `path` as it is by default: block by block.
pub struct Blocks<S>(pub S);

impl<S: Sink> Sink for Blocks<S> {
    const DIVIDED: bool = S::DIVIDED;

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        self.0.psb(next, tsc);
    }
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.0.block(block, tsc);
    }
    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.0.enabled(ip, resumed, tsc);
    }
    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.0.disabled(kind, at, target, tsc);
    }
    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.0.interrupt(from, to, tsc);
    }
    fn switched(&mut self, ip: u64, tsc: u64) {
        self.0.switched(ip, tsc);
    }
    fn loss(&mut self, loss: &Loss) {
        self.0.loss(loss);
    }
    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.0.overflow(offset, from, tsc);
    }
}

fn same(what: &str, paths: &(Statistics, Trace), blocks: &(Statistics, Trace)) {
    let (paths, blocks) = ((&paths.0, &paths.1), (&blocks.0, &blocks.1));
    assert_eq!(paths.0, blocks.0, "{what}: statistics");
    assert_eq!(paths.1.edges, blocks.1.edges, "{what}: edges");
    assert_eq!(paths.1.losses, blocks.1.losses, "{what}: losses");
    assert_eq!(format!("{:?}", paths.1.functions), format!("{:?}", blocks.1.functions), "{what}: functions");
    assert!(format!("{:?}", paths.1.records) == format!("{:?}", blocks.1.records), "{what}: calls differ");
}

/// How often what begins at an address ran, whatever numbers its blocks have.
fn by_start(ran: Vec<(BlockCount, FunctionKey)>) -> BTreeMap<(u64, u32), (u64, FunctionKey)> {
    let mut counts = BTreeMap::new();
    for (block, function) in ran {
        counts.entry((block.start, block.instructions)).or_insert((0, function)).0 += block.count;
    }
    counts
}

#[test]
fn calls_edges_and_totals_are_those_of_the_blocks() {
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        let stream = griffin.streams.values().next().unwrap();
        for (divided, stream) in
            [(false, stream.clone()), (true, support::timed(stream)), (false, support::timed(stream))]
        {
            let symbols = Functions { divided };
            let (mut flow, mut other_flow) = (Flow::new(&griffin.memory), Flow::new(&griffin.memory));
            let (mut calls, mut other_calls) = (Calls::new(symbols), Blocks(Calls::new(OneByOne(symbols))));
            // Cold, then with paths of which plans exist.
            for pass in 0..4 {
                let counts = flow.decode(&stream, &Config::default(), &[], &mut calls);
                let ran = calls.blocks();
                let paths = (counts, calls.finish());
                let counts = other_flow.decode(&stream, &Config::default(), &[], &mut other_calls);
                let other_ran = other_calls.0.blocks();
                let blocks = (counts, other_calls.0.finish());
                assert!(counts.instructions > 0);
                let instructions = |ran: &[(BlockCount, FunctionKey)]| {
                    ran.iter().map(|(block, _)| block.count * u64::from(block.instructions)).sum::<u64>()
                };
                assert_eq!(instructions(&ran), counts.instructions, "{name}, divided {divided}, pass {pass}");
                assert_eq!(by_start(ran), by_start(other_ran), "{name}, divided {divided}, pass {pass}");
                same(&format!("{name}, divided {divided}, pass {pass}"), &paths, &blocks);
                calls.recycle(paths.1.records);
            }
        }
    }
}

#[test]
fn a_damaged_stream_is_the_same_through_both() {
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        let stream = griffin.streams.values().next().unwrap();
        let (mut flow, mut other_flow) = (Flow::new(&griffin.memory), Flow::new(&griffin.memory));
        let symbols = Functions { divided: true };
        let (mut calls, mut other_calls) = (Calls::new(symbols), Blocks(Calls::new(OneByOne(symbols))));
        for round in 0..12 {
            let mut damaged = stream.clone();
            let at = (round * 2 + 1) * damaged.len() / 25;
            damaged[at] ^= 1 << (round % 8);
            let counts = flow.decode(&damaged, &Config::default(), &[], &mut calls);
            let paths = (counts, calls.finish());
            let counts = other_flow.decode(&damaged, &Config::default(), &[], &mut other_calls);
            same(&format!("{name}, round {round}"), &paths, &(counts, other_calls.0.finish()));
        }
    }
}

#[test]
fn coverage_counts_the_edges_of_the_calls() {
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        let stream = griffin.streams.values().next().unwrap();
        let mut flow = Flow::new(&griffin.memory);
        let (mut calls, mut coverage) = (Calls::new(Functions { divided: false }), Coverage::default());
        for _ in 0..2 {
            flow.decode(stream, &Config::default(), &[], &mut calls);
            flow.decode(stream, &Config::default(), &[], &mut coverage);
            assert_eq!(calls.finish().edges, coverage.finish(), "{name}");
        }
    }
}

//! Paths are a shortcut: whatever is known of a stream through them is what its blocks one by one say.

use crate::functions::{Functions, OneByOne};
use crate::machine;
use crate::support::{self, Sections};
use pt_calls::{BlockCount, Calls, Coverage, FunctionKey, Trace, TAIL_CALL, UNWOUND};
use pt_flow::{Block, Config, DisableKind, Flow, Loss, Sink, Statistics};
use pt_packet::writer::write;
use pt_packet::{Compression, Execution, Ip, Packet};
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

/// Functions of 256 bytes: one calls the second, again and again; that one calls the function of this number in front of the third, which
/// returns to the first.
fn calling_in_front(called: u64) -> (Sections, Vec<u8>) {
    let function = |number: u64| machine::BASE + 0x100 * number;
    let mut code = vec![0x90; 0x2000];
    let mut put = |at: u64, bytes: &[u8]| code[(at - machine::BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
    let branch = |kind: u8, at: u64, to: u64| [&[kind][..], &(to.wrapping_sub(at + 5) as u32).to_le_bytes()].concat();
    put(function(20), &[branch(0xe8, function(20), function(21)), vec![0x74, 0xf9]].concat());
    put(function(21), &branch(0xe9, function(21), function(22) - 5));
    put(function(22) - 5, &branch(0xe8, function(22) - 5, function(called)));
    [22, 23].into_iter().for_each(|number| put(function(number), &[0xc3]));
    let mut stream = Vec::new();
    let mut tell = |packet| write(&mut stream, packet);
    let ip = |address| Ip { compression: Compression::Full, payload: address };
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true };
    let psb = [Packet::Psb, mode, Packet::Psbend, Packet::TipPge(ip(function(20)))];
    psb.into_iter().for_each(&mut tell);
    for _ in 0..CALLS {
        if called != 22 {
            tell(Packet::Tnt { bits: 1, count: 1 });
        }
        tell(Packet::Tip(ip(function(20) + 5)));
        tell(Packet::Tnt { bits: 1, count: 1 });
    }
    (Sections([(machine::BASE, code)].into()), stream)
}

const CALLS: usize = 8;

#[test]
fn a_path_that_calls_in_front_of_a_function_makes_the_calls_of_its_blocks() {
    let symbols = Functions { divided: true };
    // That function itself, and another one, which returns to it.
    for (called, made) in [(22, &[(1, 0), (2, UNWOUND)][..]), (23, &[(1, 0), (2, 0), (1, TAIL_CALL)])] {
        let (memory, stream) = calling_in_front(called);
        let (mut flow, mut other_flow) = (Flow::new(&memory), Flow::new(&memory));
        let (mut calls, mut other_calls) = (Calls::new(symbols), Blocks(Calls::new(OneByOne(symbols))));
        for pass in 0..4 {
            let paths = (flow.decode(&stream, &Config::default(), &[], &mut calls), calls.finish());
            let counts = other_flow.decode(&stream, &Config::default(), &[], &mut other_calls);
            same(&format!("pass {pass}"), &paths, &(counts, other_calls.0.finish()));
            let records = &paths.1.records;
            let found = records.depth.iter().zip(&records.flags).map(|(&depth, &flags)| (depth, flags));
            let found: Vec<_> = found.skip(1).take(made.len() * CALLS).collect();
            assert_eq!(found, made.repeat(CALLS), "pass {pass}");
        }
    }
}

//! The calls of a stream that several threads decode are those of one thread, however it is divided.

use crate::functions::Functions;
use crate::gathered::Gathered;
use crate::hidden::hidden;
use crate::hidden_kernel::without_kernel;
use crate::machine::{self, Habits, Machine, Random};
use crate::nested::{self, Nested};
use crate::support::kernel::with_kernel;
use crate::support::{self, Sections};
use crate::truth;
use pt_calls::{
    decode_calls_in_parts, BlockCount, Callers, Calls, Edge, FunctionKey, Helper, LossRecord, Records, Targets, Totals,
};
use pt_flow::{find_psb, places_to_join, Config, Flow, Part, Statistics, Stream, Workers};
use pt_image::{Place, Role, Symbols};
use pt_packet::writer::write;
use pt_packet::{Compression, Execution, Ip, Packet};
use std::collections::{BTreeMap, BTreeSet};

const TRACES: [&str; 6] = ["last", "ovf-01-ben", "hello", "uaf-04-ben", "cve-2004-0597-poc", "cve-2005-0105-poc"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    number: u64,
    parent: u64,
    tsc: (u64, u64),
    instructions: (u64, u64),
    call_address: u64,
    target: u64,
    depth: u32,
    flags: u8,
    function: FunctionKey,
}

/// All that is known of a stream, as it can be compared.
struct Known {
    statistics: Statistics,
    /// By number.
    calls: Vec<Call>,
    functions: Vec<String>,
    edges: BTreeMap<Edge, u64>,
    losses: Vec<LossRecord>,
    /// By function: instructions of its blocks.
    blocks: BTreeMap<FunctionKey, u64>,
    /// Basic blocks: those of them that branches led to.
    begins: BTreeSet<(FunctionKey, u64)>,
}

impl Known {
    fn is(&self, other: &Known, what: &str) {
        assert_eq!(other.statistics, self.statistics, "{what}");
        assert_eq!(other.losses, self.losses, "{what}");
        if let Some(at) = (0..self.calls.len()).find(|&at| other.calls.get(at) != Some(&self.calls[at])) {
            panic!("{what}: call {at}\n one: {:?}\nother: {:?}", self.calls[at], other.calls.get(at));
        }
        assert_eq!(other.calls.len(), self.calls.len(), "{what}: calls");
        assert_eq!(other.functions, self.functions, "{what}");
        assert!(other.edges == self.edges, "{what}: edges");
        assert!(other.blocks == self.blocks, "{what}: blocks");
        assert!(other.begins == self.begins, "{what}: basic blocks");
    }
}

fn known(statistics: Statistics, gathered: Gathered, totals: &Totals, ran: &[(BlockCount, FunctionKey)]) -> Known {
    let Gathered { mut records, functions, found, losses, .. } = gathered;
    Callers::new(found).place(&records.call.clone(), &mut records.parent, &mut records.columns.depth);
    let Records { call, parent, columns } = &records;
    let row = |row: usize| Call {
        number: call[row],
        parent: parent[row],
        tsc: (columns.start_tsc[row], columns.end_tsc[row]),
        instructions: (columns.instructions[row], columns.instructions_total[row]),
        call_address: columns.call_address.get(row).map_or(0, |&address| address),
        target: columns.target.get(row).map_or(0, |&address| address),
        depth: columns.depth[row],
        flags: columns.flags[row],
        function: functions[columns.function[row] as usize],
    };
    let mut calls: Vec<_> = (0..call.len()).map(row).collect();
    calls.sort();
    let mut named: Vec<_> = totals.functions.iter().map(|function| format!("{function:?}")).collect();
    named.sort();
    assert_eq!(totals.calls, calls.len() as u64);
    let mut blocks = BTreeMap::new();
    for (block, function) in ran {
        *blocks.entry(*function).or_default() += block.count * u64::from(block.instructions);
    }
    let targets = Targets::of(&totals.edges);
    let reached = ran.iter().filter(|(block, _)| targets.contains(block.start));
    let begins = reached.map(|(block, function)| (*function, block.start)).collect();
    let edges = totals.edges.iter().copied().collect();
    Known { statistics, calls, functions: named, edges, losses, blocks, begins }
}

/// By one thread and by several, and what they keep from stream to stream.
pub struct Both<'m> {
    one: (Flow<&'m Sections>, Calls<Functions, Gathered>),
    many: (Flow<&'m Sections>, Calls<Functions, Gathered>),
    helpers: Vec<Helper<&'m Sections, Functions>>,
    /// Several threads tell no addresses.
    without_addresses: bool,
    pub parts: usize,
    pub again: usize,
}

impl<'m> Both<'m> {
    pub fn new(memory: &'m Sections, symbols: Functions, threads: usize) -> Self {
        let new = || (Flow::new(memory), Calls::handing_out(symbols, Gathered::default()));
        let helpers = (0..threads).map(|_| Helper::new(memory, symbols)).collect();
        Both { one: new(), many: new(), helpers, without_addresses: false, parts: 0, again: 0 }
    }

    pub fn compare(&mut self, what: &str, stream: Stream<'_>, part_bytes: usize, rows: usize) {
        self.same(what, stream, part_bytes, rows);
    }

    /// What is known of the stream by one thread as by several.
    fn same(&mut self, what: &str, stream: Stream<'_>, part_bytes: usize, rows: usize) -> Known {
        let (flow, calls) = &mut self.one;
        calls.output().rows = rows;
        let Stream { data, config, epochs, missing } = stream;
        let statistics = flow.decode_part(data, config, epochs, &Part { missing, ..Part::default() }, calls).statistics;
        let totals = calls.end_stream();
        let ran = calls.blocks();
        let mut one = known(statistics, std::mem::take(calls.output()), &totals, &ran);
        if self.without_addresses {
            one.calls.iter_mut().for_each(|call| (call.call_address, call.target) = (0, 0));
        }
        let (flow, calls) = &mut self.many;
        (calls.output().rows, calls.output().without_addresses) = (rows, self.without_addresses);
        let divided = decode_calls_in_parts(flow, calls, &mut self.helpers, stream, part_bytes);
        let statistics = divided.statistics;
        self.parts += divided.parts;
        self.again += divided.again;
        let mut totals = calls.end_stream();
        let mut ran = calls.blocks();
        let mut edges: BTreeMap<Edge, u64> = totals.edges.into_iter().collect();
        for helper in &mut self.helpers {
            ran.extend(helper.calls.end_parts(calls.news()));
            for (edge, count) in helper.calls.take_edges() {
                *edges.entry(edge).or_default() += count;
            }
        }
        totals.edges = edges.into_iter().collect();
        let many = known(statistics, std::mem::take(calls.output()), &totals, &ran);
        one.is(&many, what);
        one
    }

    fn divide_anew(&mut self) {
        [&mut self.one, &mut self.many].into_iter().for_each(|(_, calls)| calls.divide_anew());
        self.helpers.iter_mut().for_each(|helper| helper.calls.divide_anew());
    }
}

/// In two, three, seven parts, and in as many as there are. Returns how many were taken over, and how many decoded again.
fn compare(name: &str, memory: &Sections, data: &[u8]) -> (usize, usize) {
    let config = Config { tsc_ctc_ratio: (84, 1), mtc_freq: 3, nominal_ratio: 20, ..Config::default() };
    let epochs = [(data.len() / 5, 1), (data.len() / 2, 2)];
    let missing = [data.len() / 3, data.len() / 5 * 4, data.len()];
    let (mut parts, mut again) = (0, 0);
    for divided in [false, true] {
        let all = [(1, false, &[][..], &[][..]), (3, true, &epochs, &[]), (2, false, &[], &missing)];
        for (threads, resume_at_address, epochs, missing) in all {
            let mut both = Both::new(memory, Functions { divided }, threads);
            let config = Config { resume_at_address, ..config };
            for size in [data.len() / 7, 1, data.len() / 3, data.len() / 2] {
                let stream = Stream { data, config: &config, epochs, missing };
                let what = format!("{name}, divided {divided}: {threads} threads, parts of {size} bytes");
                both.compare(&what, stream, size, 700);
            }
            (parts, again) = (parts + both.parts, again + both.again);
        }
    }
    (parts, again)
}

#[test]
fn real_traces_have_the_same_calls_by_several_threads() {
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        for stream in griffin.streams.values() {
            compare(name, &griffin.memory, stream);
            compare(&format!("{name} with times"), &griffin.memory, &support::timed(stream));
        }
    }
}

#[test]
fn where_code_is_divided_anew_each_stream_is_the_first() {
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        let config = Config::default();
        let mut both = Both::new(&griffin.memory, Functions { divided: false }, 2);
        for data in griffin.streams.values() {
            let stream = || Stream { data, config: &config, epochs: &[], missing: &[] };
            let first = Both::new(&griffin.memory, Functions { divided: false }, 2).same(name, stream(), 1, 700);
            for part_bytes in [data.len() / 3, 1] {
                both.divide_anew();
                both.same(name, stream(), part_bytes, 700).is(&first, name);
            }
        }
    }
}

fn damage(stream: &[u8], round: usize) -> Vec<u8> {
    let mut damaged = stream.to_vec();
    for place in 0..=round {
        let at = (place * 2 + 1 + round) * damaged.len() / 50;
        damaged[at] ^= 1 << ((round + place) % 8);
    }
    damaged
}

#[test]
fn damaged_traces_have_the_same_calls_by_several_threads() {
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        let stream = support::timed(griffin.streams.values().next().unwrap());
        for round in [0, 5] {
            compare(&format!("{name}, round {round}"), &griffin.memory, &damage(&stream, round));
        }
    }
}

fn program(seed: u64, habits: Habits, branches: usize) -> (Sections, Vec<u8>) {
    let mut machine = Machine::new(seed, habits);
    machine.run(branches);
    (machine.memory(), machine.stream)
}

/// What programs may do, from the plainest on.
fn habits() -> Vec<Habits> {
    let plain =
        Habits { psb_bytes: 300, compressed: true, times: true, clock: true, cycles: true, ..Habits::default() };
    vec![
        plain,
        Habits { cycles: false, ..plain },
        Habits { cycles: false, clock: false, compressed: false, ..plain },
        Habits { cycles: false, clock: false, times: false, ..plain },
        Habits { clock: false, ..plain },
        Habits { exceptions: 40, odd_returns: 30, ..plain },
        Habits { interrupts: 100, signals: 100, ..plain },
        Habits { overflows: 500, exceptions: 200, signals: 200, ..plain },
        Habits { overflows: 100, interrupts: 50, odd_returns: 10, psb_bytes: 100, ..plain },
        Habits { kernel: true, interrupts: 40, ..plain },
        Habits { kernel: true, interrupts: 40, exceptions: 40, overflows: 500, cycles: false, ..plain },
    ]
}

#[test]
fn programs_of_any_kind_have_the_same_calls_by_several_threads() {
    let (mut parts, mut again) = (0, 0);
    for (number, habits) in habits().into_iter().enumerate() {
        let (memory, stream) = program(number as u64 + 1, habits, 8_000);
        let (more, once_more) = compare(&format!("program {number}"), &memory, &stream);
        (parts, again) = (parts + more, again + once_more);
    }
    // About half of them: how many, hangs on how the threads take turns.
    assert!(3 * parts > 5 * again, "{parts} parts, {again} of them once more");
}

/// A recording that begins deep inside of calls, and comes back out of them. Three functions take turns: each calls the function of
/// this number, and returns. PSBs stand behind some of these calls. The last one calls `longjmp`, which leads to a call that is over. In
/// the middle packets are lost.
fn coming_back(calls: u64, called: u64, psb_every: u64) -> (Sections, Vec<u8>) {
    const LONG_JUMP: u64 = 2;
    let function = |number: u64| machine::BASE + 0x100 * number;
    let mut code = vec![0x90; 0x2000];
    let mut put = |at: u64, bytes: &[u8]| code[(at - machine::BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
    let call = |at: u64, callee: u64| [&[0xe8][..], &(callee.wrapping_sub(at + 5) as u32).to_le_bytes()].concat();
    for number in 20..23 {
        let at = function(number) + 16;
        // Where the branch is not taken, a return.
        put(at, &[call(at, function(called)), vec![0x74, 9, 0xc3]].concat());
        put(at + 16, &call(at + 16, function(LONG_JUMP)));
    }
    put(function(called), &[0xc3]);
    put(function(LONG_JUMP), &[0xff, 0xe0]);
    let mut stream = Vec::new();
    let mut tell = |packet| write(&mut stream, packet);
    let ip = |address| Ip { compression: Compression::Full, payload: address };
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true };
    [Packet::Psb, Packet::Tsc(1_000), mode, Packet::Psbend].into_iter().for_each(&mut tell);
    for number in 0..=calls {
        let at = function(20 + number % 3) + 16;
        tell(if number == 0 { Packet::TipPge(ip(at)) } else { Packet::Tip(ip(at)) });
        tell(Packet::Tip(ip(at + 5)));
        if number % psb_every == 0 {
            let time = Packet::Tsc(1_100 + number * 100);
            [Packet::Psb, time, mode, Packet::Fup(ip(at + 5)), Packet::Psbend].into_iter().for_each(&mut tell);
        }
        if number == calls / 2 {
            [Packet::Ovf, Packet::Fup(ip(at + 5))].into_iter().for_each(&mut tell);
        }
        tell(Packet::Tnt { bits: u64::from(number == calls), count: 1 });
    }
    tell(Packet::Tip(ip(function(20 + (calls - 2) % 3) + 21)));
    tell(Packet::Tnt { bits: 0, count: 1 });
    (Sections(BTreeMap::from([(machine::BASE, code)])), stream)
}

#[test]
fn callers_that_are_found_late_are_found_by_parts_as_well() {
    const PLAIN: u64 = 23;
    const SET_JUMP: u64 = 1;
    for (called, psb_every) in [(PLAIN, 1), (PLAIN, 5), (SET_JUMP, 1), (SET_JUMP, 5)] {
        let (memory, data) = coming_back(60 * psb_every, called, psb_every);
        let config = Config::default();
        let mut both = Both::new(&memory, Functions { divided: true }, 2);
        both.compare("coming back", Stream { data: &data, config: &config, epochs: &[], missing: &[] }, 1, 700);
        // The one with the longjmp is decoded once more, the one with the loss was left to its turn.
        assert_eq!((both.parts, both.again), (59, 1));
    }
}

/// A function calls `setjmp` and then, time and again, one of three: `longjmp`, which leads back behind the `setjmp`; itself; or it
/// returns. PSBs stand behind that `setjmp`, which may be one that calls the other, and is come back to by itself.
fn trying_again(turns: usize, psb_every: usize, around: bool) -> (Sections, Vec<u8>) {
    const SET_JUMP: u64 = machine::BASE + 0x100;
    const LONG_JUMP: u64 = machine::BASE + 0x200;
    const TRIES: u64 = machine::BASE + 0x1400;
    const BEHIND: u64 = TRIES + 5;
    const AROUND: u64 = machine::BASE + 0x4100;
    let mut code = vec![0x90; 0x5000];
    let mut put = |at: u64, bytes: &[u8]| code[(at - machine::BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
    let call = |at: u64, callee: u64| [&[0xe8][..], &(callee.wrapping_sub(at + 5) as u32).to_le_bytes()].concat();
    let called = if around { AROUND } else { SET_JUMP };
    put(TRIES, &[call(TRIES, called), vec![0x74, 0x19, 0x74, 0x27]].concat());
    put(AROUND, &[call(AROUND, SET_JUMP), vec![0xc3]].concat());
    put(BEHIND + 4, &[call(BEHIND + 4, TRIES), vec![0xeb, 0xf5]].concat());
    put(TRIES + 0x20, &call(TRIES + 0x20, LONG_JUMP));
    put(TRIES + 0x30, &[0xc3]);
    put(SET_JUMP, &[0xc3]);
    put(LONG_JUMP, &[0xff, 0xe0]);
    let (mut random, mut stream) = (Random(psb_every as u64), Vec::new());
    let mut tell = |packet| write(&mut stream, packet);
    let ip = |address| Ip { compression: Compression::Full, payload: address };
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true };
    [Packet::Psb, mode, Packet::Psbend, Packet::TipPge(ip(TRIES))].into_iter().for_each(&mut tell);
    let set: &[u64] = if around { &[AROUND + 5, BEHIND] } else { &[BEHIND] };
    set.iter().for_each(|&to| tell(Packet::Tip(ip(to))));
    for turn in 1..turns {
        if turn % psb_every == 0 {
            [Packet::Psb, mode, Packet::Fup(ip(BEHIND)), Packet::Psbend].into_iter().for_each(&mut tell);
        }
        let (bits, count, to) = [(1, 1, set), (0, 2, set), (1, 2, &[BEHIND + 9])][random.below(7) / 3];
        tell(Packet::Tnt { bits, count });
        to.iter().for_each(|&to| tell(Packet::Tip(ip(to))));
    }
    (Sections(BTreeMap::from([(machine::BASE, code)])), stream)
}

#[test]
fn who_is_landed_in_when_it_was_before_is_told_by_parts_as_well() {
    for (psb_every, around) in [(2, false), (5, false), (30, false), (2, true), (30, true)] {
        let (memory, data) = trying_again(400 * psb_every, psb_every, around);
        let (parts, again) = compare("trying again", &memory, &data);
        assert!(parts > 50 && again > 10, "{parts} parts, {again} of them once more");
    }
}

/// Parts begin where a stack is switched by what jumps far, and in a function that goes over into what switches it by a return.
#[test]
fn who_goes_on_with_another_stack_is_told_by_parts_as_well() {
    const LONG_JUMP: u64 = machine::BASE + 0x200;
    const SWITCH: u64 = machine::BASE + 0xd00;
    let function = |number: u64| machine::BASE + 0x100 * number;
    let mut code = vec![0x90; 0x2000];
    let mut put = |at: u64, bytes: &[u8]| code[(at - machine::BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
    let branch = |kind: u8, at: u64, to: u64| [&[kind][..], &(to.wrapping_sub(at + 5) as u32).to_le_bytes()].concat();
    put(function(20), &branch(0xe8, function(20), SWITCH));
    put(SWITCH, &branch(0xe8, SWITCH, LONG_JUMP));
    put(LONG_JUMP, &[0xff, 0xe0]);
    put(function(21), &[branch(0xe8, function(21), function(22)), vec![0xc3]].concat());
    put(function(22), &branch(0xe9, function(22), SWITCH + 0x80));
    put(SWITCH + 0x80, &[0xc3]);
    let mut data = Vec::new();
    let mut tell = |packet| write(&mut data, packet);
    let ip = |address| Ip { compression: Compression::Full, payload: address };
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true };
    let mut psb = |at, then| {
        let psb = [Packet::Psb, mode, Packet::Fup(ip(at)), Packet::Psbend, then];
        psb.into_iter().for_each(&mut tell);
    };
    psb(function(20), Packet::TipPge(ip(function(20))));
    for _ in 0..10 {
        psb(LONG_JUMP, Packet::Tip(ip(function(21))));
        psb(function(22), Packet::Tip(ip(function(21) + 5)));
        psb(function(21) + 5, Packet::Tip(ip(function(20))));
    }
    let memory = Sections(BTreeMap::from([(machine::BASE, code)]));
    let (parts, again) = compare("switches", &memory, &data);
    assert!(parts > 50 && again > 10, "{parts} parts, {again} of them once more");
}

#[test]
fn cycles_that_are_counted_over_a_whole_part_are_counted_by_parts_as_well() {
    let code = [&[0x74, 0xfe].repeat(4)[..], &[0x90, 0x90]].concat(); // je to itself
    let memory = Sections(BTreeMap::from([(0x1000, code)]));
    let ip = |address| Ip { compression: Compression::Full, payload: address };
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false };
    let branch = |taken: bool| Packet::Tnt { bits: u64::from(taken), count: 1 };
    let packets = [
        &[Packet::Psb, mode, Packet::Fup(ip(0x1000)), Packet::Psbend, branch(false), Packet::Mtc(0x1a)][..],
        &[branch(false), Packet::Cyc(0x33), branch(true)],
        &[Packet::Psb, mode, Packet::Fup(ip(0x1004)), Packet::Psbend, branch(true)],
        &[Packet::Psb, Packet::Tsc(0x10_05e8), mode, Packet::Fup(ip(0x1004)), Packet::Psbend],
        &[Packet::Mtc(0x1b), Packet::Cyc(0x57), Packet::Tnt { bits: 0, count: 2 }],
    ];
    let mut data = Vec::new();
    packets.concat().into_iter().for_each(|packet| write(&mut data, packet));
    let config = Config { tsc_ctc_ratio: (84, 1), nominal_ratio: 20, ..Config::default() };
    let mut both = Both::new(&memory, Functions { divided: true }, 1);
    both.compare("cycles", Stream { data: &data, config: &config, epochs: &[], missing: &[] }, 1, 700);
    assert!(both.parts > 0);
}

#[test]
fn what_a_call_at_the_end_of_the_stream_is_told_of_is_told_by_parts_as_well() {
    let code = [&[0x74, 0x02][..], &[0x90, 0x90], &[0x74, 0xfa], &[0xe8, 0xf9, 0xff, 0xff, 0xff]].concat(); // call 0x1004
    let memory = Sections(BTreeMap::from([(0x1000, code)]));
    let synchronized = [
        Packet::Psb,
        Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false },
        Packet::Fup(Ip { compression: Compression::Full, payload: 0x1000 }),
        Packet::Psbend,
    ];
    let mut data = Vec::new();
    for _ in 0..500 {
        synchronized.into_iter().for_each(|packet| write(&mut data, packet));
        write(&mut data, Packet::Tnt { bits: 0b11_1111, count: 6 });
    }
    write(&mut data, Packet::Tnt { bits: 0b10, count: 2 });
    write(&mut data, Packet::Fup(Ip { compression: Compression::Full, payload: 0x1004 }));
    write(&mut data, Packet::TipPgd(Ip::SUPPRESSED));
    for threads in 1..=3 {
        let config = Config::default();
        let mut both = Both::new(&memory, Functions { divided: false }, threads);
        let stream = Stream { data: &data, config: &config, epochs: &[], missing: &[] };
        let known = both.same("a call at the end", stream, 1, 700);
        assert!(both.parts > 0);
        assert!(known.calls.iter().any(|call| call.instructions.1 == 0));
    }
}

#[test]
fn addresses_are_left_out_where_nobody_takes_them() {
    let (memory, data) = program(1, habits()[0], 8_000);
    let config = Config::default();
    let mut both = Both::new(&memory, Functions { divided: true }, 2);
    both.without_addresses = true;
    for size in [1, data.len() / 3] {
        both.compare(
            "without addresses",
            Stream { data: &data, config: &config, epochs: &[], missing: &[] },
            size,
            700,
        );
    }
    assert!(both.parts > 10, "{} parts", both.parts);
}

/// All code is a stub, and a part that begins in one does not fit.
#[derive(Clone, Copy)]
struct Stubs;

impl Symbols for Stubs {
    fn place(&self, epoch: u32, address: u64) -> Place {
        Place { role: Role::Stub, ..Functions { divided: true }.place(epoch, address) }
    }
}

#[test]
fn where_parts_do_not_fit_most_are_left_to_their_turn() {
    let (memory, data) = program(1, habits()[0], 8_000);
    let (config, threads) = (Config::default(), 2);
    let stream = Stream { data: &data, config: &config, epochs: &[], missing: &[] };
    let mut helpers: Vec<_> = (0..threads).map(|_| Helper::new(&memory, Stubs)).collect();
    let mut calls = Calls::handing_out(Stubs, Gathered::default());
    let divided = decode_calls_in_parts(&mut Flow::new(&memory), &mut calls, &mut helpers, stream, 1);
    let places = places_to_join(&data, &config, Workers { threads, part_bytes: 1 }).len();
    assert!(places > 60 && divided.parts == 0, "{places} places, {divided:?}");
    // Four in vain, those that were begun by then, and each sixteenth.
    assert!(divided.again <= 4 + 3 * threads + places / 16, "{places} places, {divided:?}");
}

#[test]
fn programs_with_code_that_is_not_known_have_the_same_calls_by_several_threads() {
    for (number, habits) in habits().into_iter().enumerate() {
        let mut machine = Machine::new(number as u64 + 40, habits);
        machine.run(4_000);
        compare(&format!("program {number}"), &hidden(&machine.code, 50, 20), &machine.stream);
    }
}

#[test]
fn programs_in_which_the_kernel_and_signals_interrupt_have_the_same_calls_by_several_threads() {
    for seed in 1..=12 {
        let habits = nested::Habits {
            kernel: seed % 3 != 0,
            interrupts: 60,
            signals: 10,
            compressed: true,
            psb_bytes: 300,
            stops: seed % 2 == 0,
            deferred: seed % 4 > 1,
        };
        let mut program = Nested::new(seed, habits);
        program.run(6_000);
        compare(&format!("program {seed}"), &program.code, &program.stream);
        compare(&format!("program {seed}, its kernel not known"), &without_kernel(&program.code), &program.stream);
        // What called the outermost calls is found late.
        let middle = find_psb(&program.stream, program.stream.len() / 2).expect("a PSB");
        compare(&format!("the second half of program {seed}"), &program.code, &program.stream[middle..]);
    }
}

#[test]
fn programs_behind_whose_system_calls_code_is_not_known_have_the_same_calls_by_several_threads() {
    let (mut parts, mut random) = (0, Random(77));
    let habits = nested::Habits { kernel: false, interrupts: 300, psb_bytes: 300, ..truth::habits(1) };
    for seed in 1..=24 {
        let mut program = Nested::new(seed, habits);
        program.run(6_000);
        let (stream, _) = with_kernel(&program.stream, |most| random.below(most));
        let what = format!("program {seed}");
        parts += compare(&what, &without_kernel(&program.code), &stream).0;
    }
    assert!(parts > 100, "{parts}");
}

#[test]
fn damaged_programs_have_the_same_calls_by_several_threads() {
    for (number, habits) in habits().into_iter().enumerate() {
        let (memory, stream) = program(number as u64 + 20, habits, 3_000);
        for round in [0, 3, 7, 11, 15] {
            compare(&format!("program {number}, round {round}"), &memory, &damage(&stream, round));
        }
    }
}

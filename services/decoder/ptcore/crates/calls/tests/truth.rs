//! The calls of programs made up at random are those that they made.

use crate::machine::Random;
use crate::nested::{function_of, Habits, Nested, Stay};
use crate::turns::{all_turns, programs, Codes, Turns};
use pt_calls::{Calls, Edge, Trace, ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, TAIL_CALL};
use pt_capture::{pieces, ByStay, Bytes, Of, Stream, ThreadSinks, Threads};
use pt_flow::{decode_in_parts, find_psb, Block, Config, DisableKind, Flow, InTurn, Loss, Sink, Workers};
use pt_image::{Place, Role, Symbols};
use pt_packet::writer::write;
use pt_packet::{Packet, Reader};
use std::collections::{BTreeMap, HashMap};

/// Functions of 256 bytes each.
#[derive(Clone, Copy)]
pub struct Divided;

impl Symbols for Divided {
    fn place(&self, _epoch: u32, address: u64) -> Place {
        let start = function_of(address);
        let function = Some((address >> 8) as u32 & 0xffff);
        Place { space: 0, function, start, end: start + 0x100, bias: 0, entry: address == start, role: Role::Plain }
    }
}

#[derive(Debug, PartialEq)]
pub struct Row {
    pub function: u64,
    pub parent: Option<usize>,
    pub depth: u32,
    pub own: u64,
    pub total: u64,
    pub flags: u8,
}

/// `flags`: those that are asked for.
pub fn told(trace: &Trace, flags: u8) -> Vec<Row> {
    let calls = &trace.records;
    let row = |row: usize| Row {
        function: trace.functions[calls.function[row] as usize].address,
        parent: Some(calls.parent[row] as usize).filter(|_| calls.parent[row] != NO_PARENT),
        depth: calls.depth[row],
        own: calls.instructions[row],
        total: calls.instructions_total[row],
        flags: calls.flags[row] & flags,
    };
    (0..calls.len()).map(row).collect()
}

pub fn assert_same(told: &[Row], made: &[Row], what: &str) {
    let other = told.iter().zip(made).position(|(told, made)| told != made);
    let rows = other.map(|number| (number, &told[number], &made[number]));
    assert_eq!((told.len(), rows), (made.len(), None), "{what}");
}

pub fn made(program: &Nested) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for call in &program.calls {
        let total = call.ended - call.began;
        if let Some(around) = call.parent.or(call.inside) {
            rows[around].own -= total;
        }
        let depth = call.parent.map_or(0, |parent| rows[parent].depth + 1);
        rows.push(Row { function: call.function, parent: call.parent, depth, own: total, total, flags: call.flags });
    }
    rows
}

/// What a core alone knows of the program.
fn made_on(program: &Nested, core: usize) -> Vec<Row> {
    let stays = program.stays.iter().enumerate().filter(|(_, stay)| stay.core == core);
    let stretches: Vec<_> = stays.map(|(number, stay)| (stay.clone(), number + 1)).collect();
    made_in(program, &stretches)
}

/// What all cores know of the program.
pub fn made_in_turns(program: &Nested) -> Vec<Row> {
    let mut stretches: Vec<(Stay, usize)> = Vec::new();
    for (number, stay) in program.stays.iter().enumerate() {
        match stretches.last_mut().filter(|_| !stay.anew) {
            Some((before, next)) => (before.least, *next) = (before.least.min(stay.least), number + 1),
            None => stretches.push((stay.clone(), number + 1)),
        }
    }
    made_in(program, &stretches)
}

/// What is known of the program's stretches by themselves, each with the number of the stay behind it.
fn made_in(program: &Nested, stretches: &[(Stay, usize)]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (stay, next) in stretches {
        let next = program.stays.get(*next);
        let until = next.map_or(program.ran(), |next| next.began);
        let open = next.map_or_else(|| program.open().collect(), |next| next.open.clone());
        // Of those that were open already, what ran shows the ones that it came back to.
        let known = stay.open[stay.least - 1..].iter().copied();
        let begun = (0..program.calls.len()).filter(|call| !stay.open.contains(call));
        let begun = begun.filter(|&call| {
            let began = program.calls[call].began;
            began >= stay.began && (began < until || open.contains(&call))
        });
        let calls: Vec<usize> = known.chain(begun).collect();
        let base = rows.len();
        for &call in &calls {
            let made = &program.calls[call];
            let parent = made.parent.and_then(|parent| calls.iter().position(|&other| other == parent));
            let (is_old, is_open) = (stay.open.contains(&call), open.contains(&call));
            let total = if is_open { until } else { made.ended } - made.began.max(stay.began);
            let depth = parent.map_or(0, |parent| {
                rows[base + parent].own -= total;
                rows[base + parent].depth + 1
            });
            let began = if is_old { BEGIN_TRUNCATED } else { made.flags };
            let flags = began | if is_open { END_TRUNCATED } else { 0 };
            let parent = parent.map(|parent| base + parent);
            rows.push(Row { function: made.function, parent, depth, own: total, total, flags });
        }
    }
    rows
}

#[test]
fn threads_that_take_turns_and_change_cores_have_the_calls_that_each_core_saw() {
    for (seed, turns) in all_turns() {
        let codes = turns.codes();
        for (core, stream) in turns.cores.iter().enumerate() {
            let mut flow = Flow::new(&codes);
            for pass in 0..2 {
                let mut threads = Threads::new(&turns.views, |_| Calls::new(Divided));
                let statistics = flow.decode(stream, &Config::default(), &turns.epochs[core], &mut threads);
                let what = format!("{seed}, core {core}, pass {pass}: {:?}", turns.habits);
                assert_eq!(statistics.errors, 0, "{what}");
                for ((_, tid), mut calls) in threads.finish() {
                    let made = made_on(&turns.threads[tid as usize - 1], core);
                    let told = told(&calls.finish(), ALL_FLAGS);
                    assert_same(&told, &made, &format!("thread {tid}, {what}"));
                }
            }
        }
    }
}

/// What is told of each thread by both cores together, and how many stretches of them were lost.
pub fn decode_cores(flow: &mut Flow<&Codes<'_>>, turns: &Turns) -> (BTreeMap<u32, Trace>, u64) {
    let stays = turns.stays();
    let mut sinks = ThreadSinks::of_cores(&stays, [0, 1].into(), |_, _| Calls::new(Divided));
    let mut threads = [0, 1].map(|core| Threads::on_core(&turns.views, core).switching_at(turns.thread_switch));
    let mut epochs = turns.epochs.each_ref().map(|epochs| epochs.iter().copied());
    let streams = turns.cores.iter().zip(&mut epochs).zip(&mut threads);
    let streams = streams.map(|((data, epochs), sink)| InTurn { data, missing: &[], epochs, sink }).collect();
    let mut order = ByStay::new(&turns.views, Some(&stays), |_| {});
    let ended = flow.decode_in_turns(&Config::default(), streams, &mut sinks, &mut order);
    let traces = sinks.finish().map(|((_, tid, _), mut calls)| (tid, calls.finish())).collect();
    (traces, ended.iter().map(|statistics| statistics.errors).sum())
}

pub const ALL_FLAGS: u8 = TAIL_CALL | ASYNCHRONOUS | BEGIN_TRUNCATED | END_TRUNCATED;

#[test]
fn threads_that_change_cores_have_the_calls_that_they_made() {
    let mut moves = 0;
    for (seed, turns) in all_turns() {
        let codes = turns.codes();
        let mut flow = Flow::new(&codes);
        for pass in 0..2 {
            let what = format!("{seed}, pass {pass}: {:?}", turns.habits);
            let (traces, errors) = decode_cores(&mut flow, &turns);
            assert_eq!(errors, 0, "{what}");
            for (tid, trace) in traces {
                let thread = &turns.threads[tid as usize - 1];
                let (made, told) = (made_in_turns(thread), told(&trace, ALL_FLAGS));
                assert_same(&told, &made, &format!("thread {tid}, {what}"));
                moves += thread.moves();
            }
        }
    }
    assert!(u64::from(moves) > 20 * programs());
}

pub fn stopping() -> impl Iterator<Item = (u64, Turns)> {
    (1..=programs()).map(|seed| (seed, Turns::of_stopping_programs(seed)))
}

#[test]
fn threads_that_stop_in_the_kernel_and_change_cores_have_the_calls_that_they_made() {
    for seed in 1..=programs() {
        let turns = Turns::of_stopping_programs(seed);
        let codes = turns.codes();
        let what = format!("{seed}: {:?}", turns.habits);
        let (traces, errors) = decode_cores(&mut Flow::new(&codes), &turns);
        assert_eq!(errors, 0, "{what}");
        for (tid, trace) in traces {
            let mut made = made(&turns.threads[tid as usize - 1]);
            made[0].flags |= BEGIN_TRUNCATED | END_TRUNCATED;
            assert_same(&told(&trace, ALL_FLAGS), &made, &format!("thread {tid}, {what}"));
        }
    }
}

#[test]
fn calls_that_are_whole_in_spite_of_losses_were_made_so() {
    let mut whole = 0;
    for (seed, mut turns) in all_turns().chain(stopping()).filter(|(_, turns)| turns.habits.psb_bytes < 3000) {
        let mut random = Random(seed | 1 << 41);
        for _ in 0..1 + random.below(3) {
            let core = random.below(2);
            lose(&mut turns.cores[core], &mut random);
        }
        let what = format!("{seed}: {:?}", turns.habits);
        let codes = turns.codes();
        let mut flow = Flow::new(&codes);
        let mut all: Vec<_> =
            decode_cores(&mut flow, &turns).0.into_iter().map(|(tid, trace)| (None, tid, trace)).collect();
        for (core, (stream, epochs)) in turns.cores.iter().zip(&turns.epochs).enumerate() {
            let mut threads = Threads::new(&turns.views, |_| Calls::new(Divided));
            flow.decode(stream, &Config::default(), epochs, &mut threads);
            all.extend(threads.finish().into_iter().map(|((_, tid), mut calls)| (Some(core), tid, calls.finish())));
        }
        for (core, tid, trace) in all {
            let thread = &turns.threads[tid as usize - 1];
            let made = if turns.habits.stops { made(thread) } else { made_in_turns(thread) };
            whole += whole_calls(&trace, &made, &format!("thread {tid} on {core:?}, {what}"));
        }
    }
    assert!(whole > 100 * programs());
}

/// How many calls are told as whole. All of them were made so.
pub fn whole_calls(trace: &Trace, made: &[Row], what: &str) -> u64 {
    let call = |row: &Row| (row.function, row.own, row.total, row.flags);
    let mut left: HashMap<_, i32> = HashMap::new();
    made.iter().for_each(|row| *left.entry(call(row)).or_default() += 1);
    let told = told(trace, ALL_FLAGS);
    let whole = told.iter().filter(|row| row.flags & (BEGIN_TRUNCATED | END_TRUNCATED) == 0);
    let mut count = 0;
    for told in whole.map(call) {
        let left = left.entry(told).or_default();
        *left -= 1;
        assert!(*left >= 0, "no such call was made: {told:x?}, {what}");
        count += 1;
    }
    count
}

/// Nothing is told from some packet up to a PSB behind it.
pub fn lose(stream: &mut [u8], random: &mut Random) {
    let mut reader = Reader::new(stream);
    let from = random.below(stream.len().max(1));
    while reader.offset() < from && reader.read().is_ok_and(|packet| packet.is_some()) {}
    let from = reader.offset();
    let mut to = from;
    for _ in 0..1 + random.below(3) {
        to = find_psb(stream, to + 1).unwrap_or(stream.len());
    }
    match random.below(2) {
        // No packet begins so.
        0 => stream[from..to].fill(0x05),
        _ => {
            let mut overflow = Vec::new();
            write(&mut overflow, Packet::Ovf);
            overflow.resize(to - from, 0);
            stream[from..to].copy_from_slice(&overflow);
        }
    }
}

/// Instructions of a thread.
#[derive(Default)]
struct Instructions(u64);

impl Sink for Instructions {
    const DIVIDED: bool = true;

    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.0 += u64::from(block.instructions);
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

#[test]
fn parts_of_a_core_are_of_its_threads_as_the_whole_is() {
    for (seed, turns) in all_turns() {
        let codes = turns.codes();
        let make = || Threads::new(&turns.views, |_| Instructions::default());
        for (core, data) in turns.cores.iter().enumerate() {
            let stream =
                pt_flow::Stream { data, config: &Config::default(), epochs: &turns.epochs[core], missing: &[] };
            let mut whole = make();
            let statistics = Flow::new(&codes).decode(data, stream.config, stream.epochs, &mut whole);
            let mut ran: BTreeMap<(u32, u32), u64> = BTreeMap::new();
            let in_parts = decode_in_parts(
                &codes,
                stream,
                Workers { threads: 2, part_bytes: 200 },
                make,
                |_, threads| std::mem::replace(threads, make()).finish(),
                |part| part.into_iter().for_each(|(thread, one)| *ran.entry(thread).or_default() += one.0),
            );
            let what = format!("{seed}, core {core}: {:?}", turns.habits);
            assert_eq!(in_parts, statistics, "{what}");
            let whole: BTreeMap<_, _> = whole.finish().into_iter().map(|(thread, one)| (thread, one.0)).collect();
            assert_eq!(ran, whole, "{what}");
        }
    }
}

/// What each thread ran, by function, and each of its branches.
type Ran = BTreeMap<(u32, u32), (BTreeMap<u64, u64>, BTreeMap<Edge, u64>)>;

fn add(ran: &mut Ran, threads: BTreeMap<(u32, u32), Calls<Divided>>) {
    for (thread, mut calls) in threads {
        let trace = calls.finish();
        let (functions, edges) = ran.entry(thread).or_default();
        for function in trace.functions.iter().filter(|function| function.self_instructions != 0) {
            *functions.entry(function.address).or_default() += function.self_instructions;
        }
        for (edge, count) in trace.edges {
            *edges.entry(edge).or_default() += count;
        }
    }
}

#[test]
fn pieces_of_a_core_tell_what_each_thread_ran() {
    let mut count = 0;
    for (seed, turns) in all_turns() {
        let codes = turns.codes();
        let decode = |data: &[u8], epochs: &[(usize, u32)]| {
            let mut threads = Threads::new(&turns.views, |_| Calls::new(Divided));
            let statistics = Flow::new(&codes).decode(data, &Config::default(), epochs, &mut threads);
            assert_eq!(statistics.errors, 0, "{seed}: {:?}", turns.habits);
            threads.finish()
        };
        for (core, data) in turns.cores.iter().enumerate().filter(|(_, data)| !data.is_empty()) {
            let stream = Stream {
                name: String::new(),
                data: Bytes::from(data.clone()),
                cut_from: None,
                of: Of::Core(core as u32),
                begins: None,
                switches: Vec::new(),
                image: 0,
                epochs: turns.epochs[core].clone(),
                by_time: None,
                lost: Vec::new(),
            };
            let (mut whole, mut in_pieces) = (Ran::new(), Ran::new());
            add(&mut whole, decode(data, &stream.epochs));
            let pieces = pieces(&stream, &Config::default(), 200);
            count += pieces.len();
            for piece in pieces {
                let packets = [&data[piece.from..piece.next], &piece.tail].concat();
                add(&mut in_pieces, decode(&packets, &piece.epochs));
            }
            assert!(whole == in_pieces, "{seed}, core {core}: {:?}", turns.habits);
        }
    }
    assert!(count as u64 > 3 * programs());
}

pub fn habits(seed: u64) -> Habits {
    Habits {
        kernel: seed % 4 != 0,
        interrupts: [0, 50, 300][seed as usize % 3],
        signals: [0, 10][seed as usize / 3 % 2],
        compressed: seed % 5 != 0,
        psb_bytes: [300, 3000, usize::MAX][seed as usize / 6 % 3],
        stops: false,
        deferred: seed % 7 > 3,
    }
}

fn assert_made(seed: u64, habits: Habits, flags: u8) {
    let mut program = Nested::new(seed, habits);
    program.run(4_000);
    let mut made = made(&program);
    made[0].flags |= flags & (BEGIN_TRUNCATED | END_TRUNCATED);
    let (mut flow, mut calls) = (Flow::new(&program.code), Calls::new(Divided));
    // Later passes go along paths.
    for pass in 0..4 {
        let statistics = flow.decode(&program.stream, &Config::default(), &[], &mut calls);
        let told = told(&calls.finish(), flags);
        assert_eq!(statistics.errors, 0, "{seed}: {habits:?}");
        assert_same(&told, &made, &format!("{seed}, pass {pass}: {habits:?}"));
    }
}

#[test]
fn calls_are_those_that_were_made() {
    for seed in 1..=programs() {
        assert_made(seed, habits(seed), TAIL_CALL | ASYNCHRONOUS);
    }
}

#[test]
fn calls_of_a_program_go_on_where_tracing_ends_and_begins_in_its_kernel() {
    for seed in 1..=programs() {
        assert_made(seed, Habits { kernel: true, stops: true, ..habits(seed) }, ALL_FLAGS);
    }
}

//! Several flows tell of the threads of two cores what one of them tells.

use crate::machine::Random;
use crate::truth::{
    assert_same, decode_cores, lose, made, made_in_turns, stopping, told, whole_calls, Divided, ALL_FLAGS,
};
use crate::turns::{all_turns, programs, Codes, Turns};
use pt_calls::{Calls, LossCause, LossRecord, Totals, Trace};
use pt_capture::{decode_side_by_side, CoreStream, Travelled, View};
use pt_flow::{find_psb, Config, Flow, Travels};
use pt_image::{Place, Role, Symbols};
use pt_packet::{Packet, Reader, PSB};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};

/// What so many flows tell of each thread.
pub fn decode<S: Symbols + Copy + Send>(
    codes: &Codes<'_>,
    turns: &Turns,
    flows: usize,
    symbols: S,
) -> BTreeMap<u32, Trace> {
    let mut flows: Vec<_> = (0..flows).map(|_| Flow::new(codes)).collect();
    let cores = turns.cores.iter().zip(&turns.epochs).zip(0..);
    let cores = cores.map(|((data, epochs), core)| CoreStream {
        core,
        data,
        missing: &[],
        epochs: epochs.clone(),
        is_whole: true,
    });
    let cores: Vec<_> = cores.collect();
    let make = move |_: &View, _| Calls::new(symbols);
    let config = Config { thread_switch: turns.thread_switch, ..Config::default() };
    let threads = decode_side_by_side(&mut flows, &config, &cores, &turns.views, &turns.stays(), make);
    let mut traces = BTreeMap::new();
    for ((_, tid, _), Travelled { sink: mut calls, learned }) in threads {
        let mut totals = Totals { functions: Vec::new(), edges: Vec::new(), calls: 0 };
        for (_, mut learned) in learned {
            calls.exchange(&mut learned);
            totals.add_edges(calls.take_edges());
            calls.exchange(&mut learned);
        }
        traces.insert(tid, Trace { edges: totals.edges, ..calls.finish() });
    }
    traces
}

pub fn assert_same_traces(told: &BTreeMap<u32, Trace>, expected: &BTreeMap<u32, Trace>, what: &str) {
    assert_eq!(told.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for ((tid, one), other) in told.iter().zip(expected.values()) {
        let what = format!("thread {tid}, {what}");
        assert_same(&crate::truth::told(one, ALL_FLAGS), &crate::truth::told(other, ALL_FLAGS), &what);
        assert!(one.losses == other.losses && one.edges == other.edges, "{what}");
    }
}

#[test]
fn threads_that_change_cores_have_the_calls_that_one_flow_tells() {
    for (seed, turns) in all_turns().chain(stopping()) {
        let (codes, what) = (turns.codes(), format!("{seed}: {:?}", turns.habits));
        let (in_turns, _) = decode_cores(&mut Flow::new(&codes), &turns);
        for flows in [1, 2] {
            let told = decode(&codes, &turns, flows, Divided);
            assert_same_traces(&told, &in_turns, &format!("{flows} flows, {what}"));
        }
    }
}

#[test]
fn calls_that_are_whole_in_spite_of_losses_were_made_so() {
    let (mut whole, mut whole_in_turns) = (0, 0);
    for (seed, mut turns) in all_turns().chain(stopping()) {
        damage(&mut turns, seed);
        let (codes, what) = (turns.codes(), format!("{seed}: {:?}", turns.habits));
        let (in_turns, _) = decode_cores(&mut Flow::new(&codes), &turns);
        let [one, two] = [1, 2].map(|flows| decode(&codes, &turns, flows, Divided));
        assert_same_traces(&two, &one, &what);
        assert_eq!(lost(&one), lost(&in_turns), "{what}");
        for (tid, trace) in one {
            let thread = &turns.threads[tid as usize - 1];
            let made = if turns.habits.stops { made(thread) } else { made_in_turns(thread) };
            let what = format!("thread {tid}, {what}");
            for loss in trace.losses.iter().filter(|loss| loss.cause != LossCause::Overflow) {
                let is_of_core = turns.epochs[loss.core as usize].iter().any(|&(_, epoch)| epoch == loss.epoch);
                assert!(is_of_core && turns.views[loss.epoch as usize].tid == tid, "{loss:?}, {what}");
            }
            whole += whole_calls(&trace, &made, &what);
            whole_in_turns += whole_calls(&in_turns[&tid], &made, &what);
        }
    }
    assert!(whole > 100 * programs() && whole * 100 > whole_in_turns * 99, "{whole}, in turns {whole_in_turns}");
}

/// Core, offset and size of all that was lost.
pub fn lost(traces: &BTreeMap<u32, Trace>) -> BTreeSet<(u32, u64, u64)> {
    let losses = traces.values().flat_map(|trace| &trace.losses);
    losses.map(|&LossRecord { core, offset, size, .. }| (core, offset, size)).collect()
}

fn damage(turns: &mut Turns, seed: u64) {
    let mut random = Random(seed | 1 << 42);
    for _ in 0..1 + random.below(3) {
        let core = random.below(2);
        lose(&mut turns.cores[core], &mut random);
    }
    let core = random.below(2);
    let turn = random.below(turns.epochs[core].len() - 1);
    let [begins, ends] = [turn, turn + 1].map(|turn| turns.epochs[core][turn].0);
    let stream = &mut turns.cores[core];
    let [first, behind] = [PSB.len(), ends + 1].map(|from| find_psb(stream, from).unwrap_or(stream.len()));
    match seed % 4 {
        // Nothing is known of the first turn but that it was one.
        0 => stream[PSB.len()..first].fill(0x05),
        // It is not known how a turn ended.
        1 => stream[ends..behind].fill(0x05),
        // The first to tell that nothing of a turn is known is the next one.
        2 => {
            stream[begins..ends].fill(0);
            stream[ends..behind].fill(0x05);
        }
        _ => {}
    }
}

#[test]
fn others_wait_for_a_core_that_waits_for_what_it_alone_tells() {
    let mut cases = 0;
    for (seed, mut turns) in all_turns().filter(|(_, turns)| !turns.habits.kernel) {
        // A thread goes to the other core and comes back, and nobody else ran here meanwhile.
        let view = |turns: &Turns, turn: usize| turns.views[turns.epochs[1][turn].1 as usize];
        let comes_back = |&turn: &usize| {
            let [this, next] = [turn, turn + 1].map(|turn| view(&turns, turn));
            this.tid == next.tid && this.stay != next.stay
        };
        let Some(turn) = (1..turns.epochs[1].len() - 1).find(comes_back) else { continue };
        let tid = view(&turns, turn).tid;
        let [begins, ends] = [turn, turn + 1].map(|turn| turns.epochs[1][turn].0);
        // Nothing is told of its turn, and all behind it is lost as soon as it has come back.
        let mut reader = Reader::new(&turns.cores[1]);
        while reader.offset() < ends && reader.read().is_ok_and(|packet| packet.is_some()) {}
        while !matches!(reader.read(), Ok(Some(Packet::TipPge(_)) | None) | Err(_)) {}
        let began = reader.offset();
        turns.cores[1][begins..ends].fill(0);
        turns.cores[1][began..].fill(0x05);
        let codes = turns.codes();
        let [one, two] = [1, 2].map(|flows| decode(&codes, &turns, flows, Divided));
        let what = format!("{seed}: {:?}", turns.habits);
        assert_same_traces(&two, &one, &what);
        for (other, trace) in one.iter().filter(|&(&other, _)| other != tid) {
            let made = made_in_turns(&turns.threads[*other as usize - 1]);
            whole_calls(trace, &made, &format!("thread {other}, {what}"));
        }
        cases += 1;
    }
    assert!(cases > programs() / 4, "{cases}");
}

/// Only calls divide the code.
#[derive(Clone, Copy)]
struct Bare;

impl Symbols for Bare {
    fn place(&self, _epoch: u32, _address: u64) -> Place {
        Place { space: 0, function: None, start: 0, end: u64::MAX, bias: 0, entry: false, role: Role::Plain }
    }
}

#[test]
fn functions_that_another_flow_divided_meanwhile_are_divided() {
    for (seed, turns) in all_turns() {
        let codes = turns.codes();
        let [one, two] = [1, 2].map(|flows| decode(&codes, &turns, flows, Bare));
        assert_same_traces(&two, &one, &format!("{seed}: {:?}", turns.habits));
    }
}

#[test]
fn records_that_contradict_each_other_are_followed_in_one_order_and_to_the_end() {
    for (seed, mut turns) in all_turns() {
        // The first thread comes last to where it began.
        let last = turns.views.iter().map(|view| view.stay).max().unwrap_or(0);
        turns.views.iter_mut().filter(|view| view.tid == 1).for_each(|view| view.stay = last - view.stay);
        let codes = turns.codes();
        let [one, two] = [1, 2].map(|flows| decode(&codes, &turns, flows, Divided));
        let what = format!("{seed}: {:?}", turns.habits);
        assert_same_traces(&two, &one, &what);
        let (in_turns, _) = decode_cores(&mut Flow::new(&codes), &turns);
        for (tid, trace) in one.iter().chain(&in_turns) {
            let (begins, ends) = (&trace.records.columns.start_tsc, &trace.records.columns.end_tsc);
            assert!(begins.iter().zip(ends).all(|(begin, end)| begin <= end), "thread {tid}, {what}");
            let ticks = trace.functions.iter().map(|function| function.self_ticks).max();
            assert!(ticks.is_none_or(|ticks| ticks < 1 << 40), "thread {tid}: {ticks:?}, {what}");
        }
        for (tid, trace) in &one {
            let ran = |trace: &Trace| told(trace, 0).iter().map(|row| row.own).sum::<u64>();
            assert_eq!(ran(trace), ran(&in_turns[tid]), "thread {tid}, {what}");
        }
    }
}

/// Fails when it is asked for the last time.
#[derive(Clone, Copy)]
struct Fails<'l>(&'l AtomicU32);

impl Symbols for Fails<'_> {
    fn place(&self, epoch: u32, address: u64) -> Place {
        assert_ne!(self.0.fetch_sub(1, Ordering::Relaxed), 1);
        Divided.place(epoch, address)
    }
}

#[test]
fn no_flow_waits_for_one_that_fails() {
    let (_, turns) = all_turns().next().expect("turns");
    let codes = turns.codes();
    for asked in 1..20 {
        let left = AtomicU32::new(asked);
        assert!(catch_unwind(AssertUnwindSafe(|| decode(&codes, &turns, 2, Fails(&left)))).is_err(), "{asked}");
    }
}

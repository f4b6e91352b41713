//! Handing out calls while decoding is a matter of memory alone: whatever the size of the batches, together they are what
//! is known at the end.

use crate::functions::Functions;
use crate::gathered::Gathered;
use crate::nested::{Habits, Nested};
use crate::support;
use crate::truth::Divided;
use pt_calls::{Callers, Calls, FunctionKey, FunctionTotals, Totals, Trace};
use pt_flow::{find_psb, Config, Flow};

const TRACES: [&str; 5] = ["last", "ovf-01-ben", "hello", "cve-2004-0597-poc", "cve-2005-0105-poc"];

fn by_identity(totals: &[FunctionTotals]) -> Vec<String> {
    let mut told: Vec<_> = totals.iter().map(|function| format!("{function:?}")).collect();
    told.sort();
    told
}

fn same(what: &str, whole: &Trace, parts: Gathered, totals: &Totals) {
    let Gathered { mut records, functions, found, losses, .. } = parts;
    Callers::new(found).place(&records.call.clone(), &mut records.parent, &mut records.columns.depth);
    let names: Vec<_> = whole.functions.iter().map(|one| (one.space, one.function, one.address)).collect();
    let place = |one: &FunctionKey| names.iter().position(|name| *name == (one.space, one.function, one.address));
    let places: Vec<_> = functions.iter().map(|one| place(one).expect("a function of the whole") as u32).collect();
    records.number();
    records.columns.function.iter_mut().for_each(|number| *number = places[*number as usize]);
    assert!(records == whole.records, "{what}: calls differ");
    assert_eq!(by_identity(&totals.functions), by_identity(&whole.functions), "{what}: functions");
    assert_eq!((&totals.edges, &losses), (&whole.edges, &whole.losses), "{what}");
    assert_eq!(totals.calls, whole.records.len() as u64, "{what}");
}

#[test]
fn batches_of_any_size_add_up_to_the_whole() {
    let mut late = 0;
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        let whole = griffin.streams.values().next().unwrap();
        let timed = support::timed(whole);
        // In the middle of a deep stack: callers are found late.
        let (second, timed_second) = (&whole[whole.len() / 3..], &timed[timed.len() / 3..]);
        let streams =
            [&whole[..], &timed, second, timed_second].into_iter().flat_map(|one| [(false, one), (true, one)]);
        for (divided, stream) in streams {
            let mut flow = Flow::new(&griffin.memory);
            let mut calls = Calls::new(Functions { divided });
            flow.decode(stream, &Config::default(), &[], &mut calls);
            let trace = calls.finish();
            // The largest are more than leave the window at once.
            for rows in [1, 50, 1000, 20_000] {
                let output = Gathered { rows, ..Gathered::default() };
                let mut calls = Calls::handing_out(Functions { divided }, output);
                flow.decode(stream, &Config::default(), &[], &mut calls);
                let totals = calls.end_stream();
                let parts = std::mem::take(calls.output());
                late += parts.found.len();
                assert!(parts.batches >= trace.records.len() / (2 * (rows + 512)), "{} batches", parts.batches);
                // What was gathered before, less than asked for, and what is in the window.
                assert!(parts.most < 2 * (rows + 512), "a batch of {} rows", parts.most);
                same(&format!("{name}, divided {divided}, batches of {rows}"), &trace, parts, &totals);
            }
        }
    }
    assert!(late > 100, "{late} callers were found behind a batch");
}

#[test]
fn calls_of_programs_that_stop_in_their_kernel_are_the_same_in_batches_of_any_size() {
    for seed in 1..=40 {
        let (interrupts, psb_bytes) = ([0, 50][seed as usize % 2], [300, usize::MAX][seed as usize / 2 % 2]);
        let habits =
            Habits { kernel: true, interrupts, signals: 20, compressed: true, psb_bytes, stops: true, deferred: false };
        let mut program = Nested::new(seed, habits);
        program.run(40_000);
        // From a PSB on callers are found late.
        let stream = &program.stream[find_psb(&program.stream, program.stream.len() / 3).unwrap_or(0)..];
        let mut flow = Flow::new(&program.code);
        let mut calls = Calls::new(Divided);
        flow.decode(stream, &Config::default(), &[], &mut calls);
        let trace = calls.finish();
        for rows in [1, 7, 50, 500] {
            let mut calls = Calls::handing_out(Divided, Gathered { rows, ..Gathered::default() });
            flow.decode(stream, &Config::default(), &[], &mut calls);
            let totals = calls.end_stream();
            same(&format!("{seed}, batches of {rows}: {habits:?}"), &trace, std::mem::take(calls.output()), &totals);
        }
    }
}

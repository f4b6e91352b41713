//! A kernel of which no code is known hides nothing of the programs that call it and that it interrupts.

use crate::machine::Random;
use crate::nested::{Habits, Nested};
use crate::side_by_side;
use crate::support::Sections;
use crate::truth::{self, assert_same, decode_cores, lose, told, whole_calls, Divided, Row, ALL_FLAGS};
use crate::turns::{programs, Turns};
use pt_calls::{Calls, LossCause, Trace, BEGIN_TRUNCATED, END_TRUNCATED};
use pt_flow::{is_kernel, Config, Flow, Reason};
use std::collections::HashMap;

/// The calls of the program, without what the kernel ran in them.
fn made(program: &Nested) -> Vec<Row> {
    let (mut rows, mut places): (Vec<Row>, _) = (Vec::new(), HashMap::new());
    for (number, call) in program.calls.iter().enumerate().filter(|(_, call)| !is_kernel(call.function)) {
        let within = program.of_kernel.iter().filter(|ran| call.began <= ran.start && ran.end <= call.ended);
        let total = call.ended - call.began - within.map(|ran| ran.end - ran.start).sum::<u64>();
        let parent = call.parent.map(|parent| places[&parent]);
        let depth = parent.map_or(0, |parent: usize| {
            rows[parent].own -= total;
            rows[parent].depth + 1
        });
        places.insert(number, rows.len());
        rows.push(Row { function: call.function, parent, depth, own: total, total, flags: call.flags });
    }
    rows[0].flags |= BEGIN_TRUNCATED | END_TRUNCATED;
    rows
}

pub fn without_kernel(code: &Sections) -> Sections {
    let known = code.0.iter().filter(|(address, _)| !is_kernel(**address));
    Sections(known.map(|(&address, code)| (address, code.clone())).collect())
}

/// How often it is certain that nothing of the program is lost in the kernel.
fn passed(trace: &Trace) -> usize {
    trace.losses.iter().filter(|loss| loss.cause == LossCause::Undecodable(Reason::NoKernelCode)).count()
}

#[test]
fn calls_of_a_program_are_those_that_it_made() {
    let (mut certain, mut all) = (0, 0);
    for seed in 1..=programs() {
        let habits = Habits { kernel: true, stops: seed % 2 == 0, ..truth::habits(seed) };
        let mut program = Nested::new(seed, habits);
        program.run(4_000);
        let (made, code) = (made(&program), without_kernel(&program.code));
        let (mut flow, mut calls) = (Flow::new(&code), Calls::new(Divided));
        for pass in 0..4 {
            let what = format!("{seed}, pass {pass}: {habits:?}");
            flow.decode(&program.stream, &Config::default(), &[], &mut calls);
            let trace = calls.finish();
            whole_calls(&trace, &made, &what);
            if passed(&trace) == trace.losses.len() {
                assert_same(&told(&trace, ALL_FLAGS), &made, &what);
            }
            (certain, all) = (certain + passed(&trace), all + trace.losses.len());
        }
    }
    // Where several numbers of branches may have run behind the return from a system call, calls are cut.
    assert!(certain * 3 > all * 2, "{certain} of {all}");
}

#[test]
fn threads_that_change_cores_have_the_calls_that_they_made() {
    let (mut whole, mut same) = (0, 0);
    for seed in 1..=programs() {
        let mut turns = Turns::of_stopping_programs(seed);
        let made: Vec<_> = turns.threads.iter().map(made).collect();
        let what = format!("{seed}: {:?}", turns.habits);
        for damaged in [false, true] {
            if damaged {
                let mut random = Random(seed | 1 << 42);
                let core = random.below(2);
                lose(&mut turns.cores[core], &mut random);
            }
            let mut codes = turns.codes();
            codes.hides_kernel = true;
            let in_turns = decode_cores(&mut Flow::new(&codes), &turns).0;
            let side_by_side = side_by_side::decode(&codes, &turns, 2, Divided);
            assert_eq!(side_by_side::lost(&side_by_side), side_by_side::lost(&in_turns), "damaged: {damaged}, {what}");
            for (tid, trace) in in_turns.into_iter().chain(side_by_side) {
                let (made, what) = (&made[tid as usize - 1], format!("thread {tid}, damaged: {damaged}, {what}"));
                whole += whole_calls(&trace, made, &what);
                if !damaged && passed(&trace) == trace.losses.len() {
                    assert_same(&told(&trace, ALL_FLAGS), made, &what);
                    same += 1;
                }
            }
        }
    }
    assert!(whole > 100 * programs() && same * 5 > programs(), "{whole} whole calls, {same} whole threads");
}

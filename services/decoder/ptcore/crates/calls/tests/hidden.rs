//! Code that is not known costs what ran in it and no more: the rest is what is told where all is known.

use crate::machine::{self, Habits, Machine};
use crate::support::{Runs, Sections};
use pt_flow::{Config, Flow, Reason, Statistics};
use std::collections::BTreeMap;

/// The program with so many of its functions not to be read, which lie one behind the other.
pub fn hidden(code: &[u8], first: usize, functions: usize) -> Sections {
    let (from, to) = (first * 0x100, (first + functions) * 0x100);
    let sections = [(machine::BASE, code[..from].to_vec()), (machine::BASE + to as u64, code[to..].to_vec())];
    Sections(BTreeMap::from(sections))
}

fn decode(memory: &Sections, stream: &[u8]) -> (Runs, Statistics) {
    let mut runs = Runs::default();
    let statistics = Flow::new(memory).decode(stream, &Config::default(), &[], &mut runs);
    (runs, statistics)
}

/// How many instructions ran, and what is told of them where so many functions are not known.
fn checked(seed: u64, habits: Habits, first: usize, functions: usize) -> (u64, Runs, Statistics) {
    let mut machine = Machine::new(seed, habits);
    machine.run(5_000);
    let all = Sections(BTreeMap::from([(machine::BASE, machine.code.clone())]));
    let whole = decode(&all, &machine.stream).0;
    assert!(whole.losses.is_empty(), "seed {seed}: {:?}", whole.losses);
    let truth: Vec<u64> = whole.runs.concat();
    let (known, statistics) = decode(&hidden(&machine.code, first, functions), &machine.stream);
    known.are_in(&truth);
    let whys = [Reason::NoCode, Reason::EmptyReturnStack];
    assert!(known.losses.iter().all(|loss| whys.contains(&loss.reason)), "{:?}", known.losses);
    (truth.len() as u64, known, statistics)
}

#[test]
fn what_is_told_around_code_that_is_not_known_is_what_ran_there() {
    let habits = Habits { psb_bytes: 4000, compressed: true, interrupts: 60, signals: 60, ..Habits::default() };
    let (mut told, mut ran, mut by_psbs) = (0, 0, 0);
    for seed in 1..20 {
        let (instructions, known, statistics) = checked(seed, habits, 60, 6);
        (told, ran) = (told + statistics.instructions, ran + instructions);
        by_psbs += statistics.psb;
        assert!(known.losses.len() as u64 > statistics.psb, "only PSBs end losses");
    }
    assert!(told * 2 > ran && by_psbs > 0, "{told} of {ran} instructions are told");
}

#[test]
fn nothing_is_told_twice_where_psbs_stand_close() {
    let often = Habits { psb_bytes: 300, compressed: true, interrupts: 60, signals: 60, ..Habits::default() };
    let all = Habits { overflows: 100, deferred: true, notes: 40, exceptions: 30, cycles: true, ..often };
    for seed in 1..6 {
        for habits in [often, all] {
            for (first, functions) in [(60, 6), (20, 40), (3, 1)] {
                checked(seed, habits, first, functions);
            }
        }
    }
}

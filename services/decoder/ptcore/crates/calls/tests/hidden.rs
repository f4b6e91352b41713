//! Code that is not known costs what ran in it and no more: the rest is what is told where all is known.

use crate::machine::{self, Habits, Machine};
use crate::support::Sections;
use pt_flow::{Block, Config, DisableKind, Flow, Loss, Reason, Sink, Statistics};
use std::collections::BTreeMap;

/// The program with so many of its functions not to be read, which lie one behind the other.
pub fn hidden(code: &[u8], first: usize, functions: usize) -> Sections {
    let (from, to) = (first * 0x100, (first + functions) * 0x100);
    let sections = [(machine::BASE, code[..from].to_vec()), (machine::BASE + to as u64, code[to..].to_vec())];
    Sections(BTreeMap::from(sections))
}

/// The addresses of instructions, in runs that a loss or a stop ends.
#[derive(Default)]
struct Runs {
    runs: Vec<Vec<u64>>,
    losses: Vec<Loss>,
}

impl Sink for Runs {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.runs.last_mut().expect("a run").extend(block.addresses());
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {
        self.runs.push(Vec::new());
    }
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        self.losses.push(*loss);
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

fn decode(memory: &Sections, stream: &[u8]) -> (Runs, Statistics) {
    let mut runs = Runs::default();
    let statistics = Flow::new(memory).decode(stream, &Config::default(), &[], &mut runs);
    (runs, statistics)
}

#[test]
fn what_is_told_around_code_that_is_not_known_is_what_ran_there() {
    let habits = Habits { psb_bytes: 4000, compressed: true, interrupts: 60, signals: 60, ..Habits::default() };
    let (mut told, mut ran, mut by_psbs) = (0, 0, 0);
    for seed in 1..20 {
        let mut machine = Machine::new(seed, habits);
        machine.run(5_000);
        let all = Sections(BTreeMap::from([(machine::BASE, machine.code.clone())]));
        let truth: Vec<u64> = decode(&all, &machine.stream).0.runs.concat();
        let (known, statistics) = decode(&hidden(&machine.code, 60, 6), &machine.stream);
        let mut at = 0;
        for run in known.runs.iter().filter(|run| !run.is_empty()) {
            let found = truth[at..].windows(run.len()).position(|ran| ran == run);
            at += found.unwrap_or_else(|| panic!("seed {seed}: nothing like {run:x?} ran behind {at}")) + run.len();
        }
        let whys = [Reason::NoCode, Reason::EmptyReturnStack];
        assert!(known.losses.iter().all(|loss| whys.contains(&loss.reason)), "{:?}", known.losses);
        (told, ran) = (told + statistics.instructions, ran + truth.len() as u64);
        by_psbs += statistics.psb;
        assert!(known.losses.len() as u64 > statistics.psb, "only PSBs end losses");
    }
    assert!(told * 2 > ran && by_psbs > 0, "{told} of {ran} instructions are told");
}

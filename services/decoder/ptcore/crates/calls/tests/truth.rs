//! The calls of programs made up at random are those that they made.

use crate::nested::{function_of, Habits, Nested};
use pt_calls::{Calls, Trace, ASYNCHRONOUS, NO_PARENT, TAIL_CALL};
use pt_flow::{Config, Flow};
use pt_image::{Place, Role, Symbols};

/// Functions of 256 bytes each.
struct Divided;

impl Symbols for Divided {
    fn place(&self, _epoch: u32, address: u64) -> Place {
        let start = function_of(address);
        let function = Some((address >> 8) as u32 & 0xffff);
        Place { space: 0, function, start, end: start + 0x100, bias: 0, entry: address == start, role: Role::Plain }
    }
}

#[derive(Debug, PartialEq)]
struct Row {
    function: u64,
    parent: Option<usize>,
    depth: u32,
    own: u64,
    total: u64,
    /// Those of how it began.
    flags: u8,
}

fn told(trace: &Trace) -> Vec<Row> {
    let calls = &trace.records;
    let row = |row: usize| Row {
        function: trace.functions[calls.function[row] as usize].address,
        parent: Some(calls.parent[row] as usize).filter(|_| calls.parent[row] != NO_PARENT),
        depth: calls.depth[row],
        own: calls.instructions[row],
        total: calls.instructions_total[row],
        flags: calls.flags[row] & (TAIL_CALL | ASYNCHRONOUS),
    };
    (0..calls.len()).map(row).collect()
}

fn made(program: &Nested) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for call in &program.calls {
        let total = call.ended - call.began;
        let depth = call.parent.map_or(0, |parent| {
            rows[parent].own -= total;
            rows[parent].depth + 1
        });
        rows.push(Row { function: call.function, parent: call.parent, depth, own: total, total, flags: call.flags });
    }
    rows
}

/// `PERMILLE_MUTATIONS` asks for more programs.
#[test]
fn calls_are_those_that_were_made() {
    let programs = std::env::var("PERMILLE_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    for seed in 1..=programs {
        let habits = Habits {
            kernel: seed % 4 != 0,
            interrupts: [0, 50, 300][seed as usize % 3],
            signals: [0, 10][seed as usize / 3 % 2],
            compressed: seed % 5 != 0,
            psb_bytes: [300, 3000, usize::MAX][seed as usize / 6 % 3],
        };
        let mut program = Nested::new(seed, habits);
        program.run(4_000);
        let made = made(&program);
        let (mut flow, mut calls) = (Flow::new(&program.code), Calls::new(Divided));
        // Later passes go along paths.
        for pass in 0..4 {
            let statistics = flow.decode(&program.stream, &Config::default(), &[], &mut calls);
            let told = told(&calls.finish());
            assert_eq!(statistics.errors, 0, "{seed}: {habits:?}");
            let other = told.iter().zip(&made).position(|(told, made)| told != made);
            let rows = other.map(|number| (number, &told[number], &made[number]));
            assert_eq!((told.len(), rows), (made.len(), None), "{seed}, pass {pass}: {habits:?}");
        }
    }
}

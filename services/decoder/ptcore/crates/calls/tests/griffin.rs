//! Real traces of Intel processors: whatever ran is in exactly one call and one function, every branch in one edge.

use crate::support;
use pt_calls::{Calls, EdgeKind, NO_PARENT};
use pt_flow::{Config, Flow};
use pt_image::{Place, Role, Symbols};

struct NoSymbols;

impl Symbols for NoSymbols {
    fn place(&self, _epoch: u32, _address: u64) -> Place {
        Place { space: 0, function: None, start: 0, end: u64::MAX, bias: 0, entry: false, role: Role::Plain }
    }
}

#[test]
fn nothing_is_counted_twice_or_never() {
    for name in ["last", "ovf-01-ben", "hello", "uaf-04-ben"] {
        let Some(griffin) = support::griffin(name) else { return };
        for stream in griffin.streams.values() {
            let mut calls = Calls::new(NoSymbols);
            let counts = Flow::new(&griffin.memory).decode(stream, &Config::default(), &[], &mut calls);
            let trace = calls.finish();
            let records = &trace.records;
            assert!(counts.instructions > 0, "{name}");
            assert_eq!(records.instructions.iter().sum::<u64>(), counts.instructions, "{name}: calls");
            let own = trace.functions.iter().map(|function| function.self_instructions);
            assert_eq!(own.sum::<u64>(), counts.instructions, "{name}: functions");
            let roots = (0..records.len()).filter(|&row| records.parent[row] == NO_PARENT);
            assert_eq!(
                roots.map(|row| records.instructions_total[row]).sum::<u64>(),
                counts.instructions,
                "{name}: roots"
            );
            let conditional = trace.edges.iter().filter(|(edge, _)| edge.kind <= EdgeKind::CondNotTaken);
            assert_eq!(conditional.map(|&(_, count)| count).sum::<u64>(), counts.conditional_branches, "{name}: edges");
            for row in (0..records.len()).filter(|&row| records.parent[row] != NO_PARENT) {
                let parent = records.parent[row] as usize;
                assert_eq!(records.depth[row], records.depth[parent] + 1, "{name}: depth of row {row}");
                assert!(records.start_tsc[parent] <= records.start_tsc[row], "{name}: start of row {row}");
            }
        }
    }
}

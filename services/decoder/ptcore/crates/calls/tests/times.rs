//! When calls begin and end.

use crate::calls::{block, Script, LEAF, MAIN, WORK};
use pt_flow::{BlockKind, Sink};

/// How a thread comes to another core, at a time.
type Comes = fn(&mut Script, u64);

const WAYS: [(&str, Comes); 3] = [
    ("tracing begins", |script, tsc| {
        script.calls.enabled(WORK, false, tsc);
        script.calls.psb(&block(WORK, 4, BlockKind::Call, LEAF), tsc);
    }),
    ("the kernel goes back to it", |script, tsc| {
        script.calls.switched(WORK, tsc);
        script.calls.psb(&block(WORK, 4, BlockKind::Call, LEAF), tsc);
    }),
    ("a PSB stands there", |script, tsc| script.calls.psb(&block(WORK, 4, BlockKind::Call, LEAF), tsc)),
];

#[test]
fn times_of_a_thread_do_not_go_back_when_it_comes_to_a_core_that_is_behind() {
    for (way, comes) in WAYS {
        let mut script = Script::at(MAIN);
        script.call(MAIN, WORK);
        let left = script.tsc;
        script.stopped(WORK);
        comes(&mut script, left - 6);
        script.tsc = left - 6;
        script.call(WORK, LEAF).ret(LEAF, WORK + 4).block(WORK + 4, 30, BlockKind::Jump, WORK).ret(WORK, MAIN + 4);
        let last = script.tsc;
        let trace = script.end();
        let columns = &trace.records.columns;
        let begins_and_ends = || columns.start_tsc.iter().zip(&columns.end_tsc);
        assert!(begins_and_ends().all(|(begin, end)| begin <= end), "{way}");
        let leaf = (0..trace.records.len()).find(|&row| trace.records.depth[row] == 2).expect("the call of LEAF");
        assert!(columns.start_tsc[leaf] >= left, "{way}: {} before {left}", columns.start_tsc[leaf]);
        // Of all that passed each tick is that of one function.
        let own: Vec<_> = trace.functions.iter().map(|function| function.self_ticks).collect();
        assert!(own.iter().all(|&ticks| ticks <= last - 100), "{way}: {own:?}");
    }
}

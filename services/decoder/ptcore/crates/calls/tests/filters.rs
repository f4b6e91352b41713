//! Calls where some addresses alone are traced.

use crate::calls::{rows, Row, Script, BARE, LEAF, MAIN};
use pt_calls::{BEGIN_TRUNCATED, NO_PARENT};
use pt_flow::{BlockKind, DisableKind, Sink};

#[test]
fn a_call_out_of_the_filtered_addresses_makes_no_function_of_where_it_returns_to() {
    let mut script = Script::at(BARE);
    script.call(BARE, LEAF);
    script.calls.disabled(DisableKind::Synchronous, BARE + 3, Some(LEAF), script.tsc);
    script.enabled(BARE + 4, true).block(BARE + 4, 3, BlockKind::Jump, BARE + 0x20);
    let told = rows(&script.end());
    let places: Vec<_> = told.iter().map(|row: &Row| (row.function, row.parent, row.own)).collect();
    assert_eq!(places, [(BARE, NO_PARENT, 7)]);
}

#[test]
fn a_function_that_is_traced_alone_is_called_anew_each_time() {
    let mut script = Script::at(LEAF);
    for _ in 0..3 {
        script.ret(LEAF, MAIN + 4);
        script.calls.disabled(DisableKind::Synchronous, LEAF + 1, Some(MAIN + 4), script.tsc);
        script.tsc += 50;
        script.enabled(LEAF, false);
    }
    let trace = script.end();
    let told: Vec<_> = rows(&trace).iter().map(|row: &Row| (row.function, row.parent, row.own)).collect();
    assert_eq!(told, [(LEAF, NO_PARENT, 2); 3]);
    assert_eq!(trace.records.flags, [BEGIN_TRUNCATED; 3]);
    assert_eq!(trace.records.end_tsc, [102, 154, 206]);
}

//! Calls where some addresses alone are traced.

use crate::calls::{rows, Row, Script, BARE, LEAF};
use pt_calls::NO_PARENT;
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

//! Far calls of a program, as of code in another segment (SDM volume 1, section "Far Call and RET Operation").

use crate::calls::{rows, Row, Script, LEAF, MAIN, WORK};
use pt_calls::{BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT};
use pt_flow::{BlockKind, DisableKind, Sink};

/// Where a gate leads.
const KERNEL: u64 = 0xffff_ffff_8100_0000;

fn call_far(script: &mut Script, start: u64, target: u64) {
    script.block(start, 2, BlockKind::FarCall, target);
}

fn return_far(script: &mut Script, start: u64, target: u64) {
    script.block(start, 2, BlockKind::Far, target);
}

fn told(script: Script) -> Vec<(u64, u64, u8)> {
    let place = |row: &Row| (row.function, row.parent, row.flags & !BEGIN_TRUNCATED & !END_TRUNCATED);
    rows(&script.end()).iter().map(place).collect()
}

#[test]
fn a_far_call_is_a_call_and_the_far_return_its_end() {
    let mut script = Script::at(MAIN);
    call_far(&mut script, MAIN, WORK);
    script.call(WORK, LEAF).ret(LEAF, WORK + 4);
    return_far(&mut script, WORK + 4, MAIN + 2);
    script.call(MAIN + 2, LEAF).ret(LEAF, MAIN + 6);
    assert_eq!(told(script), [(MAIN, NO_PARENT, 0), (WORK, 0, 0), (LEAF, 1, 0), (LEAF, 0, 0)]);
}

#[test]
fn one_into_the_midst_of_its_own_function_is_none() {
    let mut script = Script::at(MAIN);
    call_far(&mut script, MAIN, MAIN + 20);
    script.call(MAIN + 20, LEAF).ret(LEAF, MAIN + 24);
    return_far(&mut script, MAIN + 24, MAIN + 2);
    script.call(MAIN + 2, LEAF).ret(LEAF, MAIN + 6);
    assert_eq!(told(script), [(MAIN, NO_PARENT, 0), (LEAF, 0, 0), (LEAF, 0, 0)]);
}

#[test]
fn one_through_a_gate_is_a_call_of_the_kernel() {
    let mut script = Script::at(MAIN);
    call_far(&mut script, MAIN, KERNEL);
    return_far(&mut script, KERNEL, MAIN + 2);
    script.call(MAIN + 2, LEAF).ret(LEAF, MAIN + 6);
    assert_eq!(told(script), [(MAIN, NO_PARENT, 0), (KERNEL, 0, 0), (LEAF, 0, 0)]);
}

#[test]
fn one_out_of_what_is_traced_is_no_call() {
    let mut script = Script::at(MAIN);
    call_far(&mut script, MAIN, 0);
    script.calls.disabled(DisableKind::Synchronous, MAIN + 1, None, script.tsc);
    script.enabled(MAIN + 2, true).call(MAIN + 2, LEAF).ret(LEAF, MAIN + 6);
    assert_eq!(told(script), [(MAIN, NO_PARENT, 0), (LEAF, 0, 0)]);
}

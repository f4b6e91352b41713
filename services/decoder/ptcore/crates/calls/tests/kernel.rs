//! Calls where a program and the kernel are traced, or the kernel alone.

use crate::calls::{rows, Row, Script, HANDLER, LEAF, MAIN, RESTORER, START, WORK};
use pt_calls::{ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, TAIL_CALL};
use pt_flow::{BlockKind, DisableKind, Sink};

/// What system calls and interrupts lead to. An interrupt's entry is one of many in a function.
const ENTRY: u64 = 0xffff_ffff_8100_0000;
const DISPATCH: u64 = 0xffff_ffff_8100_1000;
const VECTOR: u64 = 0xffff_ffff_8100_2010;
const INTERRUPT: u64 = 0xffff_ffff_8100_3000;
const EXIT: u64 = 0xffff_ffff_8100_4000;

trait Far {
    fn far(&mut self, start: u64, target: u64) -> &mut Self;
    fn interrupted(&mut self, at: u64, to: u64) -> &mut Self;
}

impl Far for Script {
    fn far(&mut self, start: u64, target: u64) -> &mut Self {
        self.block(start, 2, BlockKind::Far, target)
    }

    /// One instruction in front of `at` ran.
    fn interrupted(&mut self, at: u64, to: u64) -> &mut Self {
        self.block(at - 1, 1, BlockKind::Interrupted, 0);
        self.calls.interrupt(at, to, self.tsc);
        self
    }
}

fn told(script: Script) -> Vec<(u64, u64, u8)> {
    let place = |row: &Row| (row.function, row.parent, row.flags & !BEGIN_TRUNCATED & !END_TRUNCATED);
    rows(&script.end()).iter().map(place).collect()
}

/// The begin of its function.
const fn function(address: u64) -> u64 {
    address & !0xfff
}

#[test]
fn a_system_call_is_a_call_of_the_kernel() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).far(WORK, ENTRY).call(ENTRY, DISPATCH).ret(DISPATCH, ENTRY + 4).far(ENTRY + 4, WORK + 2);
    script.call(WORK + 2, LEAF).ret(LEAF, WORK + 6).ret(WORK + 6, MAIN + 4);
    let found = rows(&script.end());
    let places: Vec<_> = found.iter().map(|row| (row.function, row.parent, row.flags & TAIL_CALL)).collect();
    assert_eq!(places, [(MAIN, NO_PARENT, 0), (WORK, 0, 0), (ENTRY, 1, 0), (DISPATCH, 2, 0), (LEAF, 1, 0)]);
    assert_eq!((found[1].own, found[1].total), (2 + 4 + 2, 2 + 4 + 2 + 8 + 2));
    assert_eq!((found[2].own, found[2].total, found[2].flags), (6, 8, 0));
}

#[test]
fn the_kernel_may_go_back_from_another_function_or_the_midst_of_calls() {
    for calls in [false, true] {
        let mut script = Script::at(MAIN);
        script.far(MAIN, ENTRY);
        if calls {
            script.call(ENTRY, EXIT);
        } else {
            script.jump(ENTRY, EXIT);
        }
        script.far(EXIT, MAIN + 2).call(MAIN + 2, LEAF).ret(LEAF, MAIN + 6);
        let found = told(script);
        assert_eq!(found.len(), 4);
        assert_eq!(found[3], (LEAF, 0, 0));
    }
}

#[test]
fn an_interrupt_ends_where_what_it_interrupted_goes_on() {
    let mut script = Script::at(MAIN);
    // Once more while the first one is handled.
    script.interrupted(MAIN + 5, VECTOR).jump(VECTOR, INTERRUPT).interrupted(INTERRUPT + 1, VECTOR);
    script.jump(VECTOR, INTERRUPT).far(INTERRUPT, INTERRUPT + 1).far(INTERRUPT + 1, MAIN + 5);
    script.call(MAIN + 5, LEAF).ret(LEAF, MAIN + 9);
    let vector = function(VECTOR);
    let found = told(script);
    let first = [(MAIN, NO_PARENT, 0), (vector, 0, ASYNCHRONOUS), (INTERRUPT, 0, TAIL_CALL)];
    let second = [(vector, 2, ASYNCHRONOUS), (INTERRUPT, 2, TAIL_CALL), (LEAF, 0, 0)];
    assert_eq!(found, [first, second].concat());
}

#[test]
fn an_exception_of_the_kernel_may_be_put_right_elsewhere_in_what_it_interrupted() {
    let mut script = Script::at(ENTRY);
    script.call(ENTRY, DISPATCH).interrupted(DISPATCH + 9, INTERRUPT).call(INTERRUPT, EXIT).ret(EXIT, INTERRUPT + 4);
    script
        .far(INTERRUPT + 4, DISPATCH + 0x80)
        .ret(DISPATCH + 0x80, ENTRY + 4)
        .call(ENTRY + 4, EXIT)
        .ret(EXIT, ENTRY + 8);
    let found = told(script);
    assert_eq!(found.len(), 5);
    assert_eq!((found[2].0, found[2].1, found[4]), (INTERRUPT, 1, (EXIT, 0, 0)));
}

#[test]
fn what_is_aborted_goes_on_in_the_function_that_began_it() {
    let mut script = Script::at(ENTRY);
    script.call(ENTRY, DISPATCH).interrupted(DISPATCH + 9, ENTRY + 4).call(ENTRY + 4, EXIT).ret(EXIT, ENTRY + 8);
    let found = told(script);
    assert_eq!((found.len(), found[2]), (3, (EXIT, 0, 0)));
}

#[test]
fn a_signal_is_handled_by_what_the_kernel_goes_back_to_and_ends_in_a_system_call() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).far(WORK, ENTRY).far(ENTRY, HANDLER).ret(HANDLER, RESTORER + 9);
    script
        .far(RESTORER + 9, ENTRY)
        .far(ENTRY, WORK + 2)
        .call(WORK + 2, LEAF)
        .ret(LEAF, WORK + 6)
        .ret(WORK + 6, MAIN + 4);
    script.call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    let found: Vec<_> =
        told(script).iter().map(|&(function, parent, flags)| (function, parent, flags & ASYNCHRONOUS)).collect();
    let signal = [(MAIN, NO_PARENT, 0), (WORK, 0, 0), (ENTRY, 1, 0), (HANDLER, 1, ASYNCHRONOUS)];
    let ends = [(function(RESTORER), 1, 0), (ENTRY, 4, 0), (LEAF, 1, 0), (LEAF, 0, 0)];
    assert_eq!(found, [signal, ends].concat());
}

#[test]
fn another_program_begins_where_the_kernel_goes_to_its_start() {
    let mut script = Script::at(MAIN);
    script.far(MAIN, ENTRY).far(ENTRY, START).call(START, LEAF).ret(LEAF, START + 4);
    let found = told(script);
    assert_eq!(found[2..], [(START, NO_PARENT, 0), (LEAF, 2, 0)]);
}

#[test]
fn a_recording_may_begin_in_the_kernel() {
    let mut script = Script::at(DISPATCH + 8);
    script.ret(DISPATCH + 8, ENTRY + 4).far(ENTRY + 4, WORK + 2).ret(WORK + 2, MAIN + 4).call(MAIN + 4, LEAF);
    script.ret(LEAF, MAIN + 8);
    let found = told(script);
    assert_eq!(found.iter().map(|row| row.0).collect::<Vec<_>>(), [MAIN, WORK, ENTRY, DISPATCH, LEAF]);
    assert_eq!(found.iter().map(|row| row.1).collect::<Vec<_>>(), [NO_PARENT, 0, 1, 2, 0]);
}

#[test]
fn system_calls_of_the_kernel_alone_follow_one_another() {
    let mut script = Script::at(ENTRY);
    for _ in 0..3 {
        script.call(ENTRY, DISPATCH).ret(DISPATCH, ENTRY + 4).block(ENTRY + 4, 2, BlockKind::Far, 0);
        script.calls.disabled(DisableKind::Synchronous, ENTRY + 5, None, script.tsc);
        script.enabled(ENTRY, false);
    }
    script.call(ENTRY, DISPATCH);
    let found = rows(&script.end());
    let depths: Vec<_> = found.iter().map(|row| (row.function, row.depth, row.flags)).collect();
    assert_eq!(depths[..2], [(ENTRY, 0, BEGIN_TRUNCATED), (DISPATCH, 1, 0)]);
    assert_eq!(depths[2..6], [(ENTRY, 0, 0), (DISPATCH, 1, 0)].repeat(2));
    assert_eq!((found[2].own, found[2].total), (6, 8));
}

/// Tracing ends in what the kernel calls, and begins in something else that it calls; then it goes back.
fn stop(script: &mut Script, back: u64) {
    script.call(ENTRY, DISPATCH).block(DISPATCH, 2, BlockKind::Interrupted, 0).stopped(DISPATCH + 2);
    script.enabled(INTERRUPT + 8, false).ret(INTERRUPT + 8, EXIT + 4).ret(EXIT + 4, ENTRY + 4).far(ENTRY + 4, back);
}

#[test]
fn a_program_goes_on_where_its_kernel_does_so_elsewhere_than_where_tracing_ended() {
    let mut script = Script::at(WORK);
    script.far(WORK, ENTRY);
    stop(&mut script, WORK + 2);
    script.call(WORK + 2, LEAF).ret(LEAF, WORK + 6).ret(WORK + 6, MAIN + 4);
    script.call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    let found = rows(&script.end());
    let told: Vec<_> = found.iter().map(|row| (row.function, row.parent, row.depth, row.flags)).collect();
    let (begun, ended) = (BEGIN_TRUNCATED, END_TRUNCATED);
    let before = [(WORK, NO_PARENT, 0, begun), (ENTRY, 0, 1, ended), (DISPATCH, 1, 2, ended)];
    // What the kernel had called when tracing began is known as far as it came back.
    let behind = [(ENTRY, NO_PARENT, 0, begun), (EXIT, 3, 1, begun), (INTERRUPT, 4, 2, begun)];
    // The program's caller lies around two stretches: it begins where it is found.
    let last = [(LEAF, 0, 1, 0), (MAIN, NO_PARENT, 0, begun | ended), (LEAF, 7, 1, ended)];
    assert_eq!(told, [&before[..], &behind, &last].concat());
    assert_eq!((found[0].own, found[0].total), (2 + 4 + 2, 2 + 4 + 2 + 6 + 6 + 2));
}

#[test]
fn the_end_of_a_signal_may_go_on_elsewhere_as_well() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).interrupted(WORK + 3, VECTOR).far(VECTOR, HANDLER).ret(HANDLER, RESTORER);
    script.far(RESTORER, ENTRY);
    stop(&mut script, WORK + 3);
    script.ret(WORK + 3, MAIN + 4).call(MAIN + 4, LEAF);
    let found = rows(&script.end());
    let whole = |row: &&Row| row.flags & (BEGIN_TRUNCATED | END_TRUNCATED) == 0;
    let told: Vec<_> = found.iter().filter(whole).map(|row| (row.function, row.parent, row.flags)).collect();
    let (vector, handler) = ((function(VECTOR), 1, ASYNCHRONOUS), (HANDLER, 1, ASYNCHRONOUS));
    assert_eq!(told, [(WORK, 0, 0), vector, handler, (function(RESTORER), 1, TAIL_CALL)]);
}

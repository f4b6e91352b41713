//! Calls of which very many are open end as those of which few are, and no look at each of them is needed for it.

use crate::functions::Functions;
use pt_calls::{Calls, Trace, ASYNCHRONOUS, UNWOUND};
use pt_flow::{Block, BlockKind, DisableKind, Sink};
use pt_image::{Place, Symbols};
use std::cell::Cell;
use std::ops::Range;

const MANY: usize = 1000;
const SETJMP: u64 = 0x100;
const LONGJMP: u64 = 0x200;
const MAIN: u64 = 0x2000;
const WORK: u64 = 0x2100;
const LEAF: u64 = 0x2200;
const HANDLER: u64 = 0x2300;
/// A landing pad of `WORK` for calls in even sixteens of bytes, and what is no pad.
const PAD: u64 = WORK + 0x40;
const NO_PAD: u64 = WORK + 0x48;

/// Counts how often it is asked where exceptions go on.
#[derive(Clone, Copy)]
struct Asked<'c>(&'c Cell<usize>);

impl Symbols for Asked<'_> {
    fn place(&self, epoch: u32, address: u64) -> Place {
        Functions { divided: true }.place(epoch, address)
    }

    fn caught_at(&self, epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        self.0.set(self.0.get() + 1);
        Functions { divided: true }.caught_at(epoch, pad)
    }
}

struct Script<'c>(Calls<Asked<'c>>);

impl<'c> Script<'c> {
    /// `MAIN` calls `WORK`, which calls itself from `at` on and on.
    fn deep(asked: &'c Cell<usize>, at: u64) -> Self {
        let mut script = Script(Calls::new(Asked(asked)));
        script.0.enabled(MAIN, false, 1);
        script.call(MAIN, WORK);
        (1..MANY).for_each(|_| script.call(at, WORK));
        script
    }

    /// Two instructions, of which the last one is a branch.
    fn branch(&mut self, start: u64, kind: BlockKind, target: u64) {
        let (last, end) = (start + 1, start + 2);
        let block = Block { id: u32::MAX, start, last, end, instructions: 2, kind, epoch: 0, target, lengths: &[1, 1] };
        self.0.block(&block, 1);
    }

    /// A branch, and what it leads to.
    fn go(&mut self, start: u64, kind: BlockKind, target: u64) {
        self.branch(start, kind, target);
        self.branch(target, BlockKind::Linear, 0);
    }

    fn call(&mut self, start: u64, target: u64) {
        self.go(start, BlockKind::Call, target);
    }

    fn ret(&mut self, start: u64, target: u64) {
        self.go(start, BlockKind::Return, target);
    }

    /// Ends where `LEAF` is called from `start` on.
    fn end(mut self, start: u64) -> Trace {
        self.call(start, LEAF);
        self.0.finish()
    }
}

/// How many calls have these flags.
fn count(trace: &Trace, flags: u8) -> usize {
    trace.records.flags.iter().filter(|&&known| known & flags != 0).count()
}

/// The depth of the call that began last.
fn last_depth(trace: &Trace) -> u32 {
    trace.records.depth[trace.records.len() - 1]
}

#[test]
fn a_return_ends_the_call_that_waits_for_it_however_far_up() {
    let asked = Cell::default();
    let mut script = Script::deep(&asked, WORK + 0x20);
    // Nobody waits for these: what runs goes on.
    (0..50).for_each(|_| script.ret(NO_PAD, NO_PAD));
    script.call(WORK, LEAF);
    script.ret(LEAF, MAIN + 2);
    let trace = script.end(MAIN + 2);
    assert_eq!((count(&trace, UNWOUND), last_depth(&trace)), (MANY, 1));
}

#[test]
fn an_exception_goes_on_in_the_call_that_its_pad_is_for_however_far_up() {
    let asked = Cell::default();
    let mut script = Script::deep(&asked, WORK + 0x20);
    (0..MANY).for_each(|_| script.call(WORK + 0x30, WORK));
    script.call(WORK + 0x30, LEAF);
    script.ret(LEAF, PAD);
    let trace = script.end(PAD);
    // The innermost call that called from there.
    assert_eq!((count(&trace, UNWOUND), last_depth(&trace)), (MANY + 2, MANY as u32));
    assert_eq!(asked.get(), 1);
}

#[test]
fn where_an_exception_goes_on_is_asked_once_however_many_calls_its_pad_is_not_for() {
    let asked = Cell::default();
    let mut script = Script::deep(&asked, WORK + 0x30);
    for _ in 0..50 {
        script.call(WORK + 0x30, LEAF);
        script.ret(LEAF, PAD);
    }
    let trace = script.end(PAD);
    assert_eq!((count(&trace, UNWOUND), asked.get()), (50, 50));
}

#[test]
fn what_was_interrupted_goes_on_however_many_interruptions_are_inside() {
    let asked = Cell::default();
    let mut script = Script::deep(&asked, WORK + 0x20);
    script.0.interrupt(WORK, HANDLER, 1);
    script.branch(HANDLER, BlockKind::Linear, 0);
    for _ in 0..MANY {
        script.0.interrupt(HANDLER + 2, HANDLER, 1);
        script.branch(HANDLER, BlockKind::Linear, 0);
    }
    script.0.disabled(DisableKind::Asynchronous, HANDLER, None, 1);
    script.0.enabled(WORK, false, 1);
    let trace = script.end(WORK);
    assert_eq!((count(&trace, ASYNCHRONOUS), count(&trace, UNWOUND)), (MANY + 1, MANY));
    assert_eq!(last_depth(&trace), MANY as u32 + 1);
}

#[test]
fn longjmp_goes_to_its_setjmp_however_many_are_inside() {
    let asked = Cell::default();
    let mut script = Script::deep(&asked, WORK + 0x20);
    let set = |script: &mut Script<'_>, at: u64| {
        script.call(at, SETJMP);
        script.ret(SETJMP, at + 2);
    };
    set(&mut script, WORK + 0x80);
    for _ in 0..MANY {
        script.call(WORK + 0x82, WORK);
        set(&mut script, WORK + 0x90);
        set(&mut script, WORK + 0xa0);
    }
    script.call(WORK + 0x92, LONGJMP);
    script.go(LONGJMP, BlockKind::IndirectJump, WORK + 0x82);
    let trace = script.end(WORK + 0x82);
    assert_eq!((count(&trace, UNWOUND), last_depth(&trace)), (MANY + 1, MANY as u32 + 1));
}

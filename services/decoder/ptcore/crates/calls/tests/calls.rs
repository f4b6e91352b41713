//! What becomes of the stack of calls, told as the flow layer tells it.

use pt_calls::{Calls, Trace, ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, TAIL_CALL, UNWOUND};
use pt_flow::{Block, BlockKind, DisableKind, Loss, Reason, Sink};
use pt_image::{Place, Role, Symbols};
use std::ops::Range;

pub const MAIN: u64 = 0x1000;
pub const WORK: u64 = 0x2000;
/// Where exceptions go on that come out of the call that stands first in it.
const WORK_PAD: u64 = WORK + 50;
pub const LEAF: u64 = 0x3000;
const SETJMP: u64 = 0x4000;
const LONGJMP: u64 = 0x5000;
/// What calls the other one, and is come back to by itself.
const SIGSETJMP: u64 = 0x1_3000;
pub const HANDLER: u64 = 0x6000;
pub const RESTORER: u64 = 0x7000;
/// The page of stubs, and that of what returns for others.
const STUBS: u64 = 0x0;
const RETURNS: u64 = 0x8000;
pub const BARE: u64 = 0x9000;
/// Where programs begin.
pub const START: u64 = 0x1_0000;
const SWITCH: u64 = 0x1_1000;
/// Where a restartable sequence goes on that was interrupted.
const ABORTED: u64 = 0x1_2000;

/// Every 0x1000 bytes are a function; above 0x9000 nothing divides the code.
pub struct Pages;

impl Symbols for Pages {
    fn place(&self, _epoch: u32, address: u64) -> Place {
        let bare = (BARE..0x1_0000).contains(&address);
        let start = if bare { BARE } else { address & !0xfff };
        Place {
            space: 1,
            function: (!bare).then_some((address >> 12) as u32 & 0x1f | ((address >> 63) as u32) << 5),
            start,
            end: if bare { 0xffff } else { start + 0x1000 },
            bias: 0,
            entry: !bare && address == start,
            role: match start {
                SETJMP | SIGSETJMP => Role::SetJump,
                LONGJMP => Role::LongJump,
                STUBS => Role::Stub,
                RETURNS => Role::ReturnStub,
                START => Role::Start,
                SWITCH => Role::Switch,
                _ => Role::Plain,
            },
        }
    }

    fn caught_at(&self, _epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        let returns = WORK + 4..WORK + 5;
        (pad == WORK_PAD).then(|| vec![returns])
    }

    fn restarts_at(&self, _epoch: u32, address: u64) -> bool {
        address == ABORTED
    }
}

pub struct Script {
    pub calls: Calls<Pages>,
    pub tsc: u64,
}

pub fn block(start: u64, count: u32, kind: BlockKind, target: u64) -> Block<'static> {
    let end = start + u64::from(count);
    let lengths = &[1; 64][..count as usize];
    let id = start as u32 & 0x1_ffff | (start >> 63 << 17) as u32;
    Block { id, start, last: end - 1, end, instructions: count, kind, epoch: 1, target, lengths }
}

impl Script {
    /// Begins in the midst of a function.
    pub fn at(ip: u64) -> Script {
        let mut script = Script { calls: Calls::new(Pages), tsc: 100 };
        script.calls.enabled(ip, false, 100);
        script
    }

    /// A block of `count` instructions of one byte each; each takes a tick.
    pub fn block(&mut self, start: u64, count: u32, kind: BlockKind, target: u64) -> &mut Self {
        self.tsc += u64::from(count);
        self.calls.block(&block(start, count, kind, target), self.tsc);
        self
    }

    pub fn call(&mut self, start: u64, target: u64) -> &mut Self {
        self.block(start, 4, BlockKind::Call, target)
    }

    pub fn ret(&mut self, start: u64, target: u64) -> &mut Self {
        self.block(start, 2, BlockKind::Return, target)
    }

    pub fn jump(&mut self, start: u64, target: u64) -> &mut Self {
        self.block(start, 3, BlockKind::IndirectJump, target)
    }

    pub fn system_call(&mut self, start: u64) -> &mut Self {
        self.block(start, 2, BlockKind::Far, 0);
        self.calls.disabled(DisableKind::Synchronous, start + 1, None, self.tsc);
        self
    }

    pub fn enabled(&mut self, ip: u64, resumed: bool) -> &mut Self {
        self.calls.enabled(ip, resumed, self.tsc);
        self
    }

    pub fn stopped(&mut self, at: u64) -> &mut Self {
        self.calls.disabled(DisableKind::Asynchronous, at, None, self.tsc);
        self
    }

    pub fn end(mut self) -> Trace {
        self.calls.finish()
    }
}

pub struct Row {
    pub function: u64,
    pub depth: u32,
    pub parent: u64,
    pub flags: u8,
    pub own: u64,
    pub total: u64,
}

pub fn rows(trace: &Trace) -> Vec<Row> {
    let calls = &trace.records;
    (0..calls.len())
        .map(|row| Row {
            function: trace.functions[calls.function[row] as usize].address,
            depth: calls.depth[row],
            parent: calls.parent[row],
            flags: calls.flags[row],
            own: calls.instructions[row],
            total: calls.instructions_total[row],
        })
        .collect()
}

#[test]
fn a_call_ends_with_its_return() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).ret(LEAF, WORK + 4).ret(WORK + 4, MAIN + 4).jump(MAIN + 4, MAIN);
    let trace = script.end();
    let rows = rows(&trace);
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, WORK, LEAF]);
    assert_eq!(rows.iter().map(|row| row.parent).collect::<Vec<_>>(), [NO_PARENT, 0, 1]);
    assert_eq!(rows.iter().map(|row| row.depth).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(rows.iter().map(|row| row.own).collect::<Vec<_>>(), [7, 6, 2]);
    assert_eq!(rows.iter().map(|row| row.total).collect::<Vec<_>>(), [15, 8, 2]);
    assert_eq!(rows.iter().map(|row| row.flags).collect::<Vec<_>>(), [BEGIN_TRUNCATED | END_TRUNCATED, 0, 0]);
    assert_eq!(trace.records.start_tsc, [100, 104, 108]);
    assert_eq!(trace.records.end_tsc[1..], [112, 110]);
    assert_eq!(trace.records.call_address, [0, MAIN + 3, WORK + 3]);
}

#[test]
fn what_runs_on_into_the_next_function_is_a_tail_call_of_it() {
    let mut script = Script::at(MAIN);
    for _ in 0..3 {
        script.call(MAIN, WORK).jump(WORK, LEAF - 2).block(LEAF - 2, 5, BlockKind::Return, MAIN + 4);
        script.jump(MAIN + 4, MAIN);
    }
    let trace = script.end();
    let rows = rows(&trace);
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>()[..3], [MAIN, WORK, LEAF]);
    assert_eq!(rows.iter().map(|row| row.flags).collect::<Vec<_>>()[1..3], [0, TAIL_CALL]);
    assert_eq!(rows.iter().map(|row| (row.parent, row.depth)).collect::<Vec<_>>()[1..3], [(0, 1), (0, 1)]);
    assert_eq!(rows.iter().map(|row| row.own).collect::<Vec<_>>()[1..3], [5, 3]);
    assert_eq!(trace.records.call_address[2], LEAF);
    let sums = trace.functions.iter().map(|one| (one.address, one.calls, one.self_instructions));
    assert_eq!(sums.collect::<Vec<_>>()[1..], [(WORK, 3, 15), (LEAF, 3, 9)]);
}

#[test]
fn what_runs_on_behind_a_call_into_the_next_function_is_a_tail_call_of_it() {
    let mut script = Script::at(MAIN);
    for _ in 0..2 {
        script.call(MAIN, WORK).block(WORK, 3, BlockKind::Jump, LEAF - 4).call(LEAF - 4, HANDLER).ret(HANDLER, LEAF);
        script.call(LEAF, HANDLER).ret(HANDLER, LEAF + 4).ret(LEAF + 4, MAIN + 4).jump(MAIN + 4, MAIN);
    }
    let trace = script.end();
    let found: Vec<_> = rows(&trace).iter().map(|row| (row.function, row.parent, row.flags)).collect();
    assert_eq!(found[1..5], [(WORK, 0, 0), (HANDLER, 1, 0), (LEAF, 0, TAIL_CALL), (HANDLER, 3, 0)]);
    assert_eq!(found[5..], [(WORK, 0, 0), (HANDLER, 5, 0), (LEAF, 0, TAIL_CALL), (HANDLER, 7, 0)]);
    assert_eq!((rows(&trace)[1].own, rows(&trace)[3].own, trace.records.call_address[3]), (7, 6, LEAF));
}

#[test]
fn recursion_counts_once_in_the_total_of_its_function() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).block(WORK, 2, BlockKind::CondTaken, WORK + 0x10).call(WORK + 0x10, WORK);
    script.block(WORK, 2, BlockKind::CondNotTaken, WORK + 2).ret(WORK + 2, WORK + 0x14).ret(WORK + 0x14, MAIN + 4);
    script.jump(MAIN + 4, MAIN);
    let trace = script.end();
    let work = trace.functions.iter().find(|function| function.address == WORK).unwrap();
    assert_eq!((work.calls, work.self_instructions, work.total_instructions), (2, 12, 12));
}

#[test]
fn a_jump_to_another_function_takes_the_place_of_the_call() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).jump(WORK, LEAF).ret(LEAF, MAIN + 4).jump(MAIN + 4, MAIN);
    let rows = rows(&script.end());
    assert_eq!((rows[2].function, rows[2].parent, rows[2].flags), (LEAF, 0, TAIL_CALL));
    assert_eq!((rows[1].own, rows[1].total, rows[1].flags), (3, 3, 0));
    assert_eq!(rows[0].own, 7);
}

#[test]
fn a_return_out_of_the_trace_finds_the_caller() {
    let mut script = Script::at(LEAF + 8);
    script
        .ret(LEAF + 8, WORK + 4)
        .call(WORK + 4, LEAF)
        .ret(LEAF, WORK + 8)
        .ret(WORK + 8, MAIN + 4)
        .jump(MAIN + 4, MAIN);
    let rows = rows(&script.end());
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, WORK, LEAF, LEAF]);
    assert_eq!(rows.iter().map(|row| row.depth).collect::<Vec<_>>(), [0, 1, 2, 2]);
    assert_eq!(rows.iter().map(|row| row.parent).collect::<Vec<_>>(), [NO_PARENT, 0, 1, 1]);
    assert_eq!(rows[0].total, 2 + 6 + 2 + 3);
}

#[test]
fn longjmp_unwinds_to_the_call_of_setjmp() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, SETJMP).ret(SETJMP, MAIN + 4).call(MAIN + 4, WORK).call(WORK, LONGJMP);
    script.jump(LONGJMP, MAIN + 4).call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    let rows = rows(&script.end());
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, SETJMP, WORK, LONGJMP, LEAF]);
    assert_eq!([rows[2].flags, rows[3].flags], [UNWOUND, UNWOUND]);
    assert_eq!((rows[4].depth, rows[4].parent), (1, 0));
}

#[test]
fn a_longjmp_into_what_called_setjmp_for_its_caller_is_another_call_of_that() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, SIGSETJMP).call(SIGSETJMP, SETJMP).ret(SETJMP, SIGSETJMP + 4);
    script.block(SIGSETJMP + 4, 3, BlockKind::Jump, LEAF).ret(LEAF, MAIN + 4);
    for _ in 0..2 {
        script.call(MAIN + 4, WORK).call(WORK, LONGJMP).jump(LONGJMP, SIGSETJMP + 4);
        script.block(SIGSETJMP + 4, 3, BlockKind::Jump, LEAF).ret(LEAF, MAIN + 4);
    }
    script.jump(MAIN + 4, MAIN);
    let found: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.parent, row.flags)).collect();
    assert_eq!(found[1..4], [(SIGSETJMP, 0, 0), (SETJMP, 1, 0), (LEAF, 0, TAIL_CALL)]);
    let turn = |work| [(WORK, 0, UNWOUND), (LONGJMP, work, UNWOUND), (SIGSETJMP, 0, 0), (LEAF, 0, TAIL_CALL)];
    assert_eq!(found[4..], [turn(4), turn(8)].concat());
}

#[test]
fn longjmp_lands_in_the_innermost_call_that_it_did_not_land_in_since_its_setjmp() {
    let mut script = Script::at(MAIN);
    let set = |script: &mut Script, from: u64| {
        script.call(from, WORK).call(WORK, SETJMP).ret(SETJMP, WORK + 4);
    };
    let land = |script: &mut Script| {
        script.block(WORK + 4, 2, BlockKind::CondTaken, WORK + 0x10).call(WORK + 0x10, LONGJMP);
        script.jump(LONGJMP, WORK + 4);
    };
    set(&mut script, MAIN);
    script.block(WORK + 4, 2, BlockKind::CondNotTaken, WORK + 6);
    set(&mut script, WORK + 6);
    // Caught, and thrown again: what is around catches it, as often as need be.
    (0..3).for_each(|_| land(&mut script));
    // There `setjmp` is called again.
    script.block(WORK + 4, 2, BlockKind::CondNotTaken, WORK + 6).block(WORK + 6, 1, BlockKind::Jump, WORK);
    script.call(WORK, SETJMP).ret(SETJMP, WORK + 4).block(WORK + 4, 2, BlockKind::CondNotTaken, WORK + 6);
    set(&mut script, WORK + 6);
    (0..2).for_each(|_| land(&mut script));
    script.block(WORK + 4, 2, BlockKind::CondNotTaken, WORK + 6).call(WORK + 6, LEAF).ret(LEAF, WORK + 10);
    let all = rows(&script.end());
    let found = |function| all.iter().filter(|row| row.function == function).map(|row| row.depth).collect::<Vec<_>>();
    assert_eq!((found(WORK), found(LONGJMP), found(LEAF)), (vec![1, 2, 2], vec![3, 3, 2, 3, 3], vec![2]));
}

#[test]
fn an_exception_returns_into_the_call_that_catches() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).ret(LEAF, MAIN + 0x40).call(MAIN + 0x40, LEAF);
    script.ret(LEAF, MAIN + 0x44);
    let rows = rows(&script.end());
    assert_eq!([rows[1].flags, rows[2].flags], [UNWOUND, UNWOUND]);
    assert_eq!((rows[3].function, rows[3].parent), (LEAF, 0));
}

#[test]
fn an_exception_goes_on_in_the_call_that_catches_what_comes_out_of_the_one_that_it_made() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, WORK).call(WORK, WORK).jump(WORK, WORK + 20);
    script.call(WORK + 20, LEAF).ret(LEAF, WORK_PAD);
    // Clears up, and lets the exception go on, which comes out of a call that nothing catches for.
    script.call(WORK_PAD, LEAF).jump(LEAF, WORK_PAD).ret(WORK_PAD, MAIN + 4).jump(MAIN + 4, MAIN);
    let trace = script.end();
    let flags: Vec<_> = rows(&trace).iter().map(|row| (row.function, row.depth, row.flags)).collect();
    let [begin, unwound] = [BEGIN_TRUNCATED | END_TRUNCATED, UNWOUND];
    let until_first = [(MAIN, 0, begin), (WORK, 1, 0), (WORK, 2, unwound), (WORK, 3, unwound), (LEAF, 4, unwound)];
    assert_eq!(flags, [&until_first[..], &[(LEAF, 3, unwound)]].concat());
    let totals: Vec<_> = rows(&trace).iter().map(|row| row.total).collect();
    assert_eq!(totals, [33, 26, 20, 9, 2, 3]);
}

#[test]
fn an_unwinder_jumps_into_the_call_that_catches() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).jump(LEAF, MAIN + 0x40).call(MAIN + 0x40, LEAF).ret(LEAF, MAIN + 0x44);
    let found = rows(&script.end());
    assert_eq!([found[1].flags, found[2].flags], [UNWOUND, UNWOUND]);
    assert_eq!((found.len(), found[3].function, found[3].parent, found[3].depth), (4, LEAF, 0, 1));

    // To another call than the innermost one of the function, by a longjmp that no symbol names.
    let mut script = Script::at(MAIN);
    script.call(MAIN, SETJMP).ret(SETJMP, MAIN + 4).call(MAIN + 4, MAIN);
    script.block(MAIN, 3, BlockKind::Jump, MAIN + 8).call(MAIN + 8, WORK).jump(WORK, MAIN + 4);
    script.call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    let found = rows(&script.end());
    assert_eq!((found.len(), found[4].function, found[4].parent, found[4].depth), (5, LEAF, 0, 1));
}

#[test]
fn a_jump_to_where_the_innermost_call_returns_to_is_its_end() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).jump(LEAF, WORK + 4).call(WORK + 4, LEAF).jump(LEAF, WORK + 8);
    script.ret(WORK + 8, MAIN + 4).jump(MAIN + 4, MAIN);
    let found: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.parent, row.flags)).collect();
    assert_eq!(found[1..], [(WORK, 0, 0), (LEAF, 1, 0), (LEAF, 1, 0)]);

    // In one that calls itself it is a jump to a case behind that call.
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, WORK).jump(WORK, WORK + 4).ret(WORK + 4, WORK + 4).ret(WORK + 4, MAIN + 4);
    script.jump(MAIN + 4, MAIN);
    let found: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.parent, row.flags)).collect();
    assert_eq!(found[1..], [(WORK, 0, 0), (WORK, 1, 0)]);

    // A function that begins behind a call which never returns is gone over into.
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).block(WORK, 3, BlockKind::Jump, LEAF - 4).call(LEAF - 4, HANDLER).jump(HANDLER, LEAF);
    script.ret(LEAF, MAIN + 4).jump(MAIN + 4, MAIN);
    let found: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.parent, row.flags)).collect();
    assert_eq!(found[2..], [(HANDLER, 1, 0), (LEAF, 1, TAIL_CALL | UNWOUND)]);
}

#[test]
fn other_jumps_than_those_of_unwinders_are_tail_calls() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).block(LEAF, 3, BlockKind::Jump, MAIN + 0x40).ret(MAIN + 0x40, WORK + 4);
    assert_eq!(rows(&script.end())[3].flags & TAIL_CALL, TAIL_CALL, "a direct one");

    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).jump(LEAF, MAIN).ret(MAIN, WORK + 4);
    assert_eq!(rows(&script.end())[3].flags & TAIL_CALL, TAIL_CALL, "to the entry");

    let mut script = Script::at(BARE);
    script.call(BARE, WORK).call(WORK, LEAF).jump(LEAF, BARE + 0x40).ret(BARE + 0x40, WORK + 4);
    assert_eq!(rows(&script.end())[3].flags & TAIL_CALL, TAIL_CALL, "where nothing divides the code");
}

#[test]
fn what_goes_on_elsewhere_begins_there() {
    // The stack is another one: its calls began when it was come to, not when the recording did.
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).ret(WORK, LEAF + 8).ret(LEAF + 8, HANDLER + 4).jump(HANDLER + 4, HANDLER);
    let trace = script.end();
    let found = rows(&trace);
    assert_eq!(found.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, WORK, HANDLER, LEAF]);
    assert_eq!(trace.records.start_tsc, [100, 104, 106, 106]);
}

#[test]
fn a_retpoline_inside_of_a_function_is_an_indirect_call_or_jump() {
    // 0x20: jmp 0x30; 0x24: call 0x28; 0x28: mov [rsp], rax; ret; 0x30: call 0x24
    let mut script = Script::at(MAIN);
    script.call(MAIN + 0x30, MAIN + 0x24).call(MAIN + 0x24, MAIN + 0x2a).ret(MAIN + 0x2a, WORK);
    script
        .call(WORK, LEAF)
        .ret(LEAF, WORK + 4)
        .ret(WORK + 4, MAIN + 0x34)
        .call(MAIN + 0x34, LEAF)
        .ret(LEAF, MAIN + 0x38);
    let found = rows(&script.end());
    assert_eq!(found.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, WORK, LEAF, LEAF]);
    assert_eq!(found.iter().map(|row| row.parent).collect::<Vec<_>>(), [NO_PARENT, 0, 1, 0]);

    let mut script = Script::at(MAIN);
    script
        .call(MAIN, WORK)
        .call(WORK, WORK + 8)
        .ret(WORK + 8, LEAF)
        .ret(LEAF, MAIN + 4)
        .call(MAIN + 4, LEAF)
        .ret(LEAF, MAIN + 8);
    let found = rows(&script.end());
    assert_eq!(found.iter().map(|row| row.parent).collect::<Vec<_>>(), [NO_PARENT, 0, 0, 0]);
    assert_eq!(found[2].flags, TAIL_CALL);
}

#[test]
fn a_return_thunk_returns_for_who_jumps_to_it() {
    let mut script = Script::at(MAIN);
    script
        .call(MAIN, WORK)
        .block(WORK, 2, BlockKind::Jump, RETURNS)
        .call(RETURNS, RETURNS + 8)
        .ret(RETURNS + 8, MAIN + 4);
    script.call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    let found = rows(&script.end());
    assert_eq!(found.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, WORK, LEAF]);
    assert_eq!(found.iter().map(|row| row.parent).collect::<Vec<_>>(), [NO_PARENT, 0, 0]);
    assert_eq!((found[1].own, found[1].flags), (2 + 4 + 2, 0));
}

#[test]
fn a_signal_is_a_call_of_the_code_it_interrupted() {
    let mut script = Script::at(MAIN);
    script.block(MAIN, 5, BlockKind::Interrupted, 0).stopped(MAIN + 5).enabled(HANDLER, false);
    script.call(HANDLER, LEAF).ret(LEAF, HANDLER + 4).ret(HANDLER + 4, RESTORER + 9);
    script.system_call(RESTORER + 9).enabled(MAIN + 5, false).call(MAIN + 5, LEAF).ret(LEAF, MAIN + 9);
    let rows = rows(&script.end());
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, HANDLER, LEAF, RESTORER, LEAF]);
    assert_eq!((rows[1].flags, rows[1].parent, rows[1].depth), (ASYNCHRONOUS, 0, 1));
    assert_eq!((rows[3].flags, rows[3].parent), (TAIL_CALL, 0));
    assert_eq!((rows[4].parent, rows[4].depth), (0, 1));
}

#[test]
fn a_restartable_sequence_that_was_interrupted_goes_on_where_it_says_and_is_no_signal() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).block(WORK, 5, BlockKind::Interrupted, 0).stopped(WORK + 5).enabled(ABORTED, false);
    script.block(ABORTED, 1, BlockKind::Jump, WORK).call(WORK, LEAF).ret(LEAF, WORK + 4).ret(WORK + 4, MAIN + 4);
    script.call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    let rows = rows(&script.end());
    // Code apart from the function that jumps back into it.
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, WORK, ABORTED, WORK, LEAF, LEAF]);
    assert_eq!(rows[2..4].iter().map(|row| (row.flags, row.parent)).collect::<Vec<_>>(), [(TAIL_CALL, 0); 2]);
    assert_eq!((rows[5].parent, rows[5].depth), (0, 1));
}

#[test]
fn a_signal_in_a_system_call_goes_on_behind_it_or_makes_it_again() {
    for resumes in [MAIN + 0x22, MAIN + 0x21] {
        let mut script = Script::at(MAIN);
        script.system_call(MAIN + 0x20).enabled(HANDLER, false).ret(HANDLER, RESTORER + 9);
        script.system_call(RESTORER + 9).enabled(resumes, false).call(MAIN + 0x30, LEAF);
        script.ret(LEAF, MAIN + 0x34);
        let rows = rows(&script.end());
        assert_eq!(rows.last().map(|row| (row.function, row.parent)), Some((LEAF, 0)));
    }
}

#[test]
fn another_program_is_no_handler_of_what_called_for_it() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).system_call(WORK).enabled(START, false).call(START, LEAF).ret(LEAF, START + 4);
    script.jump(START + 4, START + 8).jump(START + 8, START);
    let rows = rows(&script.end());
    let places: Vec<_> = rows.iter().map(|row| (row.function, row.depth, row.flags)).collect();
    assert_eq!(places[1], (WORK, 1, END_TRUNCATED));
    assert_eq!(places[2..], [(START, 0, BEGIN_TRUNCATED | END_TRUNCATED), (LEAF, 1, 0)]);
}

#[test]
fn a_system_call_changes_nothing() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).system_call(WORK).enabled(WORK + 2, true).ret(WORK + 2, MAIN + 4).jump(MAIN + 4, MAIN);
    assert_eq!(rows(&script.end()).len(), 2);
}

#[test]
fn a_system_call_of_32_bits_goes_on_behind_the_other_one_that_stands_behind_it() {
    // SYSENTER, INT 80H, and a name for what is behind, or code that nothing divides.
    for (sysenter, landing) in [(WORK - 4, WORK), (BARE + 0x20, BARE + 0x24)] {
        let mut script = Script::at(MAIN);
        let begin = sysenter & !0xfff;
        script.call(MAIN, begin).jump(begin, sysenter).system_call(sysenter).enabled(landing, false);
        script.ret(landing, MAIN + 4).jump(MAIN + 4, MAIN);
        let found = rows(&script.end());
        assert!(found.iter().all(|row| row.flags & ASYNCHRONOUS == 0));
        assert_eq!(found[1..].iter().map(|row| row.own).sum::<u64>(), 3 + 2 + 2);
    }
}

#[test]
fn a_probe_of_returns_is_passed_on_the_way_to_the_caller() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).ret(LEAF, BARE).stopped(BARE).enabled(WORK + 4, false);
    script.call(WORK + 4, LEAF).ret(LEAF, WORK + 8).ret(WORK + 8, BARE).stopped(BARE).enabled(MAIN + 4, false);
    script.jump(MAIN + 4, MAIN);
    let found = rows(&script.end());
    let told: Vec<_> = found.iter().map(|row| (row.function, row.parent, row.flags & !BEGIN_TRUNCATED)).collect();
    assert_eq!(told, [(MAIN, NO_PARENT, END_TRUNCATED), (WORK, 0, 0), (LEAF, 1, 0), (LEAF, 1, 0)]);
}

#[test]
fn a_thread_goes_on_where_it_was_left_whoever_ran_meanwhile() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).stopped(WORK).enabled(WORK, false).call(WORK, LEAF).ret(LEAF, WORK + 4);
    script.ret(WORK + 4, MAIN + 4).jump(MAIN + 4, MAIN);
    let found = rows(&script.end());
    assert_eq!(
        found.iter().map(|row| (row.function, row.flags & ASYNCHRONOUS)).collect::<Vec<_>>(),
        [(MAIN, 0), (WORK, 0), (LEAF, 0)]
    );
}

#[test]
fn a_loss_ends_all_calls() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).jump(WORK, WORK);
    let loss = Loss { offset: 7, size: 9, reason: Reason::NoCode, address: WORK, epoch: 1, tsc0: 107, tsc1: 150 };
    script.calls.loss(&loss);
    script.tsc = 150;
    script.enabled(LEAF + 8, false).ret(LEAF + 8, MAIN + 4).jump(MAIN + 4, MAIN);
    let trace = script.end();
    let rows = rows(&trace);
    assert_eq!([rows[0].flags, rows[1].flags], [BEGIN_TRUNCATED | END_TRUNCATED, END_TRUNCATED]);
    assert_eq!(trace.records.end_tsc[..2], [107, 107]);
    assert_eq!((rows[2].function, rows[2].depth, rows[3].function, rows[3].depth), (MAIN, 0, LEAF, 1));
    assert_eq!((trace.losses[0].offset, trace.losses[0].size, trace.losses[0].end_tsc), (7, 9, 150));
}

/// As a goroutine does that waits, while another one of the same functions goes on, or one begins.
#[test]
fn what_a_switch_of_stacks_leads_to_has_none_of_the_callers_around_it() {
    for (jumps, from, target) in [
        (true, LONGJMP, WORK + 4),
        (true, LONGJMP, LEAF),
        (true, SWITCH, WORK + 4),
        (true, SWITCH, LEAF),
        // To where it was called: others of the same functions wait there.
        (false, SWITCH, WORK + 4),
        (false, SWITCH, LEAF),
    ] {
        let mut script = Script::at(MAIN);
        script.call(MAIN, WORK).call(WORK, SWITCH);
        if from == LONGJMP {
            // One calls another, as `siglongjmp` does.
            script.call(SWITCH, LONGJMP).call(LONGJMP, LONGJMP);
        }
        if jumps { script.jump(from, target) } else { script.ret(from, target) }
            .ret(target, MAIN + 4)
            .jump(MAIN + 4, MAIN);
        let trace = script.end();
        let told: Vec<_> = rows(&trace).iter().map(|row| (row.function, row.parent, row.flags)).collect();
        let open = told.len() - 2;
        assert!(told[..open].iter().all(|(.., flags)| flags & END_TRUNCATED != 0));
        let both = BEGIN_TRUNCATED | END_TRUNCATED;
        let resumed = (target & !0xfff, open as u64, BEGIN_TRUNCATED);
        assert_eq!(told[open..], [(MAIN, NO_PARENT, both), resumed], "{jumps} {from:x} to {target:x}");
    }
}

/// Who called it is not known, but that it waits now.
#[test]
fn the_outermost_call_that_switches_stacks_was_not_called_by_what_goes_on() {
    for tail_call in [false, true] {
        let mut script = Script::at(if tail_call { LEAF } else { SWITCH });
        if tail_call {
            script.jump(LEAF, SWITCH);
        }
        script.ret(SWITCH, WORK + 4).ret(WORK + 4, MAIN + 4).jump(MAIN + 4, MAIN);
        let told: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.depth)).collect();
        let roots = if tail_call { vec![(LEAF, 0), (SWITCH, 0)] } else { vec![(SWITCH, 0)] };
        assert_eq!(told, [roots, vec![(MAIN, 0), (WORK, 1)]].concat());
    }
}

/// As a panic that a goroutine recovers from.
#[test]
fn a_far_jump_that_nothing_switches_by_unwinds() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).call(WORK, LEAF).call(LEAF, LONGJMP).jump(LONGJMP, MAIN + 4).jump(MAIN + 4, MAIN);
    let depths: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.depth, row.own)).collect();
    assert_eq!(depths, [(MAIN, 0, 7), (WORK, 1, 4), (LEAF, 2, 4), (LONGJMP, 3, 3)]);
}

#[test]
fn calls_divide_code_without_symbols() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, 0x9500).call(0x9500, 0x9600).ret(0x9600, 0x9504).ret(0x9504, MAIN + 4);
    script.jump(MAIN + 4, MAIN);
    let rows = rows(&script.end());
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, 0x9500, 0x9600]);
    assert_eq!(rows.iter().map(|row| row.depth).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_call_inside_a_function_is_none() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, MAIN + 0x80).ret(MAIN + 0x80, MAIN + 4).call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    assert_eq!(rows(&script.end()).iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, LEAF]);
}

#[test]
fn a_call_of_what_stands_behind_it_is_one_only_of_another_function() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).block(WORK, 3, BlockKind::Jump, LEAF - 4).call(LEAF - 4, LEAF).call(LEAF, HANDLER);
    script.ret(HANDLER, LEAF + 4).stopped(LEAF + 4);
    let found: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.parent, row.flags)).collect();
    let [open, begin] = [END_TRUNCATED, BEGIN_TRUNCATED | END_TRUNCATED];
    assert_eq!(found, [(MAIN, NO_PARENT, begin), (WORK, 0, open), (LEAF, 1, open), (HANDLER, 2, 0)]);

    // Code that reads its own address.
    for start in [MAIN, BARE] {
        let mut script = Script::at(MAIN);
        script.call(MAIN, WORK).ret(WORK, MAIN + 4).block(MAIN + 4, 3, BlockKind::Jump, start + 8);
        script.call(start + 8, start + 12).call(start + 12, LEAF).ret(LEAF, start + 16);
        let functions: Vec<_> = rows(&script.end()).iter().map(|row| row.function).collect();
        assert_eq!(functions, if start == MAIN { vec![MAIN, WORK, LEAF] } else { vec![MAIN, WORK, BARE, LEAF] });
    }
}

#[test]
fn between_two_packets_time_passes_evenly_over_the_instructions() {
    let mut script = Script::at(MAIN);
    // Four blocks that one packet says are over at 180: 16 instructions in 80 ticks.
    for (start, count, kind, target) in [
        (MAIN, 4, BlockKind::Call, WORK),
        (WORK, 2, BlockKind::Return, MAIN + 4),
        (MAIN + 4, 4, BlockKind::Call, WORK),
        (WORK, 2, BlockKind::Return, MAIN + 8),
        (MAIN + 8, 4, BlockKind::Jump, MAIN),
    ] {
        script.tsc = 180 - u64::from(count);
        script.block(start, count, kind, target);
    }
    script.calls.disabled(DisableKind::Asynchronous, MAIN, None, 180);
    script.calls.enabled(MAIN, true, 1000);
    script.tsc = 1000;
    script.call(MAIN, WORK).ret(WORK, MAIN + 4);
    let trace = script.end();
    assert_eq!(trace.records.start_tsc, [100, 120, 150, 1004]);
    assert_eq!(trace.records.end_tsc, [1006, 130, 160, 1006]);
    let work = trace.functions.iter().find(|function| function.address == WORK).unwrap();
    assert_eq!((work.self_ticks, work.total_ticks), (22, 22));
}

#[test]
fn calls_of_a_stream_without_times_have_none_whatever_ran_before() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).ret(WORK, MAIN + 4);
    let Script { mut calls, .. } = script;
    assert_eq!(calls.finish().records.end_tsc, [106, 106]);
    calls.enabled(MAIN, false, 0);
    calls.block(&block(MAIN, 4, BlockKind::Call, WORK), 0);
    calls.block(&block(WORK, 2, BlockKind::Return, MAIN + 4), 0);
    let trace = calls.finish();
    assert_eq!((&trace.records.start_tsc[..], &trace.records.end_tsc[..]), (&[0, 0][..], &[0, 0][..]));
    assert!(trace.functions.iter().all(|function| (function.self_ticks, function.total_ticks) == (0, 0)));
}

#[test]
fn a_call_through_a_stub_is_a_call_of_what_it_leads_to() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, STUBS).jump(STUBS, LEAF).ret(LEAF, MAIN + 4).ret(MAIN + 4, 0x9000);
    let trace = script.end();
    let rows: Vec<_> =
        trace.records.function.iter().map(|&function| trace.functions[function as usize].address).collect();
    assert_eq!(rows, [MAIN, LEAF]);
    assert_eq!(trace.records.call_address[1], MAIN + 3);
    assert_eq!(trace.records.target[1], LEAF);
    assert_eq!(trace.records.flags[1] & TAIL_CALL, 0);
    // The stub's instructions are the caller's.
    assert_eq!(trace.records.instructions, [4 + 3 + 2, 2]);
    assert!(trace.functions.iter().all(|function| function.address != STUBS));
}

#[test]
fn a_stub_that_leads_to_the_resolver_first() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, STUBS).jump(STUBS, STUBS + 0x10).jump(STUBS + 0x10, WORK).jump(WORK, LEAF).ret(LEAF, MAIN + 4);
    script.ret(MAIN + 4, 0x9000);
    let trace = script.end();
    let rows: Vec<_> =
        trace.records.function.iter().map(|&function| trace.functions[function as usize].address).collect();
    assert_eq!(rows, [MAIN, WORK, LEAF]);
    assert_eq!((trace.records.flags[1] & TAIL_CALL, trace.records.flags[2] & TAIL_CALL), (0, TAIL_CALL));
}

#[test]
fn a_tail_call_through_a_stub_is_one_of_what_it_leads_to() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, WORK).jump(WORK, STUBS).jump(STUBS, LEAF).ret(LEAF, MAIN + 4).ret(MAIN + 4, 0x9000);
    let trace = script.end();
    let rows: Vec<_> =
        trace.records.function.iter().map(|&function| trace.functions[function as usize].address).collect();
    assert_eq!(rows, [MAIN, WORK, LEAF]);
    assert_eq!(trace.records.flags[2] & TAIL_CALL, TAIL_CALL);
    assert_eq!(trace.records.call_address[2], WORK + 3);
}

#[test]
fn a_trace_that_begins_in_a_stub_has_the_stub_too() {
    let mut script = Script::at(STUBS);
    script.jump(STUBS, LEAF).ret(LEAF, MAIN + 4).ret(MAIN + 4, 0x9000);
    let trace = script.end();
    let rows: Vec<_> =
        trace.records.function.iter().map(|&function| trace.functions[function as usize].address).collect();
    assert!(rows.contains(&STUBS) && rows.contains(&LEAF), "{rows:x?}");
}

#[test]
fn a_stub_that_comes_back_at_once_is_no_call() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, STUBS).ret(STUBS, MAIN + 4).call(MAIN + 4, LEAF).ret(LEAF, MAIN + 8);
    let rows = rows(&script.end());
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, LEAF]);
    assert_eq!(rows[0].own, 4 + 2 + 4);
}

#[test]
fn a_retpoline_is_a_call_of_where_it_returns_to() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, STUBS).call(STUBS, STUBS + 0x10).ret(STUBS + 0x10, LEAF).ret(LEAF, MAIN + 4);
    script.jump(MAIN + 4, MAIN);
    let rows = rows(&script.end());
    assert_eq!(rows.iter().map(|row| (row.function, row.own)).collect::<Vec<_>>(), [(MAIN, 4 + 4 + 2 + 3), (LEAF, 2)]);
}

#[test]
fn a_signal_in_a_stub_returns_to_it() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, STUBS).block(STUBS, 1, BlockKind::Interrupted, 0).stopped(STUBS + 1).enabled(HANDLER, false);
    script.ret(HANDLER, RESTORER + 9).system_call(RESTORER + 9).enabled(STUBS + 1, false);
    script.jump(STUBS + 1, LEAF).ret(LEAF, MAIN + 4).jump(MAIN + 4, MAIN);
    let rows = rows(&script.end());
    assert_eq!(rows.iter().map(|row| row.function).collect::<Vec<_>>(), [MAIN, STUBS, HANDLER, RESTORER, LEAF]);
    assert_eq!((rows[4].flags, rows[4].parent, rows[4].depth), (TAIL_CALL, 0, 1));
}

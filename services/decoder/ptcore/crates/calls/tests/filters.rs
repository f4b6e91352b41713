//! Calls where some addresses alone are traced.

use crate::calls::{self, rows, Script, BARE, LEAF, MAIN, WORK};
use crate::functions::Functions;
use crate::in_parts::Both;
use crate::machine::BASE;
use crate::nested::{self, Nested};
use crate::support::kernel::ip;
use crate::support::Sections;
use crate::truth::{self, Divided, Row};
use crate::turns::programs;
use pt_calls::{Calls, ASYNCHRONOUS, BEGIN_TRUNCATED, NO_PARENT};
use pt_flow::{Block, BlockKind, Config, DisableKind, Flow, Loss, Sink, Stream};
use pt_packet::writer::write;
use pt_packet::{Execution, Packet};

#[test]
fn a_call_out_of_the_filtered_addresses_makes_no_function_of_where_it_returns_to() {
    let mut script = Script::at(BARE);
    script.call(BARE, LEAF);
    script.calls.disabled(DisableKind::Synchronous, BARE + 3, Some(LEAF), script.tsc);
    script.enabled(BARE + 4, true).block(BARE + 4, 3, BlockKind::Jump, BARE + 0x20);
    let told = rows(&script.end());
    let places: Vec<_> = told.iter().map(|row: &calls::Row| (row.function, row.parent, row.own)).collect();
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
    let told: Vec<_> = rows(&trace).iter().map(|row: &calls::Row| (row.function, row.parent, row.own)).collect();
    assert_eq!(told, [(LEAF, NO_PARENT, 2); 3]);
    assert_eq!(trace.records.flags, [BEGIN_TRUNCATED; 3]);
    assert_eq!(trace.records.end_tsc, [102, 154, 206]);
}

#[test]
fn a_function_that_is_traced_alone_has_the_same_calls_by_several_threads() {
    // je to the ret; nop; ret
    let memory = Sections([(BASE, vec![0x74, 0x01, 0x90, 0xc3])].into());
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false };
    let mut data = Vec::new();
    let mut tell = |packet| write(&mut data, packet);
    [Packet::Psb, mode, Packet::Psbend].into_iter().for_each(&mut tell);
    for call in 0..200 {
        tell(Packet::TipPge(ip(BASE)));
        if call % 5 == 0 {
            let time = Packet::Tsc(1_000 + call * 10);
            [Packet::Psb, time, mode, Packet::Fup(ip(BASE)), Packet::Psbend].into_iter().for_each(&mut tell);
        }
        tell(Packet::Tnt { bits: call & 1, count: 1 });
        tell(Packet::TipPgd(ip(MAIN)));
    }
    let config = Config::default();
    for part_bytes in [1, 500] {
        let mut both = Both::new(&memory, Functions { divided: true }, 2);
        both.compare("alone", Stream { data: &data, config: &config, epochs: &[], missing: &[] }, part_bytes, 700);
        assert!(both.parts + both.again > 0);
    }
}

/// What is not traced.
const OUT: u64 = 0x77_0000;

fn lead_out(script: &mut Script, at: u64, to: u64) {
    script.calls.disabled(DisableKind::Synchronous, at, Some(to), script.tsc);
    script.tsc += 50;
}

#[test]
fn callbacks_of_what_is_not_traced_are_called_by_what_called_that() {
    let mut script = Script::at(MAIN);
    script.call(MAIN, OUT);
    lead_out(&mut script, MAIN + 3, OUT);
    for _ in 0..3 {
        script.enabled(LEAF, false).ret(LEAF, OUT + 40);
        lead_out(&mut script, LEAF + 1, OUT + 40);
    }
    script.enabled(MAIN + 4, false).call(MAIN + 4, WORK).ret(WORK, MAIN + 8).jump(MAIN + 8, MAIN);
    let trace = script.end();
    let told: Vec<_> = rows(&trace).iter().map(|row| (row.function, row.parent, row.flags)).collect();
    let callback = (LEAF, 0, ASYNCHRONOUS);
    assert_eq!(told[1..], [callback, callback, callback, (WORK, 0, 0)]);
    assert_eq!(trace.records.start_tsc[1..], [154, 206, 258, 314]);
    assert_eq!(trace.records.end_tsc[1..], [156, 208, 260, 316]);
}

#[test]
fn a_function_that_is_traced_alone_is_over_where_it_jumps_to_another() {
    let mut script = Script::at(LEAF);
    for _ in 0..3 {
        script.jump(LEAF, OUT);
        lead_out(&mut script, LEAF + 2, OUT);
        script.enabled(LEAF, false);
    }
    let told: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.parent, row.own)).collect();
    assert_eq!(told, [(LEAF, NO_PARENT, 3); 3]);
}

#[test]
fn a_function_that_jumps_out_and_comes_back_into_its_midst_goes_on() {
    let mut script = Script::at(LEAF);
    script.jump(LEAF, OUT);
    lead_out(&mut script, LEAF + 2, OUT);
    script.enabled(LEAF + 8, false).ret(LEAF + 8, OUT);
    let told: Vec<_> = rows(&script.end()).iter().map(|row| (row.function, row.parent, row.own)).collect();
    assert_eq!(told, [(LEAF, NO_PARENT, 5)]);
}

/// What a processor that traces some functions alone tells of a whole flow.
struct Filtered<F> {
    calls: Calls<Divided>,
    is_traced: F,
    stopped_at: Option<u64>,
}

impl<F: Fn(u64) -> bool> Sink for Filtered<F> {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        let Block { start, last, end, target, .. } = *block;
        let is_traced = (self.is_traced)(start);
        if is_traced {
            self.calls.block(block, tsc);
        }
        match (is_traced, target != 0 && (self.is_traced)(target)) {
            (true, false) if target != 0 => {
                self.stopped_at = Some(end);
                self.calls.disabled(DisableKind::Synchronous, last, Some(target), tsc);
            }
            (false, true) => self.enabled(target, false, tsc),
            _ => {}
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        if (self.is_traced)(ip) {
            let resumed = resumed || self.stopped_at.take() == Some(ip);
            self.calls.enabled(ip, resumed, tsc);
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        if (self.is_traced)(at) {
            self.stopped_at = None;
            self.calls.disabled(kind, at, target, tsc);
        }
    }

    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        panic!("{loss:?}");
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

/// Of the calls that the program made, those of functions that are traced.
fn made_of(program: &Nested, is_traced: impl Fn(u64) -> bool) -> Vec<Row> {
    let whole = truth::made(program);
    let mut places = vec![None; whole.len()];
    let mut rows: Vec<Row> = Vec::new();
    for (number, (call, row)) in program.calls.iter().zip(whole).enumerate() {
        let around = row.parent.or(call.inside).and_then(|around| places[around]);
        places[number] = around;
        if is_traced(row.function) {
            places[number] = Some(rows.len());
            let depth = around.map_or(0, |around: usize| rows[around].depth + 1);
            rows.push(Row { parent: around, depth, total: row.own, flags: 0, ..row });
        }
    }
    for number in (0..rows.len()).rev() {
        if let Some(parent) = rows[number].parent {
            rows[parent].total += rows[number].total;
        }
    }
    rows
}

#[test]
fn the_calls_of_traced_functions_are_those_that_a_program_made_of_them() {
    for seed in 1..=programs() {
        let traced = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 & !1 | u64::from(seed % 4 != 0);
        let is_traced = |address: u64| traced >> (address >> 8 & 63) & 1 == 1;
        let habits = nested::Habits { kernel: false, signals: 0, stops: false, ..truth::habits(seed) };
        let mut program = Nested::new(seed, habits);
        program.run(3_000);
        let mut sink = Filtered { calls: Calls::new(Divided), is_traced, stopped_at: None };
        Flow::new(&program.code).decode(&program.stream, &Config::default(), &[], &mut sink);
        let told = truth::told(&sink.calls.finish(), 0);
        truth::assert_same(&told, &made_of(&program, is_traced), &format!("{seed}: {habits:?}"));
    }
}

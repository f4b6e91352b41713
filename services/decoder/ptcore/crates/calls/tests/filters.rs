//! Calls where some addresses alone are traced.

use crate::calls::{rows, Row, Script, BARE, LEAF, MAIN};
use crate::functions::Functions;
use crate::in_parts::Both;
use crate::machine::BASE;
use crate::support::Sections;
use pt_calls::{BEGIN_TRUNCATED, NO_PARENT};
use pt_flow::{BlockKind, Config, DisableKind, Sink, Stream};
use pt_packet::writer::write;
use pt_packet::{Compression, Execution, Ip, Packet};

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

#[test]
fn a_function_that_is_traced_alone_has_the_same_calls_by_several_threads() {
    // je to the ret; nop; ret
    let memory = Sections([(BASE, vec![0x74, 0x01, 0x90, 0xc3])].into());
    let ip = |address| Ip { compression: Compression::Full, payload: address };
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
        both.compare("alone", Stream { data: &data, config: &config, epochs: &[] }, part_bytes, 700);
        assert!(both.parts + both.again > 0);
    }
}

//! Probes of programs, whose instructions run elsewhere (Linux, kernel/events/uprobes.c).

use crate::flow::{full, psb_plus, stream};
use crate::support::{Recorder, Sections, Told};
use pt_flow::{BlockKind, Config, DisableKind, Flow};
use pt_packet::{Ip, Packet};

const CODE: u64 = 0x40_1000;
const SLOT: u64 = 0x7fff_ffff_e080;

/// What is told of a NOP, an instruction of two bytes with a probe, and a conditional branch, where the copy at `slot` is left at `stops`
/// in turn and tracing goes on behind it.
fn told(slot: u64, stops: &[u64]) -> Vec<Told> {
    let mut memory = Sections::default();
    // 0: nop; 1: xchg ax, ax; 3: je 5
    memory.0.insert(CODE, vec![0x90, 0x66, 0x90, 0x74, 0x00, 0xf4]);
    let stop = |at: u64| [Packet::Fup(full(at)), Packet::TipPgd(Ip::SUPPRESSED)];
    let copy = stops.iter().flat_map(|&at| [&[Packet::TipPge(full(slot))][..], &stop(at)].concat());
    let behind = [Packet::TipPge(full(CODE + 3)), Packet::Tnt { bits: 1, count: 1 }];
    let all = [psb_plus(Some(CODE)), stop(CODE + 1).to_vec(), copy.collect(), behind.to_vec(), stop(CODE + 5).to_vec()];
    let mut sink = Recorder::default();
    Flow::new(&memory).decode(&stream(&all.concat()), &Config::default(), &[], &mut sink);
    sink.told
}

fn stopped(at: u64) -> Told {
    Told::Disabled(DisableKind::Asynchronous, at, None)
}

fn ran(start: u64, last: u64, instructions: u32) -> Told {
    Told::Block { start, last, instructions, kind: BlockKind::Interrupted, target: 0 }
}

#[test]
fn a_copy_of_an_instruction_is_told_as_run_where_the_instruction_stands() {
    let branch =
        Told::Block { start: CODE + 3, last: CODE + 3, instructions: 1, kind: BlockKind::CondTaken, target: CODE + 5 };
    let begin = [Told::Enabled(CODE), ran(CODE, CODE, 1), stopped(CODE + 1), Told::Resumed(CODE + 1)];
    let end = [ran(CODE + 1, CODE + 1, 1), stopped(CODE + 3), Told::Resumed(CODE + 3), branch, stopped(CODE + 5)];
    assert_eq!(told(SLOT, &[SLOT + 2]), [&begin[..], &end].concat());
    // It takes a fault first.
    let fault = [stopped(CODE + 1), Told::Resumed(CODE + 1)];
    assert_eq!(told(SLOT, &[SLOT, SLOT + 2]), [&begin[..], &fault, &end].concat());
}

#[test]
fn what_does_not_end_where_the_copy_would_is_lost() {
    for (slot, end) in [(SLOT, SLOT + 3), (SLOT + 1, SLOT + 3)] {
        let told = told(slot, &[end]);
        assert!(told.iter().any(|told| matches!(told, Told::Loss(_))), "{told:x?}");
    }
}

//! Instructions that came after the disassembler: their code is known no better than where there is none.

use crate::flow::{full, psb_plus, stream};
use crate::support::{Recorder, Sections, Told};
use pt_flow::{BlockKind, Config, DisableKind, Flow, Reason};
use pt_packet::{Ip, Packet};

const CODE: u64 = 0x40_1000;
/// Where known code begins again.
const AGAIN: u64 = CODE + 0x100;

/// What is told behind the PSB+ of code that begins with a NOP in front of `unknown`.
fn told(unknown: &[u8]) -> Vec<Told> {
    let mut memory = Sections::default();
    memory.0.insert(CODE, [&[0x90], unknown, &[0x90; 16]].concat());
    // 0: nop; 1: je 3
    memory.0.insert(AGAIN, vec![0x90, 0x74, 0x00, 0xf4]);
    let branch = Packet::Tnt { bits: 1, count: 1 };
    let behind = [branch, Packet::TipPgd(Ip::SUPPRESSED), Packet::TipPge(full(AGAIN)), branch];
    let ends = [Packet::Fup(full(AGAIN + 3)), Packet::TipPgd(Ip::SUPPRESSED)];
    let mut sink = Recorder::default();
    let all = [&psb_plus(Some(CODE))[..], &behind, &ends].concat();
    Flow::new(&memory).decode(&stream(&all), &Config::default(), &[], &mut sink);
    sink.told
}

fn lost(told: &[Told]) -> (Reason, u64) {
    match told {
        [Told::Enabled(CODE), Told::Block { start: CODE, instructions: 1, .. }, Told::Loss(loss), ..] => {
            (loss.reason, loss.address)
        }
        _ => panic!("{told:x?}"),
    }
}

#[test]
fn an_instruction_of_an_extension_that_is_not_known_is_gone_around() {
    // APX: add r16, rax with REX2; add rbx, rax, rcx with EVEX. With VEX, and of two opcode bytes.
    let newer: [&[u8]; 4] =
        [&[0xd5, 0x18, 0x01, 0xc0], &[0x62, 0xf4, 0xe4, 0x18, 0x01, 0xc8], &[0xc5, 0xfd, 0xff], &[0x66, 0x0f, 0x39]];
    for unknown in newer {
        let told = told(unknown);
        assert_eq!(lost(&told), (Reason::BadInstruction, CODE + 1), "{unknown:02x?}");
        let ran = Told::Block {
            start: AGAIN,
            last: AGAIN + 1,
            instructions: 2,
            kind: BlockKind::CondTaken,
            target: AGAIN + 3,
        };
        let stopped = Told::Disabled(DisableKind::Asynchronous, AGAIN + 3, None);
        assert_eq!(told[3..], [Told::Enabled(AGAIN), ran, stopped], "{unknown:02x?}");
    }
}

#[test]
fn a_jump_to_an_absolute_address_ignores_what_rex2_says_of_registers() {
    for (payload, is_jump) in [(0x00, true), (0x77, true), (0x08, false), (0x80, false)] {
        let jump = [&[0xd5, payload, 0xa1][..], &AGAIN.to_le_bytes()].concat();
        let mut memory = Sections::default();
        memory.0.insert(CODE, [&[0x90][..], &jump].concat());
        let mut sink = Recorder::default();
        let all = [&psb_plus(Some(CODE))[..], &[Packet::Tip(full(AGAIN)), Packet::TipPgd(Ip::SUPPRESSED)]].concat();
        Flow::new(&memory).decode(&stream(&all), &Config::default(), &[], &mut sink);
        let (last, kind) = (CODE + 1, BlockKind::IndirectJump);
        let jumped = Told::Block { start: CODE, last, instructions: 2, kind, target: AGAIN };
        assert_eq!(sink.told.contains(&jumped), is_jump, "{payload:02x} {:x?}", sink.told);
    }
}

#[test]
fn behind_what_can_be_no_instruction_nothing_is_certain_up_to_the_next_psb() {
    // push es; groups 5 and 11.
    for wrong in [&[0x06][..], &[0xff, 0xff], &[0xc6, 0x48]] {
        let told = told(wrong);
        assert_eq!(lost(&told), (Reason::BadInstruction, CODE + 1), "{wrong:02x?}");
        assert_eq!(told.len(), 3, "{told:x?}");
    }
}

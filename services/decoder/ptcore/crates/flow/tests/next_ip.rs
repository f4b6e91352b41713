//! Goldmont's FUPs that have the address behind the branch where an interruption was (`Errata::fup_with_nlip`).

use crate::flow::{full, psb_plus, stream};
use crate::support::{Recorder, Sections, Told};
use pt_flow::{BlockKind, Config, DisableKind, Flow, Reason};
use pt_packet::{Cpu, Errata, Ip, Packet};

const CODE: u64 = 0x40_1000;
const HANDLER: u64 = 0x50_0000;

/// Branches that a packet says the target of: INT n, SYSCALL, an indirect jump, an indirect call and a return.
const BRANCHES: [&[u8]; 5] = [&[0xcd, 0x80], &[0x0f, 0x05], &[0xff, 0xe0], &[0xff, 0xd0], &[0xc3]];

fn told(branch: &[u8], packets: &[Packet], errata: Errata) -> Vec<Told> {
    let mut memory = Sections::default();
    memory.0.insert(CODE, [&[0x90], branch, &[0x90, 0xf4]].concat());
    memory.0.insert(HANDLER, vec![0x90, 0x90]);
    let mut sink = Recorder::default();
    let all = [&psb_plus(Some(CODE)), packets].concat();
    Flow::new(&memory).decode(&stream(&all), &Config { errata, ..Config::default() }, &[], &mut sink);
    sink.told
}

fn goldmont() -> Errata {
    Errata::of(Cpu { family: 6, model: 0x5c, stepping: 9 }).expect("a known processor")
}

/// The instruction in front of the branch.
fn before(target: u64) -> Told {
    Told::Block { start: CODE, last: CODE, instructions: 1, kind: BlockKind::Interrupted, target }
}

#[test]
fn an_interruption_at_a_branch_may_have_the_address_behind_it() {
    for branch in BRANCHES {
        let next = CODE + 1 + branch.len() as u64;
        let ends = [Packet::Fup(full(HANDLER + 1)), Packet::TipPgd(Ip::SUPPRESSED)];
        let packets = [&[Packet::Fup(full(next)), Packet::Tip(full(HANDLER))], &ends[..]].concat();
        let handler =
            Told::Block { start: HANDLER, last: HANDLER, instructions: 1, kind: BlockKind::Interrupted, target: 0 };
        let expected = [
            Told::Enabled(CODE),
            before(HANDLER),
            Told::Interrupt(CODE + 1, HANDLER),
            handler,
            Told::Disabled(DisableKind::Asynchronous, HANDLER + 1, None),
        ];
        assert_eq!(told(branch, &packets, goldmont()), expected, "{branch:x?}");
        // The address of the branch says the same.
        let packets = [&[Packet::Fup(full(CODE + 1)), Packet::Tip(full(HANDLER))], &ends[..]].concat();
        assert_eq!(told(branch, &packets, goldmont()), expected, "{branch:x?}");
    }
}

#[test]
fn so_may_one_that_disables_tracing() {
    for branch in BRANCHES {
        let next = CODE + 1 + branch.len() as u64;
        let packets = [Packet::Fup(full(next)), Packet::TipPgd(Ip::SUPPRESSED), Packet::TipPge(full(next))];
        let stopped = Told::Disabled(DisableKind::Asynchronous, CODE + 1, None);
        let expected = [Told::Enabled(CODE), before(0), stopped, Told::Enabled(next)];
        assert_eq!(told(branch, &packets, goldmont())[..4], expected, "{branch:x?}");
    }
}

#[test]
fn elsewhere_the_address_behind_a_branch_does_not_fit() {
    for branch in BRANCHES {
        let packets = [Packet::Fup(full(CODE + 1 + branch.len() as u64)), Packet::Tip(full(HANDLER))];
        let told = told(branch, &packets, Errata::default());
        let is_loss =
            |told: &Told| matches!(told, Told::Loss(loss) if loss.reason == Reason::UnexpectedPacket("FUP with TIP"));
        assert!(told.iter().any(is_loss), "{branch:x?}: {told:x?}");
    }
}

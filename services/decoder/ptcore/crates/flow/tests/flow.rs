//! Small programs and hand-written streams: what each packet means for the flow.

use crate::support::{Recorder, Sections, Told};
use pt_flow::{
    AddressFilter, BlockKind, CodeMemory, CodeSlice, Config, DisableKind, Flow, Loss, Reason, Statistics, Time,
};
use pt_packet::{writer, Compression, Errata, Execution, Ip, Packet};
use BlockKind::*;

const CODE: u64 = 0x40_1000;

pub fn full(payload: u64) -> Ip {
    Ip { compression: Compression::Full, payload }
}

pub fn stream(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &packet in packets {
        writer::write(&mut bytes, packet);
    }
    bytes
}

pub fn psb_plus(ip: Option<u64>) -> Vec<Packet> {
    let mut packets = vec![Packet::Psb, Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false }];
    packets.extend(ip.map(|ip| Packet::Fup(full(ip))));
    packets.push(Packet::Psbend);
    packets
}

fn branches(taken: &[bool]) -> Packet {
    let bits = taken.iter().fold(0, |bits, &bit| bits << 1 | u64::from(bit));
    Packet::Tnt { bits, count: taken.len() as u8 }
}

fn end_at(ip: u64) -> [Packet; 2] {
    [Packet::Fup(full(ip)), Packet::TipPgd(Ip::SUPPRESSED)]
}

fn decode(code: &[u8], packets: &[Packet]) -> (Vec<Told>, Statistics) {
    let mut memory = Sections::default();
    memory.0.insert(CODE, code.to_vec());
    let mut sink = Recorder::default();
    let statistics = Flow::new(&memory).decode(&stream(packets), &Config::default(), &[], &mut sink);
    assert!(sink.times.is_sorted());
    (sink.told, statistics)
}

/// Decodes packets behind a PSB+ that says execution is at the start of the code.
fn run(code: &[u8], packets: &[Packet]) -> Vec<Told> {
    let mut all = psb_plus(Some(CODE));
    all.extend(packets);
    let (mut told, _) = decode(code, &all);
    assert_eq!(told.remove(0), Told::Enabled(CODE));
    told
}

fn block(start: u64, last: u64, instructions: u32, kind: BlockKind, target: u64) -> Told {
    Told::Block { start: CODE + start, last: CODE + last, instructions, kind, target: CODE + target }
}

fn stopped(at: u64) -> Told {
    Told::Disabled(DisableKind::Asynchronous, CODE + at, None)
}

/// 0: nop; 1: je 4; 3: nop; 4: nop; 5: jmp 0
const BRANCHES: &[u8] = &[0x90, 0x74, 0x01, 0x90, 0x90, 0xeb, 0xf9];

#[test]
fn tnt_bits_decide_conditional_branches() {
    let [fup, pgd] = end_at(CODE + 1);
    let told = run(BRANCHES, &[branches(&[true, false]), fup, pgd]);
    let expected = [
        block(0, 1, 2, CondTaken, 4),
        block(4, 5, 2, Jump, 0),
        block(0, 1, 2, CondNotTaken, 3),
        block(3, 5, 3, Jump, 0),
        Told::Block { start: CODE, last: CODE, instructions: 1, kind: Interrupted, target: 0 },
        stopped(1),
    ];
    assert_eq!(told, expected);
}

#[test]
fn an_interrupt_goes_from_fup_to_tip() {
    let told = run(
        BRANCHES,
        &[
            branches(&[true]),
            Packet::Fup(full(CODE + 5)),
            Packet::Tip(full(CODE + 3)),
            end_at(CODE + 3)[0],
            end_at(0)[1],
        ],
    );
    let expected =
        [block(0, 1, 2, CondTaken, 4), block(4, 4, 1, Interrupted, 3), Told::Interrupt(CODE + 5, CODE + 3), stopped(3)];
    assert_eq!(told, expected);
}

#[test]
fn an_interrupt_before_the_first_instruction_of_a_block_cuts_nothing() {
    let told =
        run(BRANCHES, &[Packet::Fup(full(CODE)), Packet::Tip(full(CODE + 4)), end_at(CODE + 4)[0], end_at(0)[1]]);
    assert_eq!(told, [Told::Interrupt(CODE, CODE + 4), stopped(4)]);
}

/// 0: nop; 1: syscall; 3: nop; 4: je 0
const SYSTEM_CALL: &[u8] = &[0x90, 0x0f, 0x05, 0x90, 0x74, 0xfa];

#[test]
fn a_system_call_takes_the_disable_and_resumes() {
    let told = run(
        SYSTEM_CALL,
        &[Packet::TipPgd(Ip::SUPPRESSED), Packet::TipPge(full(CODE + 3)), end_at(CODE + 4)[0], end_at(0)[1]],
    );
    let expected = [
        Told::Block { start: CODE, last: CODE + 1, instructions: 2, kind: Far, target: 0 },
        Told::Disabled(DisableKind::Synchronous, CODE + 1, None),
        Told::Resumed(CODE + 3),
        Told::Block { start: CODE + 3, last: CODE + 3, instructions: 1, kind: Interrupted, target: 0 },
        stopped(4),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_signal_goes_on_elsewhere_with_tip_pge() {
    let told = run(SYSTEM_CALL, &[end_at(CODE)[0], end_at(0)[1], Packet::TipPge(full(CODE + 4)), branches(&[true])]);
    assert_eq!(told[..2], [stopped(0), Told::Enabled(CODE + 4)]);
    assert_eq!(told[2], block(4, 4, 1, CondTaken, 0));
}

#[test]
fn a_direct_jump_disables_only_when_it_goes_to_the_address() {
    let told = run(BRANCHES, &[branches(&[true, true]), Packet::TipPgd(full(CODE))]);
    let expected = [
        block(0, 1, 2, CondTaken, 4),
        block(4, 5, 2, Jump, 0),
        block(0, 1, 2, CondTaken, 4),
        block(4, 5, 2, Jump, 0),
        Told::Disabled(DisableKind::Synchronous, CODE + 5, Some(CODE)),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_conditional_branch_out_of_the_filtered_addresses_led_where_the_code_says() {
    let decode = |first: u64, last: u64| {
        let mut memory = Sections::default();
        memory.0.insert(CODE, BRANCHES.to_vec());
        let filter = AddressFilter { ranges: [Some((CODE + first, CODE + last)), None, None, None] };
        let packets = [&psb_plus(Some(CODE))[..], &[Packet::TipPgd(Ip::SUPPRESSED)]].concat();
        let mut sink = Recorder::default();
        Flow::new(&memory).decode(&stream(&packets), &Config { filter, ..Config::default() }, &[], &mut sink);
        sink.told
    };
    let ended = |kind, target| {
        let branch = Told::Block { start: CODE, last: CODE + 1, instructions: 2, kind, target };
        [Told::Enabled(CODE), branch, Told::Disabled(DisableKind::Synchronous, CODE + 1, None)]
    };
    assert_eq!(decode(0, 3), ended(CondTaken, CODE + 4));
    assert_eq!(decode(4, 6), ended(CondNotTaken, CODE + 3));
    // Both ways lead out.
    assert_eq!(decode(0, 2), ended(CondTaken, 0));
}

/// 0: call 6; 5: ret; 6: ret
const CALL: &[u8] = &[0xe8, 1, 0, 0, 0, 0xc3, 0xc3];

#[test]
fn a_compressed_return_goes_behind_its_call() {
    let told = run(CALL, &[branches(&[true]), Packet::Tip(full(CODE))]);
    let expected =
        [block(0, 0, 1, Call, 6), block(6, 6, 1, Return, 5), block(5, 5, 1, Return, 0), block(0, 0, 1, Call, 6)];
    assert_eq!(told, expected);
}

#[test]
fn targets_may_stand_behind_later_branches() {
    // 0: jmp rax; 2: je 0
    let told = run(
        &[0xff, 0xe0, 0x74, 0xfc],
        &[Packet::Tip(full(CODE + 2)), branches(&[true]), end_at(CODE)[0], end_at(0)[1]],
    );
    // 4: je 6; 6: jmp rax; 8: je 8
    let code = &[0x90, 0x90, 0x90, 0x90, 0x74, 0x00, 0xff, 0xe0, 0x74, 0xfe];
    let deferred =
        run(code, &[branches(&[false, true]), Packet::Tip(full(CODE + 8)), end_at(CODE + 8)[0], end_at(0)[1]]);
    assert_eq!(told[0], Told::Block { start: CODE, last: CODE, instructions: 1, kind: IndirectJump, target: CODE + 2 });
    let expected =
        [block(0, 4, 5, CondNotTaken, 6), block(6, 6, 1, IndirectJump, 8), block(8, 8, 1, CondTaken, 8), stopped(8)];
    assert_eq!(deferred, expected);
}

#[test]
fn the_targets_of_calls_may_stand_behind_their_compressed_returns() {
    // 0: call rax; 2: call rbx; 4: je 0; 6: ret
    let code = &[0xff, 0xd0, 0xff, 0xd3, 0x74, 0xfa, 0xc3];
    let expected = [
        block(0, 0, 1, IndirectCall, 6),
        block(6, 6, 1, Return, 2),
        block(2, 2, 1, IndirectCall, 6),
        block(6, 6, 1, Return, 4),
        block(4, 4, 1, CondTaken, 0),
        stopped(0),
    ];
    let targets = [Packet::Tip(full(CODE + 6)); 2];
    for between in [&[][..], &[Packet::Cyc(3)], &[Packet::Mtc(3), Packet::Cyc(3)]] {
        let packets = [
            &[branches(&[true; 3])],
            between,
            &targets[..1],
            between,
            &targets[1..],
            &end_at(CODE)[..1],
            &end_at(0)[1..],
        ];
        let packets = packets.concat();
        assert_eq!(run(code, &packets), expected, "{packets:?}");
    }
}

#[test]
fn a_target_stands_behind_the_branches_of_one_packet_only() {
    // 0: je 2; 2: nop; 3: jmp rax
    let code = &[0x74, 0x00, 0x90, 0xff, 0xe0];
    for apart in [&[][..], &[Packet::Pad]] {
        let packets =
            [&[branches(&[false, false])], apart, &[branches(&[false]), Packet::Tip(full(CODE)), end_at(CODE)[0]]]
                .concat();
        let told = run(code, &packets);
        assert_eq!(told[..2], [block(0, 0, 1, CondNotTaken, 2), block(2, 2, 1, Interrupted, 3)]);
        let [.., Told::Loss(loss)] = told[..] else { panic!("{told:x?}") };
        let offset = stream(&psb_plus(Some(CODE))).len() + 1 + apart.len();
        assert_eq!((loss.offset, loss.reason), (offset, Reason::UnexpectedPacket("TNT")));
    }
}

#[test]
fn an_overflow_may_take_the_targets_that_stand_behind_later_branches() {
    // 0: je 2; 2: nop; 3: jmp rax
    let code = &[0x74, 0x00, 0x90, 0xff, 0xe0];
    let told = run(code, &[branches(&[false, false]), Packet::Ovf, Packet::Fup(full(CODE)), branches(&[false])]);
    let offset = stream(&psb_plus(Some(CODE))).len() + 1;
    let expected = [
        block(0, 0, 1, CondNotTaken, 2),
        block(2, 2, 1, Interrupted, 3),
        Told::Overflow(offset, Some(CODE + 3)),
        Told::Enabled(CODE),
        block(0, 0, 1, CondNotTaken, 2),
    ];
    assert_eq!(told[..5], expected);
}

#[test]
fn a_psb_does_not_go_back_behind_the_one_before() {
    // Four instructions and a branch that nothing decides; a PSB+ between is missing.
    let code = [0x90, 0x90, 0x90, 0x90, 0x74, 0x00, 0xf4];
    let packets = [psb_plus(Some(CODE)), psb_plus(Some(CODE + 2)), psb_plus(Some(CODE))].concat();
    let (told, _) = decode(&code, &[&packets[..], &end_at(CODE + 1)].concat());
    let Told::Loss(loss) = told[2] else { panic!("{told:x?}") };
    assert_eq!((loss.reason, loss.offset), (Reason::BadStatus, stream(&packets).len() * 2 / 3));
    let first = Told::Block { start: CODE, last: CODE, instructions: 1, kind: Interrupted, target: 0 };
    assert_eq!(told[3..], [Told::Enabled(CODE), first, stopped(1)]);
}

#[test]
fn what_a_psb_says_has_run_also_in_front_of_damage() {
    // 0: nop; 1: nop; 2: je 4
    let packets = [psb_plus(Some(CODE)), psb_plus(Some(CODE + 1)), vec![Packet::Psbend]].concat();
    let (told, _) = decode(&[0x90, 0x90, 0x74, 0x00, 0xf4], &packets);
    let Told::Loss(loss) = told[2] else { panic!("{told:x?}") };
    let first = Told::Block { start: CODE, last: CODE, instructions: 1, kind: Interrupted, target: 0 };
    assert_eq!((&told[1], loss.address), (&first, CODE + 1));
}

#[test]
fn what_a_psb_says_has_run_also_in_front_of_an_overflow() {
    let packets = [psb_plus(Some(CODE)), psb_plus(Some(CODE + 1)), vec![Packet::Ovf]].concat();
    let (told, _) = decode(&[0x90, 0x90, 0x74, 0x00, 0xf4], &packets);
    let first = Told::Block { start: CODE, last: CODE, instructions: 1, kind: Interrupted, target: 0 };
    let offset = stream(&packets).len() - 2;
    assert_eq!(told[1..3], [first, Told::Overflow(offset, Some(CODE + 1))]);
}

#[test]
fn a_psb_whose_end_is_damaged_says_nothing_of_the_one_behind_it() {
    let mut packets = psb_plus(Some(CODE));
    packets.pop();
    // Tracing was disabled in between.
    packets.extend(psb_plus(None));
    packets.extend([Packet::TipPge(full(CODE + 1)), end_at(CODE + 2)[0], end_at(0)[1]]);
    let (told, _) = decode(&[0x90, 0x90, 0x90, 0xf4], &packets);
    let ran = Told::Block { start: CODE + 1, last: CODE + 1, instructions: 1, kind: Interrupted, target: 0 };
    assert_eq!(told, [Told::Enabled(CODE + 1), ran, stopped(2)]);
    // What is left of an address is nothing to go on from.
    let mut packets = psb_plus(Some(0x12_3456_789a));
    packets.pop();
    packets.extend(psb_plus(None));
    let at = Ip { compression: Compression::Update32, payload: CODE + 1 };
    packets.insert(packets.len() - 1, Packet::Fup(at));
    packets.extend(end_at(CODE + 2));
    assert_eq!(decode(&[0x90, 0x90, 0x90, 0xf4], &packets).0, told);
}

#[test]
fn no_return_is_compressed_over_a_psb_while_tracing_is_disabled() {
    // 0: call 6; 5: ret; 6: ret
    let mut packets = [psb_plus(Some(CODE)), end_at(CODE + 6).to_vec(), psb_plus(None)].concat();
    packets.extend([Packet::TipPge(full(CODE + 6)), branches(&[true])]);
    let (told, _) = decode(CALL, &packets);
    let Some(Told::Loss(Loss { reason: Reason::EmptyReturnStack, .. })) = told.last() else { panic!("{told:x?}") };
}

#[test]
fn a_call_of_the_next_instruction_is_not_returned_to() {
    // 0: call 5; 5: ret
    let told = run(&[0xe8, 0, 0, 0, 0, 0xc3], &[branches(&[true])]);
    assert_eq!(told[0], block(0, 0, 1, Call, 5));
    let Told::Loss(Loss { reason: Reason::EmptyReturnStack, address, .. }) = told[1] else { panic!("{told:x?}") };
    assert_eq!(address, CODE + 5);
}

#[test]
fn a_compressed_return_is_never_not_taken() {
    let told = run(CALL, &[branches(&[false])]);
    assert!(matches!(told[1], Told::Loss(Loss { reason: Reason::BadReturn, .. })), "{told:x?}");
}

#[test]
fn a_jump_to_itself_is_a_loss_and_the_next_psb_goes_on() {
    for code in [&[0xeb, 0xfe][..], &[0xeb, 0x00, 0xeb, 0xfc], &[0x90, 0xeb, 0x01, 0x90, 0xeb, 0xfb]] {
        let mut packets = psb_plus(Some(CODE));
        packets.push(Packet::Tip(full(CODE)));
        packets.extend(psb_plus(Some(CODE)));
        packets.extend(end_at(CODE));
        let (told, statistics) = decode(code, &packets);
        let losses = told.iter().filter(|told| matches!(told, Told::Loss(loss) if loss.reason == Reason::EndlessLoop));
        assert_eq!(losses.count(), 1, "{told:x?}");
        assert_eq!(told[told.len() - 2..], [Told::Enabled(CODE), stopped(0)]);
        assert_eq!(statistics.errors, 1);
    }
}

#[test]
fn each_return_takes_its_call_from_the_stack() {
    // 0: call 6; 5: nop; 6: call 12; 11: nop; 12: ret; 13: ret
    let code = [0xe8, 1, 0, 0, 0, 0x90, 0xe8, 1, 0, 0, 0, 0x90, 0xc3, 0xc3];
    // The second call is left without its return's own target, and the first one then returned from. Cycles in front of it
    // take it out of the loop in which packets are followed.
    for apart in [&[][..], &[Packet::Cbr { ratio: 20 }]] {
        let packets = [&[Packet::Tip(full(CODE + 13))], apart, &[branches(&[true])], &end_at(CODE + 5)].concat();
        let told = run(&code, &packets);
        let told: Vec<_> = told.into_iter().filter(|told| matches!(told, Told::Block { .. })).collect();
        let calls = [block(0, 0, 1, Call, 6), block(6, 6, 1, Call, 12)];
        assert_eq!(told, [&calls[..], &[block(12, 12, 1, Return, 13), block(13, 13, 1, Return, 5)]].concat());
    }
}

#[test]
fn a_change_of_cr3_is_where_the_packet_of_it_says_also_in_front_of_a_far_branch() {
    // 0: mov cr3, rax; 3: nop; 4: syscall; 6: nop
    let code = [0x0f, 0x22, 0xd8, 0x90, 0x0f, 0x05, 0x90];
    let pip = Packet::Pip { cr3: 0x2000, non_root: false };
    let told = run(&code, &[pip, Packet::TipPgd(Ip::SUPPRESSED)]);
    let far = Told::Block { start: CODE + 3, last: CODE + 4, instructions: 2, kind: Far, target: 0 };
    let stopped = Told::Disabled(DisableKind::Synchronous, CODE + 4, None);
    assert_eq!(told, [block(0, 0, 1, Linear, 3), far, stopped]);
    // Without it the change itself is what leaves what is traced.
    let told = run(&code, &[Packet::TipPgd(Ip::SUPPRESSED)]);
    let far = Told::Block { start: CODE, last: CODE, instructions: 1, kind: Far, target: 0 };
    assert_eq!(told, [far, Told::Disabled(DisableKind::Synchronous, CODE, None)]);
}

#[test]
fn branches_of_16_bit_code_stay_in_their_segment() {
    // In 16-bit code at 0x10_7c00, 0: jmp 4; 4: jz 0 (not taken); 6: call 0x100; 0x100: ret
    let start = 0x10_7c00;
    let mut code = vec![0x90; 0x101];
    code[..2].copy_from_slice(&[0xeb, 0x02]);
    code[4..9].copy_from_slice(&[0x74, 0xfa, 0xe8, 0xf7, 0x00]);
    code[0x100] = 0xc3;
    let mode = Packet::ModeExec { mode: Execution::Bits16, interrupt_flag: false };
    let begin =
        [Packet::Psb, mode, Packet::Fup(full(start)), Packet::Psbend, branches(&[false]), end_at(start + 0x100)[0]];
    let mut memory = Sections::default();
    memory.0.insert(start, code);
    let mut sink = Recorder::default();
    Flow::new(&memory).decode(&stream(&[&begin[..], &[end_at(0)[1]]].concat()), &Config::default(), &[], &mut sink);
    let told = [(0, 0, 1, Jump, 4), (4, 4, 1, CondNotTaken, 6), (6, 6, 1, Call, 0x100)].map(
        |(at, last, instructions, kind, target)| Told::Block {
            start: start + at,
            last: start + last,
            instructions,
            kind,
            target: start + target,
        },
    );
    assert_eq!(sink.told[1..4], told);
}

#[test]
fn a_spin_ended_by_a_signal_is_no_loss() {
    let told = run(&[0xeb, 0xfe], &end_at(CODE));
    assert_eq!(told, [stopped(0)]);
}

#[test]
fn an_overflow_goes_on_at_its_fup() {
    let told = run(BRANCHES, &[Packet::Ovf, Packet::Fup(full(CODE + 4)), end_at(CODE + 5)[0], end_at(0)[1]]);
    let offset = stream(&psb_plus(Some(CODE))).len();
    let expected = [
        Told::Overflow(offset, Some(CODE)),
        Told::Enabled(CODE + 4),
        Told::Block { start: CODE + 4, last: CODE + 4, instructions: 1, kind: Interrupted, target: 0 },
        stopped(5),
    ];
    assert_eq!(told, expected);
}

#[test]
fn code_that_ran_in_front_of_an_overflow_may_run_behind_it() {
    // 0: jmp 2; 2: ptwrite eax; 6: jmp rax
    let code = [0xeb, 0x00, 0xf3, 0x0f, 0xae, 0xe0, 0xff, 0xe0];
    let writes = Packet::Ptw { payload: 7, size: 4, fup: false };
    let told = run(&code, &[writes, Packet::Ovf, Packet::Fup(full(CODE)), writes, Packet::Tip(full(CODE + 6))]);
    let losses: Vec<_> = told.iter().filter(|told| matches!(told, Told::Loss(_))).collect();
    assert!(losses.is_empty(), "{losses:x?}");
    assert_eq!(told.last(), Some(&block(6, 6, 1, IndirectJump, 6)));
}

#[test]
fn branches_that_are_left_where_the_code_does_not_fit_are_lost_up_to_the_next_address() {
    let mut packets = psb_plus(Some(CODE));
    packets.extend([branches(&[true, true]), Packet::Cyc(3), branches(&[true]), Packet::Tip(full(CODE + 1))]);
    packets.extend([branches(&[false]), end_at(CODE + 3)[0], end_at(0)[1]]);
    let mut memory = Sections::default();
    memory.0.insert(CODE, vec![0xc3, 0x74, 0x00, 0xf4]); // ret of a call that nobody saw; je 3; hlt
    let mut sink = Recorder::default();
    let config = Config { resume_at_address: true, ..Config::default() };
    Flow::new(&memory).decode(&stream(&packets), &config, &[], &mut sink);
    let [.., Told::Loss(loss), Told::Enabled(ip), going_on, _] = &sink.told[..] else { panic!("{:x?}", sink.told) };
    assert_eq!((loss.reason, *ip), (Reason::EmptyReturnStack, CODE + 1));
    assert_eq!(*going_on, block(1, 1, 1, CondNotTaken, 3));
}

#[test]
fn an_overflow_may_stand_behind_the_first_byte_of_cycles() {
    const STRAY: u8 = 0x07;
    let mut packets = psb_plus(Some(CODE));
    packets.extend([branches(&[false, false]), Packet::Cyc(3), branches(&[false])]);
    let mut bytes = stream(&packets);
    let offset = bytes.len();
    bytes.push(STRAY);
    bytes.extend(stream(&[Packet::Ovf, Packet::Fup(full(CODE)), branches(&[false]), Packet::TipPgd(Ip::SUPPRESSED)]));
    bytes.extend([0; 32]);
    let mut memory = Sections::default();
    memory.0.insert(CODE, [0x74, 0x00].repeat(8)); // je 2
    let errata = Errata { skd007: true, ..Errata::default() };
    let mut sink = Recorder::default();
    let config = Config { errata, ..Config::default() };
    Flow::new(&memory).decode(&bytes, &config, &[], &mut sink);
    assert!(sink.told.contains(&Told::Overflow(offset, Some(CODE + 6))), "{:x?}", sink.told);
    // Without the erratum these are two CYC packets.
    let statistics = Flow::new(&memory).decode(&bytes, &Config::default(), &[], &mut sink);
    assert_eq!(statistics.ovf, 0);
}

#[test]
fn a_psb_may_stand_between_an_overflow_and_its_fup() {
    let behind = [Packet::Cbr { ratio: 20 }, Packet::Fup(full(CODE + 4)), end_at(CODE + 5)[0], end_at(0)[1]];
    let block = Told::Block { start: CODE + 4, last: CODE + 4, instructions: 1, kind: Interrupted, target: 0 };
    for status in [None, Some(CODE + 4)] {
        let told = run(BRANCHES, &[&[Packet::Ovf][..], &psb_plus(status), &behind].concat());
        assert_eq!(told[1..], [Told::Enabled(CODE + 4), block.clone(), stopped(5)]);
        // So it does where the flow begins with the PSB.
        let (told, _) = decode(BRANCHES, &[&psb_plus(status)[..], &behind].concat());
        assert_eq!(told, [Told::Enabled(CODE + 4), block.clone(), stopped(5)]);
    }
}

#[test]
fn the_branch_behind_such_a_fup_is_none_of_an_interrupt() {
    // 0: jmp rax; 2: nop; 3: jmp rax
    let code = [0xff, 0xe0, 0x90, 0xff, 0xe0];
    let fup = Packet::Fup(full(CODE + 2));
    let behind = [Packet::Tip(full(CODE)), Packet::TipPgd(full(CODE + 2))];
    for status in [None, Some(CODE + 2)] {
        let overflows = [&[Packet::Ovf, Packet::Mtc(3)][..], &psb_plus(status), &[fup]].concat();
        let told = run(&code, &[&overflows[..], &behind].concat());
        let jumps = [block(2, 3, 2, IndirectJump, 0), block(0, 0, 1, IndirectJump, 2)];
        assert_eq!(told[1..4], [Told::Enabled(CODE + 2), jumps[0].clone(), jumps[1].clone()], "{status:x?}");
    }
    // Without an overflow it is, as where it has another address than the PSB+.
    for (front, at) in [(&[][..], CODE + 2), (&[Packet::Ovf], CODE + 3)] {
        let packets = [front, &psb_plus(Some(CODE + 2)), &[Packet::Fup(full(at)), behind[0]]].concat();
        let (told, _) = decode(&code, &packets);
        assert!(told.contains(&Told::Interrupt(at, CODE)), "{told:x?}");
    }
}

#[test]
fn an_overflow_may_take_the_tip_of_an_interrupt() {
    let goes_on = [Packet::Fup(full(CODE + 3)), end_at(CODE + 5)[0], end_at(0)[1]];
    for between in [&[][..], &[Packet::Cbr { ratio: 9 }]] {
        let taken = [&[branches(&[true]), Packet::Fup(full(CODE + 5))], between, &[Packet::Ovf]].concat();
        let told = run(BRANCHES, &[&taken[..], &goes_on].concat());
        let offset = stream(&[&psb_plus(Some(CODE))[..], &taken].concat()).len() - 2;
        let expected = [
            block(0, 1, 2, CondTaken, 4),
            Told::Block { start: CODE + 4, last: CODE + 4, instructions: 1, kind: Interrupted, target: 0 },
            stopped(5),
            Told::Overflow(offset, None),
            Told::Enabled(CODE + 3),
            Told::Block { start: CODE + 3, last: CODE + 4, instructions: 2, kind: Interrupted, target: 0 },
            stopped(5),
        ];
        assert_eq!(told, expected);
    }
}

#[test]
fn an_overflow_may_end_while_tracing_is_disabled() {
    let told = run(BRANCHES, &[Packet::Ovf, Packet::TipPge(full(CODE + 4)), end_at(CODE + 4)[0], end_at(0)[1]]);
    assert_eq!(told[1..], [Told::Enabled(CODE + 4), stopped(4)]);
}

/// SDM table "Compound Packet Event Summary", row "Overflow".
#[test]
fn an_overflow_within_a_psb_plus_may_leave_its_end() {
    const MODE: Packet = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false };
    let cbr = Packet::Cbr { ratio: 20 };
    let goes_on = [Packet::Fup(full(CODE + 4)), Packet::TipPge(full(CODE + 4))];
    let cuts: [&[Packet]; 3] = [&[Packet::Ovf], &[Packet::Psb, Packet::Ovf], &[Packet::Psb, cbr, MODE, Packet::Ovf]];
    for (front, at) in cuts.into_iter().flat_map(|cut| goes_on.map(|at| (cut, at))) {
        for (between, behind) in [(&[][..], &[][..]), (&[cbr, MODE], &[cbr])] {
            let cut = [front, between, &[Packet::Psbend], behind, &[at], &end_at(CODE + 4)].concat();
            let told = run(BRANCHES, &cut);
            assert!(matches!(told[0], Told::Overflow(_, Some(CODE))), "{told:x?}");
            assert_eq!(told[1..], [Told::Enabled(CODE + 4), stopped(4)], "{cut:?}");
            if front[0] == Packet::Psb {
                let (told, _) = decode(BRANCHES, &cut);
                assert!(matches!(told[0], Told::Overflow(_, None)), "{told:x?}");
                assert_eq!(told[1..], [Told::Enabled(CODE + 4), stopped(4)], "{cut:?}");
            }
        }
    }
}

#[test]
fn a_psbend_without_its_psb_ends_the_flow() {
    let at = Packet::Fup(full(CODE + 4));
    for front in [&[][..], &[Packet::Ovf, at], &[Packet::Ovf, at, branches(&[true])]] {
        let told = run(&[0x74, 0, 0x90, 0x90, 0x74, 0xfa], &[front, &[Packet::Psbend, at]].concat());
        let Some(Told::Loss(loss)) = told.last() else { panic!("{told:x?}") };
        assert_eq!(loss.reason, Reason::UnexpectedPacket("PSBEND"));
    }
}

#[test]
fn a_stream_in_the_midst_of_nothing_is_lost_up_to_the_psb() {
    let mut packets = vec![branches(&[true]); 5];
    packets.extend(psb_plus(Some(CODE)));
    packets.extend(end_at(CODE));
    let (told, statistics) = decode(BRANCHES, &packets);
    let lost = Loss { offset: 0, size: 5, reason: Reason::BeforeFirstPsb, address: 0, epoch: 0, tsc0: 0, tsc1: 0 };
    assert_eq!(told, [Told::Loss(lost), Told::Enabled(CODE), stopped(0)]);
    assert_eq!((statistics.lost_bytes, statistics.errors), (5, 1));
}

#[test]
fn a_packet_that_cannot_be_while_tracing_is_disabled_is_one_loss_up_to_the_next_psb() {
    let ends = [end_at(CODE)[0], end_at(0)[1]];
    let mut packets = [&psb_plus(Some(CODE))[..], &ends, &psb_plus(None)].concat();
    let bad = stream(&packets).len();
    packets.push(branches(&[true]));
    packets.extend([&psb_plus(Some(CODE))[..], &ends].concat());
    let (told, statistics) = decode(BRANCHES, &packets);
    let reason = Reason::UnexpectedPacket("TNT");
    let lost = Loss { offset: bad, size: 1, reason, address: 0, epoch: 0, tsc0: 0, tsc1: 0 };
    assert_eq!(told, [Told::Enabled(CODE), stopped(0), Told::Loss(lost), Told::Enabled(CODE), stopped(0)]);
    assert_eq!((statistics.lost_bytes, statistics.errors), (1, 1));
}

#[test]
fn bytes_that_are_no_packet_are_lost_up_to_the_next_psb() {
    let mut bytes = stream(&psb_plus(Some(CODE)));
    let bad = bytes.len();
    bytes.extend([0x02, 0xff, 0x01, 0x02, 0x03]);
    bytes.extend(stream(&[Packet::Psb, Packet::Tsc(7000), Packet::Fup(full(CODE)), Packet::Psbend]));
    bytes.extend(stream(&end_at(CODE)));
    let mut memory = Sections::default();
    memory.0.insert(CODE, BRANCHES.to_vec());
    let mut sink = Recorder::default();
    Flow::new(&memory).decode(&bytes, &Config::default(), &[], &mut sink);
    let reason = Reason::UnknownPacket([0x02, 0xff, 0x01, 0x02]);
    let lost = Loss { offset: bad, size: 5, reason, address: CODE, epoch: 0, tsc0: 0, tsc1: 7000 };
    assert_eq!(sink.told, [Told::Enabled(CODE), Told::Loss(lost), Told::Enabled(CODE), stopped(0)]);
}

#[test]
fn code_that_is_not_known_is_a_loss_at_its_address() {
    let told = run(&[0xff, 0xe0], &[Packet::Tip(full(0x1234_5678))]);
    let Told::Loss(loss) = told[1] else { panic!("{told:x?}") };
    assert_eq!((loss.reason, loss.address), (Reason::NoCode, 0x1234_5678));
}

#[test]
fn code_that_is_not_known_is_gone_around() {
    // 0: jmp rax; 2: nop; 3: je 4
    let code = [0xff, 0xe0, 0x90, 0x74, 0x00, 0xf4];
    let unknown = Packet::Tip(full(0x1234_5678));
    let lost = |told: &[Told]| match told {
        [_, Told::Loss(loss), ..] => (loss.reason, loss.address, loss.size),
        _ => panic!("{told:x?}"),
    };
    // A TIP alone may come behind branches that follow it.
    let within = [unknown, branches(&[true]), Packet::Tip(full(CODE + 2)), Packet::TipPgd(Ip::SUPPRESSED)];
    let again = [Packet::TipPge(full(CODE + 2)), branches(&[true]), end_at(CODE + 5)[0], end_at(0)[1]];
    let told = run(&code, &[&within[..], &again].concat());
    let skipped = stream(&within).len();
    assert_eq!(lost(&told), (Reason::NoCode, 0x1234_5678, skipped));
    let going_on = [Told::Enabled(CODE + 2), block(2, 3, 2, CondTaken, 5), stopped(5)];
    assert_eq!(told[2..], going_on);

    // To code that is not known either, then an interrupt.
    let elsewhere = [Packet::TipPge(full(0x1234_5678)), branches(&[true])];
    let interrupt = [Packet::Fup(full(0x1234_5678)), Packet::Tip(full(CODE + 2)), branches(&[true])];
    let told = run(&code, &[&within[..], &elsewhere, &interrupt, &end_at(CODE + 5)].concat());
    assert_eq!(lost(&told), (Reason::NoCode, 0x1234_5678, skipped + stream(&elsewhere).len()));
    let going_on = [Told::Enabled(0x1234_5678), Told::Interrupt(0x1234_5678, CODE + 2)];
    assert_eq!(told[2..], [&going_on[..], &[block(2, 3, 2, CondTaken, 5), stopped(5)]].concat());
}

#[test]
fn a_psb_passed_on_the_way_to_the_failing_packet_is_where_it_goes_on() {
    // nop; then nothing known, while TIP stands behind a second PSB+
    let mut packets = psb_plus(Some(CODE));
    packets.extend(psb_plus(Some(CODE + 0x1000)));
    packets.push(Packet::TipPgd(Ip::SUPPRESSED));
    let mut memory = Sections::default();
    memory.0.insert(CODE, vec![0x90]);
    memory.0.insert(CODE + 0x1000, vec![0x0f, 0x05]);
    let mut sink = Recorder::default();
    Flow::new(&memory).decode(&stream(&packets), &Config::default(), &[], &mut sink);
    assert!(matches!(sink.told[2], Told::Loss(Loss { reason: Reason::NoCode, size: 0, .. })), "{:x?}", sink.told);
    assert_eq!(sink.told[3], Told::Enabled(CODE + 0x1000));
    assert_eq!(sink.told[5], Told::Disabled(DisableKind::Synchronous, CODE + 0x1000, None));
}

#[test]
fn what_runs_behind_a_psb_up_to_code_that_is_not_known_runs_once() {
    // 0: jmp rax; 2: nop; 3: jmp 1008, unknown
    let code = [0xff, 0xe0, 0x90, 0xe9, 0x00, 0x10, 0x00, 0x00];
    let unknown = [Packet::Tip(full(CODE + 0x2000)), Packet::TipPgd(Ip::SUPPRESSED)];
    let told = run(&code, &[&[Packet::Tip(full(CODE + 2))], &psb_plus(Some(CODE + 2))[..], &unknown].concat());
    let losses = told.iter().filter(|told| matches!(told, Told::Loss(_))).count();
    let blocks: Vec<_> = told.into_iter().filter(|told| matches!(told, Told::Block { .. })).collect();
    assert_eq!(blocks, [block(0, 0, 1, IndirectJump, 2), block(2, 3, 2, Jump, 0x1008)]);
    assert_eq!(losses, 1);
}

#[test]
fn an_instruction_may_stand_in_two_sections() {
    // call +5 over the border, in two sections of different content
    let mut memory = Sections::default();
    memory.0.insert(CODE, vec![0x90, 0xe8, 0x01]);
    memory.0.insert(CODE + 3, vec![0, 0, 0, 0xc3, 0xc3]);
    let mut packets = psb_plus(Some(CODE));
    packets.push(branches(&[true]));
    packets.extend(end_at(CODE + 6));
    let mut sink = Recorder::default();
    Flow::new(&memory).decode(&stream(&packets), &Config::default(), &[], &mut sink);
    let expected = [
        Told::Enabled(CODE),
        block(0, 0, 1, Linear, 1),
        block(1, 1, 1, Call, 7),
        block(7, 7, 1, Return, 6),
        stopped(6),
    ];
    assert_eq!(sink.told, expected);
}

#[test]
fn a_jump_to_itself_over_a_section_border_ends_too() {
    let mut memory = Sections::default();
    memory.0.insert(CODE, vec![0xeb]);
    memory.0.insert(CODE + 1, vec![0xfe]);
    let mut sink = Recorder::default();
    Flow::new(&memory).decode(&stream(&psb_plus(Some(CODE))), &Config::default(), &[], &mut sink);
    assert!(matches!(sink.told.last(), Some(Told::Loss(Loss { reason: Reason::EndlessLoop, .. }))));
}

#[test]
fn mode_exec_switches_the_decoding_of_instructions() {
    // 64 bit: 48 ff c0 = inc rax; 32 bit: dec eax; inc eax. Then syscall / int 80.
    let code = &[0x48, 0xff, 0xc0, 0xcd, 0x80];
    for (mode, instructions) in [(Execution::Bits64, 2), (Execution::Bits32, 3)] {
        let packets = [
            Packet::Psb,
            Packet::Psbend,
            Packet::ModeExec { mode, interrupt_flag: false },
            Packet::TipPge(full(CODE)),
            Packet::TipPgd(Ip::SUPPRESSED),
        ];
        let (told, statistics) = decode(code, &packets);
        assert_eq!(statistics.instructions, instructions, "{told:x?}");
    }
}

/// `jmp rax` in epoch 1, with `nop; jmp rax` in its place from epoch 2 on.
struct Patched;

impl CodeMemory for Patched {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        let bytes: &[u8] = if epoch < 2 { &[0xff, 0xe0, 0xcc] } else { &[0x90, 0xff, 0xe0] };
        let bytes = bytes.get(address.checked_sub(CODE)? as usize..).filter(|bytes| !bytes.is_empty())?;
        Some(CodeSlice { bytes, generation: u64::from(epoch.min(2)) })
    }
}

#[test]
fn an_epoch_holds_from_the_packet_at_its_offset() {
    let mut bytes = stream(&psb_plus(Some(CODE)));
    let tip = |bytes: &mut Vec<u8>| {
        let offset = bytes.len();
        writer::write(bytes, Packet::Tip(full(CODE)));
        offset
    };
    tip(&mut bytes);
    let second = tip(&mut bytes);
    tip(&mut bytes);
    bytes.extend(stream(&end_at(CODE)));
    let mut sink = Recorder::default();
    let mut flow = Flow::new(Patched);
    for _ in 0..2 {
        sink.told.clear();
        flow.decode(&bytes, &Config::default(), &[(0, 1), (second, 2)], &mut sink);
        let expected = [
            Told::Enabled(CODE),
            block(0, 0, 1, IndirectJump, 0),
            block(0, 0, 1, IndirectJump, 0),
            block(0, 1, 2, IndirectJump, 0),
            stopped(0),
        ];
        assert_eq!(sink.told, expected);
    }
}

#[test]
fn no_code_is_needed_where_tracing_stops_at_once() {
    const UNKNOWN: u64 = 0x50_0000;
    // 0: jmp rax. Its target becomes known with the next epoch, for which the recorder breaks the flow.
    let told = run(&[0xff, 0xe0], &[Packet::Tip(full(UNKNOWN)), end_at(UNKNOWN)[0], end_at(0)[1]]);
    let stopped = Told::Disabled(DisableKind::Asynchronous, UNKNOWN, None);
    assert_eq!(told, [block(0, 0, 1, IndirectJump, UNKNOWN - CODE), stopped.clone()]);

    let clock = [Packet::Tsc(9000), Packet::Tma { ctc: 1, fast_counter: 1 }];
    let timed = [&[Packet::Tip(full(UNKNOWN))], &clock[..], &[end_at(UNKNOWN)[0], end_at(0)[1]]].concat();
    assert_eq!(run(&[0xff, 0xe0], &timed), [block(0, 0, 1, IndirectJump, UNKNOWN - CODE), stopped]);

    // 0: jmp to 0x50_0000, which no packet tells.
    let told = run(&[0xe9, 0xfb, 0xef, 0x0f, 0x00], &[end_at(UNKNOWN)[0], end_at(0)[1]]);
    let stopped = Told::Disabled(DisableKind::Asynchronous, UNKNOWN, None);
    assert_eq!(told, [block(0, 0, 1, Jump, UNKNOWN - CODE), stopped]);

    let told = run(&[0xff, 0xe0], &[Packet::Tip(full(UNKNOWN)), branches(&[true])]);
    assert!(matches!(told.last(), Some(Told::Loss(Loss { reason: Reason::NoCode, address: UNKNOWN, .. }))), "{told:?}");
}

#[test]
fn no_code_is_needed_where_the_first_instruction_takes_a_fault() {
    const UNKNOWN: u64 = 0x50_0000;
    // 0: jmp rax; 2: jmp rax, where the fault is handled.
    let code = [0xff, 0xe0, 0xff, 0xe0];
    let went = [block(0, 0, 1, IndirectJump, UNKNOWN - CODE), Told::Interrupt(UNKNOWN, CODE + 2)];
    let handled = [block(2, 2, 1, IndirectJump, 0), stopped(0)];
    let fault = [Packet::Tip(full(UNKNOWN)), Packet::Fup(full(UNKNOWN)), Packet::Tip(full(CODE + 2))];
    let behind = [Packet::Tip(full(CODE)), end_at(CODE)[0], end_at(0)[1]];
    assert_eq!(run(&code, &[&fault[..], &behind].concat()), [went, handled].concat());

    // With event trace, of a program alone.
    let event = Packet::Cfe { kind: 1, vector: 14, fup: true };
    let told = run(&code, &[Packet::Tip(full(UNKNOWN)), event, fault[1], Packet::TipPgd(Ip::SUPPRESSED)]);
    assert_eq!(told.first(), Some(&block(0, 0, 1, IndirectJump, UNKNOWN - CODE)));
    assert_eq!(told.last(), Some(&Told::Disabled(DisableKind::Asynchronous, UNKNOWN, None)));
    assert!(!told.iter().any(|told| matches!(told, Told::Loss(_))), "{told:x?}");
}

#[test]
fn an_instruction_that_is_none_takes_a_fault() {
    // 0: nop; 1: no instruction of 64-bit code; 2: ret; 3: nop; 4: jmp rax, where the fault is handled.
    let code = [0x90, 0x06, 0xc3, 0x90, 0xff, 0xe0];
    for (from, before) in [(1, None), (0, Some(block(0, 0, 1, Linear, 1)))] {
        let packets = [Packet::Fup(full(CODE + 1)), Packet::Tip(full(CODE + 3)), Packet::Tip(full(CODE + 2))];
        let mut all = psb_plus(Some(CODE + from));
        all.extend([&packets[..], &[end_at(CODE + 2)[0], end_at(0)[1]]].concat());
        let (told, _) = decode(&code, &all);
        let handled = [block(3, 4, 2, IndirectJump, 2), stopped(2)];
        let expected: Vec<_> = [Told::Enabled(CODE + from)]
            .into_iter()
            .chain(before)
            .chain([Told::Interrupt(CODE + 1, CODE + 3)])
            .chain(handled)
            .collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn an_overflow_trap_that_does_nothing_makes_no_packet() {
    // 0: into; 1: je 1
    let code = [0xce, 0x74, 0xfe];
    let mode = Packet::ModeExec { mode: Execution::Bits32, interrupt_flag: false };
    let begin = [Packet::Psb, Packet::Psbend, mode, Packet::TipPge(full(CODE))];
    let (told, _) = decode(&code, &[&begin[..], &[branches(&[true]), end_at(CODE + 1)[0], end_at(0)[1]]].concat());
    assert_eq!(told, [Told::Enabled(CODE), block(0, 1, 2, CondTaken, 1), stopped(1)]);
    // Where it interrupts, the packets of an interrupt say so.
    let interrupt = [Packet::Fup(full(CODE)), Packet::Tip(full(CODE + 1)), end_at(CODE + 1)[0], end_at(0)[1]];
    let (told, _) = decode(&code, &[&begin[..], &interrupt].concat());
    assert_eq!(told, [Told::Enabled(CODE), Told::Interrupt(CODE, CODE + 1), stopped(1)]);
}

#[test]
fn no_code_is_needed_where_the_stream_ends() {
    // 0: jz +0 (taken), 2: jmp to 0x50_0000
    let code = [0x74, 0x00, 0xe9, 0xf9, 0xef, 0x0f, 0x00];
    let told = run(&code, &[branches(&[true])]);
    assert_eq!(told, [block(0, 0, 1, CondTaken, 2), block(2, 2, 1, Jump, 0x50_0000 - CODE)]);

    let told = run(&code, &[branches(&[true, true])]);
    assert!(matches!(told.last(), Some(Told::Loss(Loss { reason: Reason::NoCode, .. }))), "{told:?}");
}

#[test]
fn lone_fups_do_not_change_the_flow() {
    let told = run(
        BRANCHES,
        &[
            Packet::Ptw { payload: 1, size: 4, fup: true },
            Packet::Fup(full(CODE + 1)),
            Packet::ModeTsx { in_transaction: true, aborted: false },
            Packet::Fup(full(CODE + 1)),
            Packet::Exstop { fup: true },
            Packet::Fup(full(CODE + 1)),
            branches(&[true]),
            end_at(CODE + 4)[0],
            end_at(0)[1],
        ],
    );
    assert_eq!(told, [block(0, 0, 1, Linear, 1), block(1, 1, 1, CondTaken, 4), stopped(4)]);
}

#[test]
fn a_group_of_pebs_data_with_its_address_changes_nothing() {
    let group = [Packet::Bbp { kind: 1, size: 8 }, Packet::Bip { id: 3, payload: 7 }, Packet::Bep { fup: true }];
    let address = [Packet::Fup(full(CODE + 1))];
    let told = run(BRANCHES, &[&group[..], &address, &[branches(&[true])], &end_at(CODE + 4)].concat());
    assert_eq!(told, [block(0, 1, 2, CondTaken, 4), stopped(4)]);
}

#[test]
fn a_stream_that_just_ends_ends_before_the_branch_it_does_not_decide() {
    let told = run(BRANCHES, &[branches(&[false])]);
    let expected = [block(0, 1, 2, CondNotTaken, 3), block(3, 5, 3, Jump, 0), block(0, 0, 1, Interrupted, 1)];
    assert_eq!(told, expected);
}

#[test]
fn blocks_carry_the_time_of_the_packets_before() {
    let mut packets = vec![Packet::Psb, Packet::Tsc(5000), Packet::Fup(full(CODE)), Packet::Psbend];
    packets.extend([branches(&[true]), Packet::Tsc(6000), branches(&[true]), end_at(CODE + 4)[0], end_at(0)[1]]);
    let mut memory = Sections::default();
    memory.0.insert(CODE, BRANCHES.to_vec());
    let mut sink = Recorder::default();
    Flow::new(&memory).decode(&stream(&packets), &Config::default(), &[], &mut sink);
    assert_eq!(sink.times, [5000, 5000, 6000, 6000, 6000]);
}

/// Damaged real and random streams: no panic, no endless loop, and losses that lie within the stream, in order.
#[test]
fn any_stream_ends() {
    let mut memory = Sections::default();
    let mut code = BRANCHES.to_vec();
    code.extend(CALL);
    code.extend(SYSTEM_CALL);
    code.extend([0xff, 0xe0, 0xff, 0xd0, 0xeb, 0xfe, 0x06]);
    let size = code.len() as u64;
    memory.0.insert(CODE, code);
    let mut seed = 88_172_645_463_325_252_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut flow = Flow::new(&memory);
    for round in 0..20_000 {
        let mut bytes = stream(&psb_plus(Some(CODE + random(size))));
        for _ in 0..random(40) {
            let ip = full(CODE + random(size + 2));
            let packet = match random(16) {
                0 | 1 => Packet::Tip(ip),
                2 => Packet::TipPge(ip),
                3 => Packet::TipPgd(if random(2) == 0 { ip } else { Ip::SUPPRESSED }),
                4 => Packet::Fup(ip),
                5 => Packet::Ovf,
                6 => Packet::Psbend,
                7 => Packet::Tsc(random(1 << 20)),
                8 => Packet::Tma { ctc: random(1 << 16) as u16, fast_counter: random(512) as u16 },
                9 => Packet::Mtc(random(256) as u8),
                10 => Packet::Cyc(random(1 << 40)),
                11 => Packet::ModeExec {
                    mode: if random(2) == 0 { Execution::Bits64 } else { Execution::Bits32 },
                    interrupt_flag: false,
                },
                12 => {
                    bytes.extend(stream(&psb_plus((random(2) == 0).then_some(ip.payload))));
                    Packet::Pad
                }
                _ => Packet::Tnt { bits: random(64), count: 6 },
            };
            writer::write(&mut bytes, packet);
        }
        for _ in 0..random(4) {
            let at = random(bytes.len() as u64) as usize;
            bytes[at] = random(256) as u8;
        }
        let config = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() };
        let mut sink = Recorder::default();
        flow.decode(&bytes, &config, &[(0, 1), (bytes.len() / 2, 2)], &mut sink);
        assert!(sink.times.is_sorted(), "round {round}");
        let mut behind = 0;
        for told in &sink.told {
            let Told::Loss(loss) = told else { continue };
            assert!(loss.offset >= behind, "round {round}: {:x?}", sink.told);
            behind = loss.offset + loss.size;
            assert!(behind <= bytes.len(), "round {round}");
        }
    }
}

#[test]
fn branches_that_are_not_traced_are_gaps_and_no_errors() {
    let mut packets = psb_plus(Some(CODE));
    packets.extend([Packet::Tip(full(CODE + 5)), Packet::Fup(full(CODE + 4)), Packet::TipPgd(Ip::SUPPRESSED)]);
    let mut memory = Sections::default();
    memory.0.insert(CODE, BRANCHES.to_vec());
    let mut sink = Recorder::default();
    let config = Config { without_tnt: true, ..Config::default() };
    let statistics = Flow::new(&memory).decode(&stream(&packets), &config, &[], &mut sink);
    assert_eq!((statistics.errors, statistics.lost_bytes), (0, 0));
    let gaps = |told: &&Told| matches!(told, Told::Loss(Loss { reason: Reason::NotTraced, size: 0, .. }));
    assert_eq!(sink.told.iter().filter(gaps).count(), 2, "{:?}", sink.told);
    assert!(sink.told.contains(&Told::Enabled(CODE + 5)) && sink.told.last() == Some(&stopped(4)), "{:?}", sink.told);
}

#[test]
fn a_psb_behind_a_branch_that_is_not_traced_is_no_error() {
    // 0: je 3; 2: nop; 3: jmp *%rax
    let memory = Sections([(CODE, vec![0x74, 0x01, 0x90, 0xff, 0xe0])].into());
    let packets = [psb_plus(Some(CODE)), psb_plus(Some(CODE + 3)), vec![Packet::Tip(full(CODE + 2))]].concat();
    let mut sink = Recorder::default();
    let config = Config { without_tnt: true, ..Config::default() };
    let statistics = Flow::new(&memory).decode(&stream(&packets), &config, &[], &mut sink);
    assert_eq!((statistics.errors, statistics.lost_bytes), (0, 0), "{:?}", sink.told);
    assert!(sink.told.contains(&Told::Enabled(CODE + 3)), "{:?}", sink.told);
}

/// The packet is of the system call to which both branches lead.
#[test]
fn a_branch_that_is_not_traced_disables_nothing() {
    let packets =
        [&psb_plus(Some(CODE))[..], &[Packet::TipPgd(Ip::SUPPRESSED), Packet::TipPge(full(CODE + 5))]].concat();
    let mut memory = Sections::default();
    // 0: je 3; 2: nop; 3: syscall; 5: jmp *%rax
    memory.0.insert(CODE, vec![0x74, 0x01, 0x90, 0x0f, 0x05, 0xff, 0xe0]);
    let mut sink = Recorder::default();
    let config = Config { without_tnt: true, ..Config::default() };
    Flow::new(&memory).decode(&stream(&packets), &config, &[], &mut sink);
    let gap = |told: &Told| matches!(told, Told::Loss(Loss { reason: Reason::NotTraced, size: 0, .. }));
    assert!(sink.told.len() == 4 && gap(&sink.told[1]), "{:?}", sink.told);
    let disabled = Told::Disabled(DisableKind::Synchronous, 0, None);
    assert_eq!(sink.told[2..], [disabled, Told::Enabled(CODE + 5)], "{:?}", sink.told);
}

#[test]
fn times_go_on_where_a_target_cannot_be_read_and_while_tracing_is_disabled() {
    const AWAY: u64 = 0x7f00_0000_1000;
    let config = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() };
    let there = Packet::Tip(full(CODE));
    let mut packets = vec![
        Packet::Psb,
        Packet::Tsc(10_000),
        Packet::Tma { ctc: 0x46 << 3, fast_counter: 0 },
        Packet::Cbr { ratio: 20 },
        Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false },
        Packet::Fup(full(CODE)),
        Packet::Psbend,
    ];
    for count in 0x47..0x57 {
        packets.extend([Packet::Cyc(300), branches(&[false]), there, Packet::Cyc(372), Packet::Mtc(count)]);
    }
    // No code is needed where tracing stops before the first instruction.
    packets.extend([
        Packet::Cyc(7),
        branches(&[false]),
        Packet::Tip(full(AWAY)),
        Packet::Cyc(5),
        Packet::Fup(full(AWAY)),
        Packet::TipPgd(Ip::SUPPRESSED),
    ]);
    let stopped = packets.len() - 1;
    // Cycles in one, two and three bytes.
    packets.extend([Packet::Cyc(11), Packet::Cyc(649), Packet::Mtc(0x57), Packet::Pad, Packet::Cyc(9_000)]);
    packets.extend([Packet::TipPge(full(CODE)), Packet::Cyc(13), branches(&[false]), there]);
    let mut time = Time::new(config);
    let times: Vec<u64> = packets.iter().map(|packet| (time.take(packet), time.now()).1).collect();
    packets.extend([Packet::Pad; 32]);
    let mut memory = Sections::default();
    memory.0.insert(CODE, vec![0x74, 0x00, 0xff, 0xe0]); // 0: je 2; 2: jmp *%rax
    let mut sink = Recorder::default();
    let statistics = Flow::new(&memory).decode(&stream(&packets), &config, &[], &mut sink);
    let away = sink.told.iter().position(|told| *told == Told::Disabled(DisableKind::Asynchronous, AWAY, None));
    assert_eq!(away.map(|index| sink.times[index]), Some(times[stopped]), "{:?}", sink.told);
    assert_eq!(sink.times.last(), times.last());
    assert_eq!((statistics.packets, statistics.errors), (packets.len() as u64, 0));
}

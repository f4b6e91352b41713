//! Code that changes between 64-bit and 32-bit mode.

use crate::flow::{full, psb_plus, stream};
use crate::support::{blocks_of_parts, Addresses, Recorder, Sections, Told};
use pt_flow::{BlockKind, Config, Flow};
use pt_packet::{Execution, Packet};

/// 64-bit code above 4 GiB; 32-bit code, and what stands at the lower half of the address behind the call.
const WIDE: u64 = 0x7fff_0040_1000;
const NARROW: u64 = 0x50_0000;
const LOWER: u64 = 0x40_1005;

fn told(packets: &[Packet]) -> Vec<(u64, BlockKind, u64)> {
    let mut memory = Sections::default();
    // 0: call 6; 5: hlt; 6: jmp far [rax]; 8: ret
    memory.0.insert(WIDE, vec![0xe8, 1, 0, 0, 0, 0xf4, 0xff, 0x28, 0xc3]);
    // 0: ret; 1: jmp far [eax]
    memory.0.insert(NARROW, vec![0xc3, 0xff, 0x28]);
    // 0: jmp eax
    memory.0.insert(LOWER, vec![0xff, 0xe0]);
    let all = [&psb_plus(Some(WIDE)), packets].concat();
    let mut sink = Recorder::default();
    let config = Config { stop_at_last_packet: true, ..Config::default() };
    Flow::new(&memory).decode(&stream(&all), &config, &[], &mut sink);
    let ran = |told: Told| match told {
        Told::Block { start, kind, target, .. } => Some((start, kind, target)),
        Told::Enabled(_) => None,
        told => panic!("{told:x?}"),
    };
    sink.told.into_iter().filter_map(ran).collect()
}

fn far(mode: Execution, ip: u64) -> [Packet; 2] {
    [Packet::ModeExec { mode, interrupt_flag: false }, Packet::Tip(full(ip))]
}

const RETURNS: Packet = Packet::Tnt { bits: 1, count: 1 };
const CALLED: [(u64, BlockKind, u64); 2] = [(WIDE, BlockKind::Call, WIDE + 6), (WIDE + 6, BlockKind::Far, NARROW)];

#[test]
fn a_compressed_return_of_32_bits_goes_to_the_lower_half_of_the_address_behind_its_call() {
    let packets = [&far(Execution::Bits32, NARROW)[..], &[RETURNS, Packet::Tip(full(NARROW))]].concat();
    let returned = [(NARROW, BlockKind::Return, LOWER), (LOWER, BlockKind::IndirectJump, NARROW)];
    assert_eq!(told(&packets), [CALLED, returned].concat());
}

#[test]
fn one_of_64_bits_goes_back_behind_its_call_whatever_the_mode_was_meanwhile() {
    let there = far(Execution::Bits32, NARROW + 1);
    let back = far(Execution::Bits64, WIDE + 8);
    let called = [CALLED[0], (WIDE + 6, BlockKind::Far, NARROW + 1)];
    let returned = [(NARROW + 1, BlockKind::Far, WIDE + 8), (WIDE + 8, BlockKind::Return, WIDE + 5)];
    assert_eq!(told(&[&there[..], &back, &[RETURNS]].concat()), [called, returned].concat());
}

#[test]
fn a_far_call_into_code_of_the_other_mode_is_told_from_a_far_jump() {
    // 0: call far [rax]; 2: jmp far [rax]. Far there: 0: retf
    let mut memory = Sections::default();
    memory.0.insert(WIDE, vec![0xff, 0x18, 0xff, 0x28]);
    memory.0.insert(NARROW, vec![0xcb]);
    let (there, back) = (far(Execution::Bits32, NARROW), far(Execution::Bits64, WIDE + 2));
    let packets = [&psb_plus(Some(WIDE))[..], &there, &back, &there].concat();
    let mut sink = Recorder::default();
    let config = Config { stop_at_last_packet: true, ..Config::default() };
    Flow::new(&memory).decode(&stream(&packets), &config, &[], &mut sink);
    let block = |at, kind, target| Told::Block { start: at, last: at, instructions: 1, kind, target };
    let expected = [
        Told::Enabled(WIDE),
        block(WIDE, BlockKind::FarCall, NARROW),
        block(NARROW, BlockKind::Far, WIDE + 2),
        block(WIDE + 2, BlockKind::Far, NARROW),
    ];
    assert_eq!(sink.told, expected);
}

/// Where 64 bits are one instruction of three bytes, and 32 bits two.
const AT: u64 = 0x1002;

/// The addresses of what runs from a `je` in front of there on, and of the blocks as a sink is told that divides them at PSBs.
fn told_both_ways(packets: &[Packet]) -> (Vec<u64>, Vec<u64>) {
    // 1000: je 1002; 1002: mov rax, rax (dec eax; mov eax, eax); 1005: je 1007; 1007: jmp rax
    let memory = Sections([(0x1000, vec![0x74, 0, 0x48, 0x89, 0xc0, 0x74, 0, 0xff, 0xe0])].into());
    let narrow = Packet::ModeExec { mode: Execution::Bits32, interrupt_flag: false };
    let not_taken = Packet::Tnt { bits: 0, count: 1 };
    let begin = [Packet::Psb, narrow, Packet::Fup(full(0x1000)), Packet::Psbend, not_taken];
    let data = stream(&[&begin[..], packets, &[not_taken, Packet::Tip(full(0x1000))]].concat());
    let config = Config { stop_at_last_packet: true, ..Config::default() };
    let mut sink = Addresses::default();
    Flow::new(&memory).decode(&data, &config, &[], &mut sink);
    assert_eq!(sink.losses, []);
    let divided = blocks_of_parts(&memory, &data, &config, 1, usize::MAX).0;
    (sink.addresses, divided.into_iter().map(|(start, _)| start).collect())
}

#[test]
fn a_mode_in_front_of_the_very_instruction_where_execution_is_holds_for_that_one() {
    let wide = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false };
    let psb = [Packet::Psb, wide, Packet::Fup(full(AT)), Packet::Psbend];
    for packets in [&[wide, Packet::Fup(full(AT))][..], &[&[wide][..], &psb].concat()] {
        let (addresses, blocks) = told_both_ways(packets);
        assert_eq!(addresses, [0x1000, AT, 0x1005, 0x1007]);
        assert_eq!(blocks, [0x1000, AT, 0x1007]);
    }
}

#[test]
fn a_mode_whose_instruction_does_not_come_by_holds_from_the_block_before_the_next_packet_on() {
    let wide = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false };
    let (addresses, blocks) = told_both_ways(&[wide, Packet::Fup(full(0x9999))]);
    assert_eq!(addresses, [0x1000, AT, 0x1005, 0x1007]);
    assert_eq!(blocks, [0x1000, AT, 0x1007]);
}

#[test]
fn a_mode_in_front_of_what_is_no_instruction_in_the_one_before_makes_it_one() {
    // jmp rax; there: push es, jmp eax
    let memory = Sections([(WIDE, vec![0xff, 0xe0]), (NARROW, vec![0x06, 0xff, 0xe0])].into());
    let mode = Packet::ModeExec { mode: Execution::Bits32, interrupt_flag: true };
    let there = [Packet::Tip(full(NARROW)), mode, Packet::Fup(full(NARROW)), Packet::Tip(full(NARROW + 1))];
    let mut sink = Addresses::default();
    let config = Config { stop_at_last_packet: true, ..Config::default() };
    Flow::new(&memory).decode(&stream(&[&psb_plus(Some(WIDE))[..], &there].concat()), &config, &[], &mut sink);
    assert_eq!((sink.addresses, sink.losses), (vec![WIDE, NARROW, NARROW + 1], vec![]));
}

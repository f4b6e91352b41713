//! Code that changes between 64-bit and 32-bit mode.

use crate::flow::{full, psb_plus, stream};
use crate::support::{Recorder, Sections, Told};
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

//! Code that was written at run time and is told as it first ran, block by block.

use crate::support::kernel::ip;
use pt_calls::{Calls, Trace, NO_PARENT};
use pt_flow::{Config, Flow};
use pt_image::Image;
use pt_packet::writer::write;
use pt_packet::{Execution, Ip, Packet};
use std::ops::Range;

const MAIN: u64 = 0x9000;
const COUNT: u64 = 0x5000;
/// Calls COUNT twice.
const MAIN_CODE: [u8; 12] = [0xe8, 0xfb, 0xbf, 0xff, 0xff, 0xe8, 0xf6, 0xbf, 0xff, 0xff, 0x0f, 0x05];
/// `mov eax, edi; 2: test edi, edi; je 0xd; add eax, 1; dec edi; jmp 2; 0xd: ret`.
const COUNT_CODE: [u8; 14] = [0x89, 0xf8, 0x85, 0xff, 0x74, 0x07, 0x83, 0xc0, 0x01, 0xff, 0xcf, 0xeb, 0xf5, 0xc3];

/// Pieces of COUNT, by the epoch from which on they are known.
fn image(pieces: &[(u32, Range<usize>)]) -> Image {
    let mut image = Image::new();
    image.code(1, MAIN, MAIN_CODE.to_vec()).unwrap();
    for (epoch, piece) in pieces {
        image.code(*epoch, COUNT + piece.start as u64, COUNT_CODE[piece.clone()].to_vec()).unwrap();
    }
    image
}

/// One run, traced from `start` on: its branches in epoch 1, then those in epoch 2.
fn trace(image: &Image, start: u64, branches: [Packet; 2]) -> Trace {
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true };
    let mut stream = Vec::new();
    for packet in [Packet::Psb, mode, Packet::Psbend, Packet::TipPge(ip(start)), branches[0]] {
        write(&mut stream, packet);
    }
    let later = stream.len();
    for packet in [branches[1], Packet::TipPgd(Ip::SUPPRESSED)] {
        write(&mut stream, packet);
    }
    let mut calls = Calls::new(image);
    Flow::new(image).decode(&stream, &Config::default(), &[(0, 1), (later, 2)], &mut calls);
    let trace = calls.finish();
    assert_eq!(trace.losses, []);
    trace
}

fn functions(trace: &Trace) -> Vec<(u64, u64, u64)> {
    trace.functions.iter().map(|function| (function.address, function.calls, function.self_instructions)).collect()
}

#[test]
fn its_functions_are_what_was_called_and_not_its_blocks() {
    // A call without a turn, and one with two.
    let branches = [Packet::Tnt { bits: 0b11, count: 2 }, Packet::Tnt { bits: 0b0011, count: 4 }];
    let by_blocks = trace(&image(&[(1, 0..0x6), (1, 0xd..0xe), (2, 0x6..0xd)]), MAIN, branches);
    assert_eq!(functions(&by_blocks), [(MAIN, 1, 3), (COUNT, 2, 4 + 14)]);
    assert_eq!(by_blocks.records.parent, [NO_PARENT, 0, 0]);
    let at_once = trace(&image(&[(1, 0..0xe)]), MAIN, branches);
    assert_eq!(format!("{:?}", by_blocks.functions), format!("{:?}", at_once.functions));
    assert_eq!(format!("{:?}", by_blocks.records), format!("{:?}", at_once.records));
    assert_eq!(by_blocks.edges, at_once.edges);
}

#[test]
fn what_nobody_called_is_one_function_from_the_first_piece_of_any_epoch_on() {
    let image = image(&[(1, 0x6..0xd), (1, 0x2..0x6), (2, 0x0..0x2), (2, 0xd..0xe)]);
    let branches = [Packet::Tnt { bits: 0b0, count: 1 }, Packet::Tnt { bits: 0b1, count: 1 }];
    assert_eq!(functions(&trace(&image, COUNT + 6, branches)), [(COUNT, 1, 11)]);
}

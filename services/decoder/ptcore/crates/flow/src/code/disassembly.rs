//! Instructions up to the first branch: bytes to blocks.

use super::predecode::predecode;
use crate::code_block::{CodeBlock, Exit, Mark};
use crate::view::View;
use iced_x86::{
    Code, CodeSize, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

pub const MAX_INSTRUCTIONS: usize = 512;
pub const MAX_LENGTH: usize = 15;
/// REX2 JMPABS imm64 (Intel APX architecture specification): a direct jump that makes a TIP packet like an indirect one.
const JMPABS: u8 = 0xa1;
const JMPABS_LENGTH: usize = 11;
/// Legacy prefixes, and those of 64-bit mode by their high half.
const PREFIXES: [u8; 11] = [0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65];
const REX: u8 = 0x40;
const REX2: u8 = 0xd5;
/// Of what REX2 says, JMPABS asks only that it is in the first map and has no W.
const REX2_M_OR_W: u8 = 0x88;

/// Decodes `block`, of which the start is known, where it is to be kept: to be moved right behind its being written in parts, it would
/// wait until all of them are. Up to `most` instructions; what is in it behind an error means nothing.
pub fn decode(
    bytes: &[u8],
    view: View,
    most: usize,
    block: &mut CodeBlock,
    lengths: &mut Vec<u8>,
) -> Result<(), DecoderError> {
    let address = block.start;
    (block.instructions, block.exit, block.mode) = (0, Exit::Linear, view.execution());
    let mut slow = None;
    let is_64 = view.bitness() == 64;
    let mut at = 0;
    while usize::from(block.instructions) < most && block.exit == Exit::Linear {
        if is_64 {
            at = decode_known(bytes, at, most, block, lengths);
            if usize::from(block.instructions) == most || block.exit != Exit::Linear {
                break;
            }
        }
        let decoder =
            slow.get_or_insert_with(|| Decoder::with_ip(view.bitness(), bytes, address, DecoderOptions::NONE));
        let length = match decode_wholly(decoder, at, block) {
            Ok(length) => length,
            Err(_) if is_64 && is_jmpabs(&bytes[at..]) => {
                block.exit = Exit::IndirectJump;
                JMPABS_LENGTH as u8
            }
            Err(error) if block.instructions == 0 => return Err(error),
            Err(_) => break,
        };
        block.last = block.end;
        block.end = block.end.wrapping_add(length.into());
        block.instructions += 1;
        lengths.push(length);
        at += usize::from(length);
    }
    Ok(())
}

/// Goes on in the block with instructions that are told by tables; returns behind which byte.
#[inline(always)]
fn decode_known(bytes: &[u8], from: usize, most: usize, block: &mut CodeBlock, lengths: &mut Vec<u8>) -> usize {
    let first = block.end;
    let (mut at, mut last) = (from, from);
    let mut room = most - usize::from(block.instructions);
    let before = room;
    while room > 0 {
        let Some(known) = bytes.get(at..).and_then(predecode) else { break };
        last = at;
        at += known.length;
        lengths.push(known.length as u8);
        room -= 1;
        if known.exit != Exit::Linear {
            block.exit = known.exit;
            if matches!(known.exit, Exit::Cond | Exit::Jump | Exit::Call) {
                block.target = first.wrapping_add((at - from) as u64).wrapping_add_signed(known.displacement);
            }
            break;
        }
    }
    if room != before {
        block.last = first.wrapping_add((last - from) as u64);
        block.end = first.wrapping_add((at - from) as u64);
        block.instructions += (before - room) as u16;
    }
    at
}

/// The length of the instruction at the end of the block; what else the block needs is told to it.
#[cold]
fn decode_wholly(decoder: &mut Decoder, at: usize, block: &mut CodeBlock) -> Result<u8, DecoderError> {
    decoder.set_position(at).map_err(|_| DecoderError::NoMoreBytes)?;
    decoder.set_ip(block.end);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return Err(match decoder.last_error() {
            DecoderError::None => DecoderError::InvalidInstruction,
            error => error,
        });
    }
    block.exit = exit(&instruction);
    block.marks |= mark(&instruction).map_or(0, |mark| mark as u8);
    if matches!(block.exit, Exit::Cond | Exit::Jump | Exit::Call) {
        block.target = near_target(&instruction);
    }
    Ok(instruction.len() as u8)
}

/// Packets have linear addresses: in 16-bit code the base of CS is in them, which an offset within the segment has not.
fn near_target(instruction: &Instruction) -> u64 {
    let target = instruction.near_branch_target();
    if instruction.code_size() != CodeSize::Code16 || instruction.op0_kind() != OpKind::NearBranch16 {
        return target;
    }
    let next = instruction.next_ip();
    let displacement = (target as u16).wrapping_sub(next as u16) as i16;
    next.wrapping_add_signed(displacement.into())
}

fn is_jmpabs(bytes: &[u8]) -> bool {
    bytes.len() >= JMPABS_LENGTH && bytes[0] == REX2 && bytes[1] & REX2_M_OR_W == 0 && bytes[2] == JMPABS
}

/// Whether the bytes begin like the instructions of extensions (SDM volume 2, appendix A): with two opcode bytes, REX2, VEX or EVEX.
pub fn is_extensible(bytes: &[u8]) -> bool {
    let is_prefix = |byte: u8| PREFIXES.contains(&byte) || byte & 0xf0 == REX;
    let opcode = bytes.iter().copied().take(MAX_LENGTH).find(|&byte| !is_prefix(byte));
    matches!(opcode, Some(0x0f | 0x62 | 0xc4 | 0xc5 | REX2))
}

/// Which instructions make packets (SDM table "Branch-related instructions and packets").
pub fn exit(instruction: &Instruction) -> Exit {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend | FlowControl::Exception => Exit::Linear,
        // It interrupts, which is an event of its own, or does nothing.
        FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Into => Exit::Linear,
        FlowControl::ConditionalBranch => Exit::Cond,
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Exit::Jump,
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Exit::IndirectJump,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Interrupt => Exit::Far,
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => Exit::Return,
        FlowControl::Return => Exit::Far,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Exit::IndirectCall,
        FlowControl::IndirectCall => Exit::FarCall,
        FlowControl::Call if instruction.is_call_near() => Exit::Call,
        FlowControl::Call => match instruction.code() {
            Code::Syscall | Code::Sysenter | Code::Vmcall | Code::Vmlaunch | Code::Vmresume => Exit::Far,
            _ if instruction.is_call_far() => Exit::FarCall,
            _ => Exit::Linear,
        },
    }
}

pub fn mark(instruction: &Instruction) -> Option<Mark> {
    match instruction.mnemonic() {
        Mnemonic::Ptwrite => Some(Mark::PtWrite),
        Mnemonic::Mov if instruction.op0_register() == Register::CR3 => Some(Mark::Cr3),
        Mnemonic::Vmptrld => Some(Mark::Vmcs),
        Mnemonic::Vmlaunch | Mnemonic::Vmresume => Some(Mark::VmEntry),
        _ => None,
    }
}

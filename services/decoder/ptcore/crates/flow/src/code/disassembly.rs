//! Instructions up to the first branch: bytes to blocks.

use crate::code_block::{unknown, CodeBlock, Exit, Mark};
use crate::view::View;
use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

pub const MAX_INSTRUCTIONS: usize = 512;
pub const MAX_LENGTH: usize = 15;
/// REX2 JMPABS imm64 (APX): a direct jump that makes a TIP packet like an indirect one.
const JMPABS: [u8; 3] = [0xd5, 0x00, 0xa1];
const JMPABS_LENGTH: usize = 11;

pub fn decode(bytes: &[u8], address: u64, view: View, lengths: &mut Vec<u8>) -> Result<CodeBlock, DecoderError> {
    decode_some(bytes, address, view, MAX_INSTRUCTIONS, lengths)
}

pub fn decode_some(
    bytes: &[u8],
    address: u64,
    view: View,
    most: usize,
    lengths: &mut Vec<u8>,
) -> Result<CodeBlock, DecoderError> {
    let mut decoder = Decoder::with_ip(view.bitness(), bytes, address, DecoderOptions::NONE);
    let mut block = CodeBlock { instructions: 0, exit: Exit::Linear, mode: view.execution(), ..unknown(address) };
    let mut instruction = Instruction::default();
    while usize::from(block.instructions) < most {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            let at = block.end.wrapping_sub(address) as usize;
            if view.bitness() == 64 && bytes[at..].starts_with(&JMPABS) && bytes.len() - at >= JMPABS_LENGTH {
                block.last = block.end;
                block.end = block.end.wrapping_add(JMPABS_LENGTH as u64);
                block.instructions += 1;
                lengths.push(JMPABS_LENGTH as u8);
                block.exit = Exit::IndirectJump;
                break;
            }
            if block.instructions == 0 {
                return Err(match decoder.last_error() {
                    DecoderError::None => DecoderError::InvalidInstruction,
                    error => error,
                });
            }
            break;
        }
        block.last = block.end;
        block.end = instruction.next_ip();
        block.instructions += 1;
        lengths.push(instruction.len() as u8);
        block.exit = exit(&instruction);
        block.marks |= mark(&instruction).map_or(0, |mark| mark as u8);
        if matches!(block.exit, Exit::Cond | Exit::Jump | Exit::Call) {
            block.target = instruction.near_branch_target();
        }
        if block.exit != Exit::Linear {
            break;
        }
    }
    Ok(block)
}

/// Which instructions make packets (SDM table "Branch-related instructions and packets").
fn exit(instruction: &Instruction) -> Exit {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend | FlowControl::Exception => Exit::Linear,
        FlowControl::ConditionalBranch => Exit::Cond,
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Exit::Jump,
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Exit::IndirectJump,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Interrupt => Exit::Far,
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => Exit::Return,
        FlowControl::Return => Exit::Far,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Exit::IndirectCall,
        FlowControl::IndirectCall => Exit::Far,
        FlowControl::Call if instruction.is_call_near() => Exit::Call,
        FlowControl::Call => match instruction.code() {
            Code::Syscall | Code::Sysenter | Code::Vmcall | Code::Vmlaunch | Code::Vmresume => Exit::Far,
            _ if instruction.is_call_far() => Exit::Far,
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

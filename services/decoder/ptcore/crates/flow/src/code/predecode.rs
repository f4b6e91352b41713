//! Lengths and exits of what is frequent in 64-bit code, without the rest of what a disassembler tells.

use super::opcodes::{Mandatory, OperandSize, FORMS};
use crate::code_block::Exit;

/// An instruction that is valid and has no [`Mark`](crate::code_block::Mark).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecoded {
    /// 1 to 15 bytes. A word, like the displacement: smaller ones would be packed for each instruction, and unpacked.
    pub length: usize,
    pub exit: Exit,
    /// From its end to the target of a direct branch; else 0.
    pub displacement: i64,
}

/// More bytes than the longest instruction has.
const WINDOW: usize = 16;
const LONGEST: usize = 15;
const MOST_PREFIXES: usize = 6;
const TWO_BYTES: u8 = 0x0f;
const GROUP3: u8 = 0xf6;

/// The first instruction of 64-bit code; none when it is rare, too near to the end of the bytes, or perhaps invalid.
#[inline(always)]
pub fn predecode(bytes: &[u8]) -> Option<Predecoded> {
    let window = bytes.first_chunk()?;
    behind_prefixes(window, 0, Mandatory::None).or_else(|| with_prefixes(window))
}

#[cold]
#[inline(never)]
fn with_prefixes(window: &[u8; WINDOW]) -> Option<Predecoded> {
    let (prefixes, mandatory) = prefixes(window).filter(|&(prefixes, _)| prefixes != 0)?;
    behind_prefixes(window, prefixes, mandatory).filter(|known| known.length <= LONGEST)
}

/// What differs from one instruction to the next is looked up and added, as branches would seldom be foretold.
#[inline(always)]
fn behind_prefixes(window: &[u8; WINDOW], prefixes: usize, mandatory: Mandatory) -> Option<Predecoded> {
    let word = u64::from_le_bytes(*window.get(prefixes..)?.first_chunk()?);
    let rex = word as u8;
    let has_rex = usize::from(rex & 0xf0 == 0x40);
    let word = word >> (8 * has_rex);
    let size = if rex & 0xf8 == 0x48 {
        OperandSize::Bits64
    } else if mandatory == Mandatory::P66 {
        OperandSize::Bits16
    } else {
        OperandSize::Bits32
    };

    let two_bytes = usize::from(word as u8 == TWO_BYTES);
    let word = word >> (8 * two_bytes);
    let [opcode, modrm, sib, ..] = word.to_le_bytes();
    let map = two_bytes * (1 + mandatory as usize);
    let form = &FORMS[map][usize::from(opcode)];

    let reg = modrm >> 3 & 7;
    if form.valid >> (reg | u8::from(modrm >= 0xc0) << 3) & 1 == 0 {
        return None;
    }
    let operands = usize::from(form.modrm) * operands(modrm, sib);
    let has_none = (opcode & 0xfe == GROUP3) & (map == 0) & (reg > 1);
    let immediate = usize::from(!has_none) * form.immediate(size);
    let length = prefixes + has_rex + two_bytes + 1 + operands + immediate;
    let linear = Predecoded { length, exit: Exit::Linear, displacement: 0 };
    if form.exit == Exit::Linear {
        return Some(linear);
    }
    // Branches of 16 bits are another matter.
    if mandatory == Mandatory::P66 {
        return None;
    }
    Some(match form.exit {
        Exit::IndirectJump => match reg {
            2 => Predecoded { exit: Exit::IndirectCall, ..linear },
            4 => Predecoded { exit: Exit::IndirectJump, ..linear },
            _ => linear,
        },
        Exit::Return => Predecoded { exit: Exit::Return, ..linear },
        exit if immediate == 1 => Predecoded { exit, displacement: (modrm as i8).into(), ..linear },
        exit => Predecoded { exit, displacement: ((word >> 8) as i32).into(), ..linear },
    })
}

/// Those that change neither length nor validity by themselves. Not: LOCK, and 67, which shortens addresses.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0xf2 | 0xf3)
}

/// How many prefixes, and which of them that choose an instruction, if not several.
fn prefixes(window: &[u8; WINDOW]) -> Option<(usize, Mandatory)> {
    let mut mandatory = Mandatory::None;
    for (at, &byte) in window.iter().enumerate().take(MOST_PREFIXES + 1) {
        let prefix = match byte {
            0x66 => Mandatory::P66,
            0xf3 => Mandatory::PF3,
            0xf2 => Mandatory::PF2,
            _ if is_prefix(byte) => continue,
            _ => return Some((at, mandatory)),
        };
        if mandatory != Mandatory::None && mandatory != prefix {
            return None;
        }
        mandatory = prefix;
    }
    None
}

/// Bytes of ModRM, SIB and displacement.
#[inline(always)]
fn operands(modrm: u8, sib: u8) -> usize {
    let known = OPERANDS[usize::from(modrm)];
    let wide = (known / BASELESS) & u8::from(sib & 7 == 5);
    usize::from(known % BASELESS + 4 * wide)
}

/// In [`OPERANDS`]: a SIB without a base has a displacement.
const BASELESS: u8 = 1 << 4;

/// By ModRM: how many bytes with SIB and displacement (SDM table 2-2).
static OPERANDS: [u8; 256] = {
    let mut known = [0; 256];
    let mut modrm = 0;
    while modrm < 256 {
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let has_sib = mode != 3 && rm == 4;
        let displacement = match mode {
            0 if rm == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        known[modrm] = 1 + has_sib as u8 + displacement;
        if mode == 0 && has_sib {
            known[modrm] += BASELESS;
        }
        modrm += 1;
    }
    known
};

#[cfg(test)]
mod tests;

//! Lengths and exits of what is frequent in 64-bit code, without the rest of what a disassembler tells.

use super::opcodes::{Form, Mandatory, More, OperandSize, FORMS};
use crate::code_block::Exit;
use crate::cold_path::cold_path;

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
/// In [`Form::valid`]: /0 and /1 of group 3, /2 and /4 of group 5.
const TESTS: u16 = 0x0303;
const CALL: u16 = 0x0404;
const JUMP: u16 = 0x1010;
const LONGEST: usize = 15;
const MOST_PREFIXES: usize = 6;
const TWO_BYTES: u8 = 0x0f;

/// The first instruction of 64-bit code; none when it is rare, too near to the end of the bytes, or perhaps invalid.
#[inline(always)]
pub fn predecode(bytes: &[u8]) -> Option<Predecoded> {
    let window = bytes.first_chunk()?;
    let one = Measured::behind(window, 0, Mandatory::None);
    if one.is_valid() && one.form.more == More::Nothing {
        return Some(Predecoded { length: one.length, exit: Exit::Linear, displacement: 0 });
    }
    one.known(false).or_else(|| with_prefixes(window))
}

#[cold]
#[inline(never)]
fn with_prefixes(window: &[u8; WINDOW]) -> Option<Predecoded> {
    let (prefixes, mandatory) = prefixes(window).filter(|&(prefixes, _)| prefixes != 0)?;
    let one = Measured::behind(window, prefixes, mandatory);
    one.known(mandatory == Mandatory::P66).filter(|known| known.length <= LONGEST)
}

/// An instruction by its opcode and ModRM.
struct Measured {
    form: &'static Form,
    modrm: ModRm,
    length: usize,
    immediate: usize,
    /// Its bytes behind the opcode.
    rest: u64,
}

impl Measured {
    /// What differs from one instruction to the next is looked up and added, as branches would seldom be foretold, but for
    /// opcodes of two bytes.
    #[inline(always)]
    fn behind(window: &[u8; WINDOW], prefixes: usize, mandatory: Mandatory) -> Measured {
        let word = u64::from_le_bytes(*window[prefixes..].first_chunk().unwrap_or(&[0; 8]));
        let rex = REX[usize::from(word as u8)];
        let word = word >> rex.bits;
        let size = match (rex.size, mandatory) {
            (OperandSize::Bits32, Mandatory::P66) => OperandSize::Bits16,
            (size, _) => size,
        };
        let (word, two_bytes, forms) = if word as u8 == TWO_BYTES {
            // So it is a branch, which is foretold, and not a choice that is waited for.
            cold_path();
            (word >> 8, 1, &FORMS[1 + mandatory as usize])
        } else {
            (word, 0, &FORMS[0])
        };
        let form = &forms[usize::from(word as u8)];

        let modrm = MODRM[usize::from((word >> 8) as u8)];
        let mut operands = modrm.bytes;
        if (word >> 16) as u8 & 7 == modrm.baseless {
            operands += 4;
        }
        let opcode = prefixes + usize::from(rex.bits / 8) + two_bytes + 1;
        let immediate = form.immediate(size);
        let length = opcode + usize::from(operands & form.operands) + immediate;
        Measured { form, modrm, length, immediate, rest: word >> 8 }
    }

    #[inline(always)]
    fn is_valid(&self) -> bool {
        self.form.valid & self.modrm.stands_for != 0
    }

    /// Behind a 66 or not.
    #[inline(always)]
    fn known(&self, is_short: bool) -> Option<Predecoded> {
        let linear = Predecoded { length: self.length, exit: Exit::Linear, displacement: 0 };
        let stands_for = self.modrm.stands_for;
        if !self.is_valid() {
            return None;
        }
        Some(match self.form.more {
            More::Nothing => linear,
            More::Group3 if stands_for & TESTS == 0 => Predecoded { length: self.length - self.immediate, ..linear },
            More::Group3 => linear,
            // Branches of 16 bits are another matter.
            _ if is_short => return None,
            More::Group5 if stands_for & CALL != 0 => Predecoded { exit: Exit::IndirectCall, ..linear },
            More::Group5 if stands_for & JUMP != 0 => Predecoded { exit: Exit::IndirectJump, ..linear },
            More::Group5 => linear,
            More::Exit(Exit::Return) => Predecoded { exit: Exit::Return, ..linear },
            More::Exit(exit) if self.immediate == 1 => {
                Predecoded { exit, displacement: (self.rest as i8).into(), ..linear }
            }
            More::Exit(exit) => Predecoded { exit, displacement: (self.rest as i32).into(), ..linear },
        })
    }
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

/// What a first byte says as a REX prefix.
#[derive(Clone, Copy)]
struct Rex {
    /// How many bits it takes: none when it is no such prefix.
    bits: u8,
    size: OperandSize,
}

static REX: [Rex; 256] = {
    let mut known = [Rex { bits: 0, size: OperandSize::Bits32 }; 256];
    let mut byte = 0x40;
    while byte < 0x50 {
        known[byte] = Rex { bits: 8, size: if byte & 8 == 0 { OperandSize::Bits32 } else { OperandSize::Bits64 } };
        byte += 1;
    }
    known
};

/// What a byte says as ModRM.
#[derive(Clone, Copy)]
#[repr(align(4))]
struct ModRm {
    /// The bit of [`Form::valid`].
    stands_for: u16,
    /// How many with SIB and displacement (SDM table 2-2).
    bytes: u8,
    /// The base in SIB with which there is a displacement of four bytes besides; none of all eight where there is no such base.
    baseless: u8,
}

static MODRM: [ModRm; 256] = {
    let mut known = [ModRm { stands_for: 0, bytes: 0, baseless: u8::MAX }; 256];
    let mut modrm = 0;
    while modrm < 256 {
        let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
        let has_sib = mode != 3 && rm == 4;
        let displacement = match mode {
            0 if rm == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        known[modrm].stands_for = 1 << (reg + 8 * (mode == 3) as usize);
        known[modrm].bytes = 1 + has_sib as u8 + displacement;
        if mode == 0 && has_sib {
            known[modrm].baseless = 5;
        }
        modrm += 1;
    }
    known
};

#[cfg(test)]
mod tests;

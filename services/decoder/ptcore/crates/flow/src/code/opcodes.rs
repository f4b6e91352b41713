//! Opcodes of 64-bit code whose lengths and kinds of exit are known without more than a look at ModRM (SDM appendix A).

use crate::code_block::Exit;

/// What follows an opcode. All of nothing: an opcode that is not known.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub struct Form {
    /// By ModRM.reg, and 8 more for a register operand: whether it stands for one instruction, surely.
    pub valid: u16,
    /// Bytes of immediates and displacements of branches, four bits each by operand size.
    immediate: u16,
    /// All bits where there is a ModRM.
    pub operands: u8,
    pub more: More,
}

/// What else there is to know of an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum More {
    Nothing,
    Exit(Exit),
    /// The immediate is that of /0 and /1.
    Group3,
    /// /2 is an indirect call, /4 an indirect jump.
    Group5,
}

/// Index of the size of immediates.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OperandSize {
    Bits32 = 0,
    Bits16 = 4,
    Bits64 = 8,
}

/// The prefix that chooses among instructions of one opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Mandatory {
    None = 0,
    P66 = 1,
    PF3 = 2,
    PF2 = 3,
}

impl Form {
    /// Bytes of the immediate.
    #[inline(always)]
    pub fn immediate(&self, size: OperandSize) -> usize {
        usize::from(self.immediate >> size as u8 & 0xf)
    }

    const fn of(self, valid: u16) -> Form {
        Form { valid: self.valid & valid, ..self }
    }

    /// With an immediate: how many bytes of it with operands of 32, 16 and 64 bits.
    const fn and(self, immediate: [u16; 3]) -> Form {
        Form { immediate: immediate[0] | immediate[1] << 4 | immediate[2] << 8, ..self }
    }

    const fn exits(self, exit: Exit) -> Form {
        self.with(More::Exit(exit))
    }

    const fn with(self, more: More) -> Form {
        Form { more, ..self }
    }
}

const UNKNOWN: Form = Form { valid: 0, immediate: 0, operands: 0, more: More::Nothing };
const PLAIN: Form = Form { valid: 0xffff, ..UNKNOWN };
const MODRM: Form = Form { operands: u8::MAX, ..PLAIN };
const MEMORY: Form = MODRM.of(0x00ff);
const REGISTER: Form = MODRM.of(0xff00);

/// Immediates: a byte, two, eight, and those as wide as operands up to 32 bits or wholly.
const IB: [u16; 3] = [1, 1, 1];
const IW: [u16; 3] = [2, 2, 2];
const IZ: [u16; 3] = [4, 2, 4];
const IV: [u16; 3] = [4, 2, 8];
const IWB: [u16; 3] = [3, 3, 3];
const OFFSET: [u16; 3] = [8, 8, 8];
const REL8: Form = PLAIN.and(IB);
const REL32: Form = PLAIN.and(IZ);

/// ModRM.reg one of the bits, with both kinds of operands.
const fn regs(bits: u16) -> u16 {
    bits | bits << 8
}

/// First and last opcode, and what follows them.
type Row = (u8, u8, Form);

const ONE_BYTE: &[Row] = &[
    (0x50, 0x5f, PLAIN),
    (0x63, 0x63, MODRM),
    (0x68, 0x68, PLAIN.and(IZ)),
    (0x69, 0x69, MODRM.and(IZ)),
    (0x6a, 0x6a, PLAIN.and(IB)),
    (0x6b, 0x6b, MODRM.and(IB)),
    (0x70, 0x7f, REL8.exits(Exit::Cond)),
    (0x80, 0x80, MODRM.and(IB)),
    (0x81, 0x81, MODRM.and(IZ)),
    (0x83, 0x83, MODRM.and(IB)),
    (0x84, 0x8b, MODRM),
    (0x8d, 0x8d, MEMORY),
    (0x8f, 0x8f, MODRM.of(regs(0b1))),
    (0x90, 0x99, PLAIN),
    (0x9c, 0x9f, PLAIN),
    (0xa0, 0xa3, PLAIN.and(OFFSET)),
    (0xa4, 0xa7, PLAIN),
    (0xa8, 0xa8, PLAIN.and(IB)),
    (0xa9, 0xa9, PLAIN.and(IZ)),
    (0xaa, 0xaf, PLAIN),
    (0xb0, 0xb7, PLAIN.and(IB)),
    (0xb8, 0xbf, PLAIN.and(IV)),
    (0xc0, 0xc1, MODRM.and(IB)),
    (0xc2, 0xc2, PLAIN.and(IW).exits(Exit::Return)),
    (0xc3, 0xc3, PLAIN.exits(Exit::Return)),
    (0xc6, 0xc6, MODRM.and(IB).of(regs(0b1))),
    (0xc7, 0xc7, MODRM.and(IZ).of(regs(0b1))),
    (0xc8, 0xc8, PLAIN.and(IWB)),
    (0xc9, 0xc9, PLAIN),
    (0xd0, 0xd3, MODRM),
    (0xd7, 0xd7, PLAIN),
    (0xe0, 0xe3, REL8.exits(Exit::Cond)),
    (0xe8, 0xe8, REL32.exits(Exit::Call)),
    (0xe9, 0xe9, REL32.exits(Exit::Jump)),
    (0xeb, 0xeb, REL8.exits(Exit::Jump)),
    (0xf5, 0xf5, PLAIN),
    (0xf6, 0xf6, MODRM.and(IB).with(More::Group3)),
    (0xf7, 0xf7, MODRM.and(IZ).with(More::Group3)),
    (0xf8, 0xf9, PLAIN),
    (0xfc, 0xfd, PLAIN),
    (0xfe, 0xfe, MODRM.of(regs(0b11))),
    (0xff, 0xff, MODRM.of(regs(0b101_0111)).with(More::Group5)),
];

const NP: u8 = 1 << Mandatory::None as u8;
const P66: u8 = 1 << Mandatory::P66 as u8;
const PF3: u8 = 1 << Mandatory::PF3 as u8;
const PF2: u8 = 1 << Mandatory::PF2 as u8;
const PACKED: u8 = NP | P66;
const ANY: u8 = NP | P66 | PF3 | PF2;

/// Those behind 0F, by the prefixes with which they are instructions.
const TWO_BYTE: &[(u8, Row)] = &[
    (NP, (0x0d, 0x0d, MEMORY)),
    (ANY, (0x10, 0x11, MODRM)),
    (NP | PF3 | PF2, (0x12, 0x12, MODRM)),
    (P66, (0x12, 0x12, MEMORY)),
    (PACKED, (0x13, 0x13, MEMORY)),
    (PACKED, (0x14, 0x15, MODRM)),
    (NP | PF3, (0x16, 0x16, MODRM)),
    (P66, (0x16, 0x16, MEMORY)),
    (PACKED, (0x17, 0x17, MEMORY)),
    (NP, (0x18, 0x18, MEMORY.of(regs(0b1111)))),
    // ENDBR64 and ENDBR32 among hints.
    (PF3, (0x1e, 0x1e, REGISTER.of(regs(0b1000_0000)))),
    (PACKED, (0x1f, 0x1f, MODRM)),
    (PACKED, (0x28, 0x29, MODRM)),
    (ANY, (0x2a, 0x2a, MODRM)),
    (PACKED, (0x2b, 0x2b, MEMORY)),
    (ANY, (0x2c, 0x2d, MODRM)),
    (PACKED, (0x2e, 0x2f, MODRM)),
    (NP, (0x31, 0x31, PLAIN)),
    (ANY, (0x40, 0x4f, MODRM)),
    (PACKED, (0x50, 0x50, REGISTER)),
    (ANY, (0x51, 0x51, MODRM)),
    (NP | PF3, (0x52, 0x53, MODRM)),
    (PACKED, (0x54, 0x57, MODRM)),
    (ANY, (0x58, 0x5a, MODRM)),
    (PACKED | PF3, (0x5b, 0x5b, MODRM)),
    (ANY, (0x5c, 0x5f, MODRM)),
    (PACKED, (0x60, 0x6b, MODRM)),
    (P66, (0x6c, 0x6d, MODRM)),
    (PACKED, (0x6e, 0x6e, MODRM)),
    (PACKED | PF3, (0x6f, 0x6f, MODRM)),
    (ANY, (0x70, 0x70, MODRM.and(IB))),
    (PACKED, (0x71, 0x72, REGISTER.and(IB).of(regs(0b101_0100)))),
    (NP, (0x73, 0x73, REGISTER.and(IB).of(regs(0b100_0100)))),
    (P66, (0x73, 0x73, REGISTER.and(IB).of(regs(0b1100_1100)))),
    (PACKED, (0x74, 0x76, MODRM)),
    (NP, (0x77, 0x77, PLAIN)),
    (P66 | PF2, (0x7c, 0x7d, MODRM)),
    (PACKED | PF3, (0x7e, 0x7f, MODRM)),
    (ANY, (0x80, 0x8f, REL32.exits(Exit::Cond))),
    (ANY, (0x90, 0x9f, MODRM)),
    (NP, (0xa2, 0xa2, PLAIN)),
    (ANY, (0xa3, 0xa3, MODRM)),
    (ANY, (0xa4, 0xa4, MODRM.and(IB))),
    (ANY, (0xa5, 0xa5, MODRM)),
    (ANY, (0xab, 0xab, MODRM)),
    (ANY, (0xac, 0xac, MODRM.and(IB))),
    (ANY, (0xad, 0xad, MODRM)),
    // Saving and restoring state, CLFLUSH; fences.
    (NP, (0xae, 0xae, MODRM.of(0xe0ff))),
    (ANY, (0xaf, 0xaf, MODRM)),
    (ANY, (0xb0, 0xb1, MODRM)),
    (ANY, (0xb3, 0xb3, MODRM)),
    (ANY, (0xb6, 0xb7, MODRM)),
    (PF3, (0xb8, 0xb8, MODRM)),
    (ANY, (0xba, 0xba, MODRM.and(IB).of(regs(0b1111_0000)))),
    (ANY, (0xbb, 0xbf, MODRM)),
    (ANY, (0xc0, 0xc1, MODRM)),
    (ANY, (0xc2, 0xc2, MODRM.and(IB))),
    (NP, (0xc3, 0xc3, MEMORY)),
    (PACKED, (0xc4, 0xc4, MODRM.and(IB))),
    (PACKED, (0xc5, 0xc5, REGISTER.and(IB))),
    (PACKED, (0xc6, 0xc6, MODRM.and(IB))),
    (NP, (0xc7, 0xc7, MEMORY.of(regs(0b10)))),
    (ANY, (0xc8, 0xcf, PLAIN)),
    (P66 | PF2, (0xd0, 0xd0, MODRM)),
    (PACKED, (0xd1, 0xd5, MODRM)),
    (P66, (0xd6, 0xd6, MODRM)),
    (PACKED, (0xd7, 0xd7, REGISTER)),
    (PACKED, (0xd8, 0xe5, MODRM)),
    (P66 | PF3 | PF2, (0xe6, 0xe6, MODRM)),
    (PACKED, (0xe7, 0xe7, MEMORY)),
    (PACKED, (0xe8, 0xef, MODRM)),
    (PF2, (0xf0, 0xf0, MEMORY)),
    (PACKED, (0xf1, 0xf6, MODRM)),
    (PACKED, (0xf7, 0xf7, REGISTER)),
    (PACKED, (0xf8, 0xfe, MODRM)),
];

/// Opcodes of one byte, then those behind 0F by [`Mandatory`].
pub static FORMS: [[Form; 256]; 5] = [one_byte(), two_byte(NP), two_byte(P66), two_byte(PF3), two_byte(PF2)];

const fn one_byte() -> [Form; 256] {
    let mut forms = [UNKNOWN; 256];
    // ADD, OR, ADC, SBB, AND, SUB, XOR, CMP.
    let mut first = 0;
    while first < 0x40 {
        forms = with(forms, (first, first + 3, MODRM));
        forms = with(forms, (first + 4, first + 4, PLAIN.and(IB)));
        forms = with(forms, (first + 5, first + 5, PLAIN.and(IZ)));
        first += 8;
    }
    let mut row = 0;
    while row < ONE_BYTE.len() {
        forms = with(forms, ONE_BYTE[row]);
        row += 1;
    }
    forms
}

const fn two_byte(prefix: u8) -> [Form; 256] {
    let mut forms = [UNKNOWN; 256];
    let mut row = 0;
    while row < TWO_BYTE.len() {
        if TWO_BYTE[row].0 & prefix != 0 {
            forms = with(forms, TWO_BYTE[row].1);
        }
        row += 1;
    }
    forms
}

const fn with(mut forms: [Form; 256], (first, last, form): Row) -> [Form; 256] {
    let mut opcode = first as usize;
    while opcode <= last as usize {
        forms[opcode] = form;
        opcode += 1;
    }
    forms
}

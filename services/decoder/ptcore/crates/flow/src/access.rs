//! Accesses to memory, by the kind of the instruction.

use iced_x86::{CpuidFeature, FlowControl, Instruction, Mnemonic, OpKind};

/// Kinds of instructions. Of several that fit, [`InstructionClass::of`] says which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum InstructionClass {
    /// With a LOCK prefix, and XCHG, which locks without one.
    Atomic = 0,
    /// Elements at addresses that a vector register holds: one access for all of them.
    Gather = 1,
    /// MOVS, STOS, LODS, SCAS, CMPS, INS, OUTS. A repeated one counts once: how often it repeats is not traced.
    String = 2,
    /// PUSH, POP, CALL, RET, ENTER, LEAVE.
    Stack = 3,
    /// Jumps to an address in memory.
    Branch = 4,
    /// Saves and restores state (XSAVE, FXRSTOR), or needs privilege. Widths that are not fixed are 0.
    System = 5,
    /// MMX, SSE, AVX, AMX and so on: with a vector, tile or mask register, or of one of these extensions alone.
    Vector = 6,
    /// x87.
    Float = 7,
    /// MOV, with or without extension or condition.
    Move = 8,
    /// Everything else: arithmetic, logic, comparisons.
    Integer = 9,
}

/// Extensions of vectors whose instructions may have no such register, as CVTTSD2SI and LDMXCSR.
const VECTOR_EXTENSIONS: [CpuidFeature; 7] = [
    CpuidFeature::SSE,
    CpuidFeature::SSE2,
    CpuidFeature::AVX,
    CpuidFeature::AVX512F,
    CpuidFeature::AVX512_FP16,
    CpuidFeature::AESKLE,
    CpuidFeature::AMX_TILE,
];

impl InstructionClass {
    pub const ALL: [InstructionClass; 10] = [
        InstructionClass::Atomic,
        InstructionClass::Gather,
        InstructionClass::String,
        InstructionClass::Stack,
        InstructionClass::Branch,
        InstructionClass::System,
        InstructionClass::Vector,
        InstructionClass::Float,
        InstructionClass::Move,
        InstructionClass::Integer,
    ];

    pub fn name(self) -> &'static str {
        match self {
            InstructionClass::Atomic => "atomic",
            InstructionClass::Gather => "gather",
            InstructionClass::String => "string",
            InstructionClass::Stack => "stack",
            InstructionClass::Branch => "branch",
            InstructionClass::System => "system",
            InstructionClass::Vector => "vector",
            InstructionClass::Float => "float",
            InstructionClass::Move => "move",
            InstructionClass::Integer => "integer",
        }
    }

    pub(crate) fn of(instruction: &Instruction) -> InstructionClass {
        let registers = (0..instruction.op_count())
            .filter(|&number| instruction.op_kind(number) == OpKind::Register)
            .map(|number| instruction.op_register(number));
        let mut vector = false;
        let mut float = false;
        for register in registers {
            vector |= register.is_vector_register() || register.is_mm() || register.is_k() || register.is_tmm();
            float |= register.is_st();
        }
        let features = instruction.cpuid_features();
        let has = |wanted: &[CpuidFeature]| features.iter().any(|feature| wanted.contains(feature));
        let is_vector_extension = has(&VECTOR_EXTENSIONS);
        match instruction.mnemonic() {
            _ if instruction.has_lock_prefix() => InstructionClass::Atomic,
            Mnemonic::Xchg => InstructionClass::Atomic,
            _ if instruction.is_vsib() => InstructionClass::Gather,
            _ if instruction.is_string_instruction() => InstructionClass::String,
            _ if instruction.is_save_restore_instruction() || instruction.is_privileged() => InstructionClass::System,
            _ if instruction.is_stack_instruction() => InstructionClass::Stack,
            _ if instruction.flow_control() != FlowControl::Next => InstructionClass::Branch,
            _ if vector || is_vector_extension && instruction.mnemonic() != Mnemonic::Movnti => {
                InstructionClass::Vector
            }
            _ if float || has(&[CpuidFeature::FPU, CpuidFeature::FPU287, CpuidFeature::FPU387]) => {
                InstructionClass::Float
            }
            Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Movbe
            | Mnemonic::Movnti => InstructionClass::Move,
            _ if has(&[CpuidFeature::CMOV]) => InstructionClass::Move,
            _ => InstructionClass::Integer,
        }
    }
}

/// How often something reads and writes memory in accesses of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub class: InstructionClass,
    /// Bytes; 0 where the instruction's width is not fixed.
    pub width: u16,
    pub reads: u64,
    pub writes: u64,
}

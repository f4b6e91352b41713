//! Decoded blocks of code, kept and linked.

use crate::access::Access;
use crate::path::Paths;
use crate::{CodeMemory, Reason};
use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use pt_packet::Execution;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// How a block of code ends, before it is known where execution went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Linear,
    Cond,
    Jump,
    Call,
    IndirectJump,
    IndirectCall,
    Return,
    Far,
}

/// What the address space and the execution mode look like: epoch and code size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(u32);

impl View {
    /// None that is ever seen.
    pub const NONE: View = View(u32::MAX);

    pub fn new(epoch: u32, mode: Execution) -> Self {
        View(epoch << 2 | mode as u32)
    }

    /// The same code size in another epoch.
    pub fn of_epoch(self, epoch: u32) -> Self {
        View(epoch << 2 | self.mode())
    }

    pub fn execution(self) -> Execution {
        match self.mode() {
            0 => Execution::Bits16,
            1 => Execution::Bits32,
            _ => Execution::Bits64,
        }
    }

    fn mode(self) -> u32 {
        self.0 & 3
    }

    pub fn bitness(self) -> u32 {
        16 << self.mode()
    }

    pub fn epoch(self) -> u32 {
        self.0 >> 2
    }
}

/// Instructions that packets other than those of branches refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    PtWrite = 1,
    Cr3 = 2,
    Vmcs = 4,
    VmEntry = 8,
}

/// Instructions up to and with the first branch. One line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct CodeBlock {
    pub start: u64,
    pub last: u64,
    pub end: u64,
    /// Of a direct branch.
    pub target: u64,
    /// The blocks at `end` and at `target`.
    links: [Link; 2],
    lengths: u32,
    /// Its number; `u32::MAX` for the scratch block.
    pub id: u32,
    pub instructions: u16,
    pub exit: Exit,
    /// The kinds of [`Mark`] among its instructions.
    marks: u8,
    pub mode: Execution,
}

/// A following block, in the view it was found in.
#[derive(Clone, Copy, Debug)]
struct Link {
    number: u32,
    view: View,
}

const UNLINKED: Link = Link { number: SCRATCH, view: View::NONE };

impl CodeBlock {
    /// The block that follows on `way`, when it was linked in this view.
    #[inline(always)]
    pub fn linked(&self, way: Way, view: View) -> Option<u32> {
        let link = self.links[way as usize];
        (link.view == view).then_some(link.number)
    }

    /// Whether any of its instructions is one of `mark`.
    pub fn has(&self, mark: Mark) -> bool {
        self.marks & mark as u8 != 0
    }

    /// The first `count` instructions, which end with the one from `last` to `end`.
    pub fn prefix(&self, count: u16, last: u64, end: u64) -> CodeBlock {
        CodeBlock { instructions: count, last, end, ..*self }
    }
}

/// Which way out of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Way {
    Next = 0,
    Target = 1,
}

/// The block that is not kept: one instruction over the border of two sections.
pub const SCRATCH: u32 = 0;

const MAX_INSTRUCTIONS: usize = 512;
const MAX_LENGTH: usize = 15;
const FRONT: usize = 1 << 12;

/// Blocks by number. Numbers grow from 1; block 0 is the scratch block.
pub struct CodeCache {
    blocks: Vec<CodeBlock>,
    lengths: Vec<u8>,
    by_content: HashMap<(u64, u64), u32, BuildHasherDefault<AddressHasher>>,
    /// Direct-mapped by address, in front of memory and map.
    front: Vec<(u64, View, u32)>,
    pub paths: Paths,
    /// By block and how many of its instructions.
    pub accesses: HashMap<(u32, u32), Box<[Access]>>,
}

fn slot(address: u64) -> usize {
    (address ^ address >> 12) as usize % FRONT
}

/// One instruction that nobody knows, which leads nowhere.
const fn unknown(address: u64) -> CodeBlock {
    CodeBlock {
        start: address,
        last: address,
        end: address,
        target: 0,
        links: [UNLINKED; 2],
        lengths: 0,
        id: u32::MAX,
        instructions: 1,
        exit: Exit::Far,
        marks: 0,
        mode: Execution::Bits64,
    }
}

impl CodeCache {
    pub fn new() -> Self {
        CodeCache {
            blocks: vec![unknown(0)],
            lengths: vec![0],
            by_content: HashMap::default(),
            front: vec![(0, View::NONE, 0); FRONT],
            paths: Paths::new(),
            accesses: HashMap::new(),
        }
    }

    /// The block at `address` when it was found not long ago in this view.
    #[inline(always)]
    pub fn find_again(&self, view: View, address: u64) -> Option<u32> {
        let (known, in_view, number) = self.front[slot(address)];
        (known == address && in_view == view).then_some(number)
    }

    /// Bytes that blocks and paths take.
    pub fn memory(&self) -> usize {
        let entry = size_of::<((u64, u64), u32)>() + 1;
        self.blocks.capacity() * size_of::<CodeBlock>()
            + self.lengths.capacity()
            + self.by_content.capacity() * entry
            + self.front.capacity() * size_of::<(u64, View, u32)>()
            + self.paths.memory()
            + self.accesses.values().map(|known| 32 + size_of_val(&**known)).sum::<usize>()
    }

    /// Makes the scratch block one that ends what leads to it.
    pub fn nowhere(&mut self, address: u64) -> u32 {
        self.blocks[SCRATCH as usize] = unknown(address);
        SCRATCH
    }

    #[inline(always)]
    pub fn block(&self, number: u32) -> &CodeBlock {
        &self.blocks[number as usize]
    }

    /// The block with the number, unless it is the scratch block.
    pub fn kept(&self, number: u32) -> Option<&CodeBlock> {
        self.blocks.get(number as usize).filter(|block| block.id == number)
    }

    #[inline(always)]
    pub fn lengths(&self, block: &CodeBlock) -> &[u8] {
        let start = block.lengths as usize;
        // Without a panic, so that it vanishes for a sink that does not look.
        self.lengths.get(start..start + block.instructions as usize).unwrap_or_default()
    }

    /// The block at `address`, linked to `from` on `way`.
    #[cold]
    pub fn link<M: CodeMemory>(
        &mut self,
        memory: &M,
        view: View,
        from: u32,
        way: Way,
        address: u64,
    ) -> Result<u32, Reason> {
        let number = self.find(memory, view, address)?;
        if from != SCRATCH && number != SCRATCH {
            self.blocks[from as usize].links[way as usize] = Link { number, view };
        }
        Ok(number)
    }

    /// The block at `address`.
    #[inline]
    pub fn find<M: CodeMemory>(&mut self, memory: &M, view: View, address: u64) -> Result<u32, Reason> {
        if let Some(number) = self.find_again(view, address) {
            return Ok(number);
        }
        let number = self.find_by_content(memory, view, address)?;
        if number != SCRATCH {
            self.front[slot(address)] = (address, view, number);
        }
        Ok(number)
    }

    fn find_by_content<M: CodeMemory>(&mut self, memory: &M, view: View, address: u64) -> Result<u32, Reason> {
        let slice = memory.read(view.epoch(), address).filter(|slice| !slice.bytes.is_empty()).ok_or(Reason::NoCode)?;
        let key = (slice.generation << 2 | u64::from(view.mode()), address);
        if let Some(&number) = self.by_content.get(&key) {
            return Ok(number);
        }
        let bytes = &slice.bytes[..slice.bytes.len().min(MAX_INSTRUCTIONS * MAX_LENGTH)];
        let lengths = self.lengths.len() as u32;
        let kept = decode(bytes, address, view, &mut self.lengths);
        match kept {
            Ok(block) => {
                let number = self.blocks.len() as u32;
                self.blocks.push(CodeBlock { lengths, id: number, ..block });
                self.by_content.insert(key, number);
                Ok(number)
            }
            Err(DecoderError::NoMoreBytes) => self.straddling(memory, view, address),
            Err(_) => Err(Reason::BadInstruction),
        }
    }

    /// How many instructions of the block stand up to and with the first that is one of `mark`.
    #[cold]
    pub fn behind<M: CodeMemory>(&self, memory: &M, view: View, block: &CodeBlock, sought: Mark) -> Option<u16> {
        if !block.has(sought) {
            return None;
        }
        let mut at = block.start;
        for (number, &length) in self.lengths(block).iter().enumerate() {
            let slice = memory.read(view.epoch(), at)?;
            let bytes = slice.bytes.get(..length.into())?;
            let instruction = Decoder::with_ip(view.bitness(), bytes, at, DecoderOptions::NONE).decode();
            if mark(&instruction) == Some(sought) {
                return Some(number as u16 + 1);
            }
            at = at.wrapping_add(length.into());
        }
        None
    }

    /// One instruction whose bytes stand in more than one section.
    fn straddling<M: CodeMemory>(&mut self, memory: &M, view: View, address: u64) -> Result<u32, Reason> {
        let mut bytes = Vec::with_capacity(MAX_LENGTH);
        while bytes.len() < MAX_LENGTH {
            let next = address.wrapping_add(bytes.len() as u64);
            let Some(slice) = memory.read(view.epoch(), next).filter(|slice| !slice.bytes.is_empty()) else { break };
            bytes.extend(slice.bytes.iter().take(MAX_LENGTH - bytes.len()));
        }
        let mut lengths = Vec::new();
        match decode_some(&bytes, address, view, 1, &mut lengths) {
            Ok(block) => {
                self.lengths[0] = lengths[0];
                self.blocks[SCRATCH as usize] = CodeBlock { lengths: 0, ..block };
                Ok(SCRATCH)
            }
            Err(DecoderError::NoMoreBytes) if bytes.len() < MAX_LENGTH => Err(Reason::NoCode),
            Err(_) => Err(Reason::BadInstruction),
        }
    }
}

fn decode(bytes: &[u8], address: u64, view: View, lengths: &mut Vec<u8>) -> Result<CodeBlock, DecoderError> {
    decode_some(bytes, address, view, MAX_INSTRUCTIONS, lengths)
}

fn decode_some(
    bytes: &[u8],
    address: u64,
    view: View,
    most: usize,
    lengths: &mut Vec<u8>,
) -> Result<CodeBlock, DecoderError> {
    let mut decoder = Decoder::with_ip(view.bitness(), bytes, address, DecoderOptions::NONE);
    let mut block = CodeBlock {
        start: address,
        last: address,
        end: address,
        target: 0,
        links: [UNLINKED; 2],
        lengths: 0,
        id: u32::MAX,
        instructions: 0,
        exit: Exit::Linear,
        marks: 0,
        mode: view.execution(),
    };
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

/// REX2 JMPABS imm64 (APX): a direct jump that makes a TIP packet like an indirect one.
const JMPABS: [u8; 3] = [0xd5, 0x00, 0xa1];
const JMPABS_LENGTH: usize = 11;

fn mark(instruction: &Instruction) -> Option<Mark> {
    match instruction.mnemonic() {
        Mnemonic::Ptwrite => Some(Mark::PtWrite),
        Mnemonic::Mov if instruction.op0_register() == Register::CR3 => Some(Mark::Cr3),
        Mnemonic::Vmptrld => Some(Mark::Vmcs),
        Mnemonic::Vmlaunch | Mnemonic::Vmresume => Some(Mark::VmEntry),
        _ => None,
    }
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

/// Multiplicative hash: addresses are no adversaries beyond slowness.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

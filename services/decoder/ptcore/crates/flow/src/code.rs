//! Decoded blocks of code, kept and linked.

mod accesses;
mod disassembly;
mod finder;
mod hash;
mod opcodes;
mod predecode;

use crate::access::Access;
use crate::code_block::{unknown, CodeBlock, Link, Mark, Way, SCRATCH};
use crate::loss::Reason;
use crate::memory::{CodeMemory, Near};
use crate::paths::Paths;
use crate::view::View;
use disassembly::{decode, mark, MAX_LENGTH};
pub use disassembly::{is_extensible, MAX_INSTRUCTIONS};
pub use hash::AddressHasher;
use iced_x86::{Decoder, DecoderError, DecoderOptions};
use std::collections::hash_map::{Entry, HashMap};
use std::hash::BuildHasherDefault;

const FRONT: usize = 1 << 12;
/// There is room for so many from the outset.
const FEWEST_BLOCKS: usize = 3 << 10;

/// Blocks by number. Numbers grow from 1; block 0 is the scratch block. By default there is none.
#[derive(Default)]
pub struct CodeCache {
    blocks: Vec<CodeBlock>,
    lengths: Vec<u8>,
    by_content: HashMap<(u64, u64), u32, BuildHasherDefault<AddressHasher>>,
    /// Direct-mapped by address, in front of memory and map.
    front: Vec<(u64, View, u32)>,
    near: Near,
    pub paths: Paths,
    /// By block and how many of its instructions.
    pub accesses: HashMap<(u32, u32), Box<[Access]>>,
}

fn with_room<T>(first: T, room: usize) -> Vec<T> {
    let mut list = Vec::with_capacity(room);
    list.push(first);
    list
}

fn slot(address: u64) -> usize {
    (address ^ address >> 12) as usize % FRONT
}

impl CodeCache {
    pub fn new() -> Self {
        CodeCache {
            blocks: with_room(unknown(0), FEWEST_BLOCKS),
            lengths: with_room(0, FEWEST_BLOCKS * 8),
            by_content: HashMap::with_capacity_and_hasher(FEWEST_BLOCKS, BuildHasherDefault::default()),
            front: vec![(0, View::NONE, 0); FRONT],
            near: Near::default(),
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

    /// What stands for code that is not kept.
    pub fn scratch(&self) -> (CodeBlock, u8) {
        (self.blocks[SCRATCH as usize], self.lengths[0])
    }

    pub fn put_scratch(&mut self, (block, length): (CodeBlock, u8)) {
        (self.blocks[SCRATCH as usize], self.lengths[0]) = (block, length);
    }

    #[inline(always)]
    pub fn blocks(&self) -> &[CodeBlock] {
        &self.blocks
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
        let slice = memory.read_near(view.epoch(), address, &mut self.near);
        let slice = slice.filter(|slice| !slice.bytes.is_empty()).ok_or(Reason::NoCode)?;
        let key = (slice.generation << 2 | u64::from(view.mode()), address);
        let vacant = match self.by_content.entry(key) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(vacant) => vacant,
        };
        let bytes = &slice.bytes[..slice.bytes.len().min(MAX_INSTRUCTIONS * MAX_LENGTH)];
        let (lengths, number) = (self.lengths.len() as u32, self.blocks.len() as u32);
        self.blocks.push(CodeBlock { lengths, id: number, ..unknown(address) });
        let block = &mut self.blocks[number as usize];
        match decode(bytes, view, MAX_INSTRUCTIONS, block, &mut self.lengths) {
            Ok(()) => Ok(*vacant.insert(number)),
            Err(error) => {
                self.blocks.pop();
                match error {
                    DecoderError::NoMoreBytes => self.straddling(memory, view, address),
                    _ => Err(Reason::BadInstruction),
                }
            }
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
        let mut block = unknown(address);
        match decode(&bytes, view, 1, &mut block, &mut lengths) {
            Ok(()) => {
                self.lengths[0] = lengths[0];
                self.blocks[SCRATCH as usize] = block;
                Ok(SCRATCH)
            }
            Err(DecoderError::NoMoreBytes) if bytes.len() < MAX_LENGTH => Err(Reason::NoCode),
            Err(_) => Err(Reason::BadInstruction),
        }
    }
}

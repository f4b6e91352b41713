//! Names of the stubs that call through the global offset table.

mod unlisted;

pub use unlisted::unlisted;

use crate::elf_file::File;
use object::{Architecture, Object, ObjectSection};
use std::collections::HashMap;
use std::ops::Range;

/// A stub: where it stands and whom it calls.
pub struct Stub {
    pub start: u64,
    pub end: u64,
    pub callee: Callee,
}

/// Whom a stub calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// By number in the dynamic symbol table.
    Symbol(u32),
    /// The resolver of an indirect function of this very file.
    Resolver(u64),
    /// What fills the slots of the stubs behind this one.
    Linker,
}

/// The section of stubs whose slots may be filled on the first call; other code stands in front of them there.
const LAZY: &str = ".plt";
/// Relocation types that fill slots of the table: R_X86_64_GLOB_DAT and R_386_GLOB_DAT, R_X86_64_JUMP_SLOT and R_386_JMP_SLOT,
/// and those of indirect functions (psABIs of x86-64 and i386).
const GLOB_DAT: u32 = 6;
const JUMP_SLOT: u32 = 7;
const R_X86_64_IRELATIVE: u32 = 37;
const R_386_IRELATIVE: u32 = 42;

const ENDBR: [[u8; 4]; 2] = [[0xf3, 0x0f, 0x1e, 0xfa], [0xf3, 0x0f, 0x1e, 0xfb]];
const PUSH_IMMEDIATE: u8 = 0x68;
const BND: u8 = 0xf2;
/// `mov` to R11D, with which mold has its stubs tell of which relocation they are.
const MOV_R11D: [u8; 2] = [0x41, 0xbb];
const MOV_R11D_SIZE: usize = 6;
/// Of a slot in front of or behind the jump, or at an address in 32-bit code.
const JUMP: [u8; 2] = [0xff, 0x25];
/// Of a slot in the table to which EBX points.
const JUMP_BY_EBX: [u8; 2] = [0xff, 0xa3];

/// How the files of a processor write stubs, and what fills the slots that these read.
enum Machine<'d> {
    X86_64,
    /// 64-bit code of files with 32-bit addresses.
    X32,
    /// Slots by their tables, of which EBX points to the first: address and contents.
    I386([(u64, &'d [u8]); 2]),
}

/// The stubs in `.plt`, `.plt.sec`, `.plt.got` and `.iplt` (lld) of an x86 file. What a stub calls is read from its jump's
/// slot, not from its place: linkers order the sections as they like.
pub fn stubs(file: &File<'_>) -> Vec<Stub> {
    let Some(machine) = Machine::of(file) else { return Vec::new() };
    let order = machine.relocations(file, "plt");
    let slots: HashMap<u64, Callee> =
        machine.relocations(file, "dyn").into_iter().chain(order.iter().copied()).collect();
    let mut stubs = Vec::new();
    for name in [LAZY, ".plt.sec", ".plt.got", ".iplt"] {
        let Some(section) = file.section_by_name(name) else { continue };
        let Ok(data) = section.data() else { continue };
        let size = entry_size(data);
        let before = stubs.len();
        for (index, entry) in data.chunks_exact(size).enumerate() {
            let start = section.address().wrapping_add((index * size) as u64);
            if let Some(callee) = machine
                .slot(entry, start)
                .and_then(|slot| slots.get(&slot).copied())
                .or_else(|| machine.lazy(entry, &order))
            {
                stubs.push(Stub { start, end: start.wrapping_add(size as u64), callee });
            }
        }
        let (start, first) = (section.address(), stubs.get(before).map(|stub| stub.start));
        if let Some(end) = first.filter(|&first| name == LAZY && start < first) {
            stubs.push(Stub { start, end, callee: Callee::Linker });
        }
    }
    stubs
}

/// Where the stubs stand whose slots are filled on the first call; empty when there are none.
pub fn lazy_stubs(file: &File<'_>) -> Range<u64> {
    let section = file.section_by_name(LAZY);
    section.map_or(0..0, |section| section.address()..section.address().saturating_add(section.size()))
}

/// Entries that only jump have 8 bytes, in `.plt` of static programs too; those that also push the number of their
/// relocation, or are built for indirect branch tracking, have 16.
fn entry_size(data: &[u8]) -> usize {
    let jumps = |entry: &[u8]| {
        let entry = entry.strip_prefix(&[BND]).unwrap_or(entry);
        entry.starts_with(&JUMP) || entry.starts_with(&JUMP_BY_EBX)
    };
    if jumps(data) && data.get(8..).is_some_and(|rest| rest.is_empty() || jumps(rest)) {
        8
    } else {
        16
    }
}

/// Where in a stub its jump is.
fn jump_at(entry: &[u8]) -> usize {
    let at = if ENDBR.iter().any(|endbr| entry.starts_with(endbr)) { ENDBR[0].len() } else { 0 };
    let told = entry.get(at..).is_some_and(|rest| rest.starts_with(&MOV_R11D));
    let at = if told { at + MOV_R11D_SIZE } else { at };
    at + usize::from(entry.get(at) == Some(&BND))
}

impl<'d> Machine<'d> {
    fn of(file: &File<'d>) -> Option<Machine<'d>> {
        let table = |name| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        match file.architecture() {
            _ if !file.is_little_endian() => None,
            _ if file.is_64() => Some(Machine::X86_64),
            Architecture::X86_64_X32 => Some(Machine::X32),
            Architecture::I386 => {
                let [first, second] = [table(".got.plt"), table(".got")];
                let first = first.or(second)?;
                Some(Machine::I386([first, second.unwrap_or(first)]))
            }
            _ => None,
        }
    }

    /// The slot that a stub's jump reads.
    fn slot(&self, entry: &[u8], start: u64) -> Option<u64> {
        let at = jump_at(entry);
        let (jump, rest) = entry.get(at..)?.split_first_chunk()?;
        let operand = i32::from_le_bytes(*rest.first_chunk()?);
        match (self, *jump) {
            (Machine::X86_64 | Machine::X32, JUMP) => {
                Some(start.wrapping_add(at as u64 + 6).wrapping_add_signed(operand.into()))
            }
            (Machine::I386(_), JUMP) => Some(u64::from(operand as u32)),
            (Machine::I386([(table, _), _]), JUMP_BY_EBX) => {
                Some(u64::from((*table as u32).wrapping_add_signed(operand)))
            }
            _ => None,
        }
    }

    /// A stub that only pushes which relocation it is of for the resolver: by number, or by place in 32-bit code.
    fn lazy(&self, entry: &[u8], order: &[(u64, Callee)]) -> Option<Callee> {
        let rest = ENDBR.iter().find_map(|endbr| entry.strip_prefix(endbr))?;
        let pushed = u32::from_le_bytes(*rest.strip_prefix(&[PUSH_IMMEDIATE])?.first_chunk()?) as usize;
        let number = match self {
            Machine::X86_64 | Machine::X32 => pushed,
            Machine::I386(_) => pushed / self.relocation_size(),
        };
        order.get(number).map(|&(_, callee)| callee)
    }

    fn relocation_size(&self) -> usize {
        match self {
            Machine::X86_64 => 24,
            Machine::X32 => 12,
            Machine::I386(_) => 8,
        }
    }

    fn relocations(&self, file: &File<'_>, of: &str) -> Vec<(u64, Callee)> {
        let begin = if matches!(self, Machine::I386(_)) { ".rel" } else { ".rela" };
        let section = file.section_by_name(&format!("{begin}.{of}"));
        let data = section.and_then(|section| section.data().ok()).unwrap_or_default();
        data.chunks_exact(self.relocation_size()).filter_map(|entry| self.relocation(entry)).collect()
    }

    fn relocation(&self, entry: &[u8]) -> Option<(u64, Callee)> {
        let half = |at: usize| entry.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let word = |at: usize| entry.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let (slot, kind, symbol) = match self {
            Machine::X86_64 => (word(0)?, half(8)?, half(12)?),
            Machine::X32 | Machine::I386(_) => (half(0)?.into(), half(4)? & 0xff, half(4)? >> 8),
        };
        match (self, kind) {
            (_, GLOB_DAT | JUMP_SLOT) => Some((slot, Callee::Symbol(symbol))),
            (Machine::X86_64, R_X86_64_IRELATIVE) => Some((slot, Callee::Resolver(word(16)?))),
            (Machine::X32, R_X86_64_IRELATIVE) => Some((slot, Callee::Resolver(half(8)?.into()))),
            // Where it is stands in the slot.
            (Machine::I386(tables), R_386_IRELATIVE) => {
                let stored = |&(table, data): &(u64, &[u8])| {
                    let at = usize::try_from(slot.checked_sub(table)?).ok()?;
                    data.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
                };
                Some((slot, Callee::Resolver(tables.iter().find_map(stored)?.into())))
            }
            _ => None,
        }
    }
}

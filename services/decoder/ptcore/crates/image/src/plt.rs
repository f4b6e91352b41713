//! Names of the stubs that call through the global offset table.

use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::ops::Range;

/// A stub: where it stands and whom it calls.
pub struct Stub {
    pub start: u64,
    pub end: u64,
    pub callee: Callee,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// By number in the dynamic symbol table.
    Symbol(u32),
    /// The resolver of an indirect function of this very file.
    Resolver(u64),
}

const RELOCATION_SIZE: usize = 24;
/// Relocation types of the x86-64 psABI that fill slots of the table.
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;
const R_X86_64_IRELATIVE: u32 = 37;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_IMMEDIATE: u8 = 0x68;
const BND: u8 = 0xf2;
const JUMP_RIP_RELATIVE: [u8; 2] = [0xff, 0x25];

/// The stubs in `.plt`, `.plt.sec` and `.plt.got` of an x86-64 file. What a stub calls is read from its jump's slot, not from
/// its place: linkers order the sections as they like.
pub fn stubs(file: &object::File<'_>) -> Vec<Stub> {
    if !file.is_64() || !file.is_little_endian() {
        return Vec::new();
    }
    let order = relocations(file, ".rela.plt");
    let slots: HashMap<u64, Callee> = relocations(file, ".rela.dyn").into_iter().chain(order.iter().copied()).collect();
    let mut stubs = Vec::new();
    for name in [".plt", ".plt.sec", ".plt.got"] {
        let Some(section) = file.section_by_name(name) else { continue };
        let Ok(data) = section.data() else { continue };
        let size = entry_size(data);
        for (index, entry) in data.chunks_exact(size).enumerate() {
            let start = section.address().wrapping_add((index * size) as u64);
            if let Some(callee) =
                slot(entry, start).and_then(|slot| slots.get(&slot).copied()).or_else(|| lazy(entry, &order))
            {
                stubs.push(Stub { start, end: start.wrapping_add(size as u64), callee });
            }
        }
    }
    stubs
}

/// Where the stubs stand whose slots are filled on the first call; empty when there are none.
pub fn lazy_stubs(file: &object::File<'_>) -> Range<u64> {
    let section = file.section_by_name(".plt");
    section.map_or(0..0, |section| section.address()..section.address().saturating_add(section.size()))
}

/// Entries that only jump have 8 bytes, in `.plt` of static programs too; those that also push the number of their
/// relocation, or are built for indirect branch tracking, have 16.
fn entry_size(data: &[u8]) -> usize {
    let jumps = |entry: &[u8]| entry.strip_prefix(&[BND]).unwrap_or(entry).starts_with(&JUMP_RIP_RELATIVE);
    if jumps(data) && data.get(8..).is_some_and(|rest| rest.is_empty() || jumps(rest)) {
        8
    } else {
        16
    }
}

/// The slot that `jmp *slot(%rip)` reads.
fn slot(entry: &[u8], start: u64) -> Option<u64> {
    let mut at = if entry.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    if entry.get(at) == Some(&BND) {
        at += 1;
    }
    let displacement = entry.get(at..)?.strip_prefix(&JUMP_RIP_RELATIVE)?.first_chunk()?;
    let next = start.wrapping_add(at as u64 + 6);
    Some(next.wrapping_add(i64::from(i32::from_le_bytes(*displacement)) as u64))
}

/// A stub that only pushes the number of its relocation for the resolver.
fn lazy(entry: &[u8], order: &[(u64, Callee)]) -> Option<Callee> {
    let (&opcode, rest) = entry.strip_prefix(&ENDBR64)?.split_first()?;
    if opcode != PUSH_IMMEDIATE {
        return None;
    }
    let number = u32::from_le_bytes(*rest.first_chunk()?);
    order.get(number as usize).map(|&(_, callee)| callee)
}

fn relocations(file: &object::File<'_>, section: &str) -> Vec<(u64, Callee)> {
    let data = file.section_by_name(section).and_then(|section| section.data().ok()).unwrap_or_default();
    data.chunks_exact(RELOCATION_SIZE).filter_map(relocation).collect()
}

fn relocation(entry: &[u8]) -> Option<(u64, Callee)> {
    let word = |at: usize| entry[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let (slot, info, addend) = (word(0)?, word(8)?, word(16)?);
    match info as u32 {
        R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => Some((slot, Callee::Symbol((info >> 32) as u32))),
        R_X86_64_IRELATIVE => Some((slot, Callee::Resolver(addend))),
        _ => None,
    }
}

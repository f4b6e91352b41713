//! Code that the dynamic linker completes when it loads a file: in 32-bit libraries that were not built to stand anywhere
//! (`DT_TEXTREL` of the System V ABI, `R_386_PC32` of its supplement for the Intel386). Only branches matter to the flow, and
//! they are relative: to functions of the file itself they are the same wherever it stands.

use crate::binary::segments::Segments;
use crate::elf_file::File;
use object::elf::{R_386_PC32, STT_GNU_IFUNC};
use object::{Architecture, Object, ObjectSymbol, ObjectSymbolTable, Relocation, RelocationFlags, RelocationTarget};
use object::{SymbolFlags, SymbolIndex};

/// Files may list one table over and over.
const MAX_RELOCATIONS: usize = 1 << 20;
/// The file is copied for them: no program of 32 bits has a larger one.
const MAX_SIZE: usize = 1 << 28;
/// Of the displacement, behind the opcode.
const FIELD: usize = 4;
/// No instruction begins so.
const NONE: u8 = 0xff;

/// A file's bytes as they are once it is loaded.
pub struct Completed {
    pub bytes: Vec<u8>,
    /// How many branches lead to functions of other files. No instruction stands in their place.
    pub unknown: usize,
}

/// `None` where no branch of the file is completed. What it defines itself is what is called, though the program may have a
/// function of that name, too.
pub fn completed(file: &File<'_>, bytes: &[u8], segments: &Segments) -> Option<Completed> {
    let may_have = file.architecture() == Architecture::I386 && bytes.len() <= MAX_SIZE;
    let relocations = may_have.then(|| file.dynamic_relocations()).flatten()?;
    let branches = relocations.take(MAX_RELOCATIONS).filter_map(|(place, relocation)| {
        let (start, field) = branch(bytes, segments, place, &relocation)?;
        let RelocationTarget::Symbol(symbol) = relocation.target() else { return None };
        let displacement = defined(file, symbol).map(|callee| {
            let written = || i32::from_le_bytes(*bytes[field..].first_chunk().unwrap_or(&[0; FIELD])).into();
            let addend = if relocation.has_implicit_addend() { written() } else { relocation.addend() };
            callee.wrapping_add(addend as u64).wrapping_sub(place) as u32
        });
        Some((start, field, displacement))
    });
    let mut branches = branches.peekable();
    branches.peek()?;
    let mut completed = Completed { bytes: bytes.to_vec(), unknown: 0 };
    for (start, field, displacement) in branches {
        match displacement {
            Some(displacement) => {
                completed.bytes[field..field + FIELD].copy_from_slice(&displacement.to_le_bytes());
            }
            None => {
                completed.unknown += 1;
                completed.bytes[start..field + FIELD].fill(NONE);
            }
        }
    }
    Some(completed)
}

/// Where in the file the branch begins that the relocation is of, and its displacement.
fn branch(bytes: &[u8], segments: &Segments, place: u64, relocation: &Relocation) -> Option<(usize, usize)> {
    let RelocationFlags::Elf { r_type: R_386_PC32 } = relocation.flags() else { return None };
    let segment = segments.at_address(place).find(|segment| segment.executable)?;
    let field = usize::try_from(segment.offset.checked_add(place - segment.address)?).ok()?;
    bytes.get(field..field.checked_add(FIELD)?)?;
    Some((field - branch_opcode(bytes, field)?, field))
}

/// Where the function is, if the file says it.
fn defined(file: &File<'_>, symbol: SymbolIndex) -> Option<u64> {
    let symbol = file.dynamic_symbol_table()?.symbol_by_index(symbol).ok()?;
    let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return None };
    (symbol.is_definition() && st_info.st_type() != STT_GNU_IFUNC).then(|| symbol.address())
}

/// Bytes of the opcode in front of the displacement at this place, of a direct call or jump.
pub fn branch_opcode(code: &[u8], at: usize) -> Option<usize> {
    match code.get(..at)? {
        [.., 0xe8 | 0xe9] => Some(1),
        [.., 0x0f, 0x80..=0x8f] => Some(2),
        _ => None,
    }
}

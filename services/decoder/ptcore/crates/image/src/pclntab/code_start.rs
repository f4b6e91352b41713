//! Where the code begins that the table's addresses are relative to.

use super::numbers::u64_at;
use super::{Table, WORD};
use crate::elf_file::File;
use crate::symbol_names::SymbolNames;
use object::{Object, ObjectSection, ObjectSymbol};

/// `runtime.moduledata`: words from its begin, the table's header, to the least address and to the begin of the code.
const MODULE_MINPC: u64 = 20;
const MODULE_TEXT: u64 = 22;
const R_X86_64_RELATIVE: u64 = 8;
/// How many relocations with the table's address are looked at: there are two or three.
const MAX_MODULES: usize = 16;

impl Table<'_> {
    /// The address of `runtime.text`, which C code may stand before.
    pub(super) fn text_start(&self, file: &File<'_>, table: u64) -> u64 {
        let first = self.listed(0).unwrap_or(0);
        let names = SymbolNames::of(file);
        let symbol = || file.symbols().find(|symbol| names.name(symbol.index()) == Some(b"runtime.text"));
        let section = || file.section_by_name(".text").map(|section| section.address());
        module_text(file, table, first)
            .or(Some(self.header_text).filter(|&text| text != 0))
            .or_else(|| symbol().map(|symbol| symbol.address()))
            .or_else(section)
            .unwrap_or(0)
    }
}

/// `text` of the `moduledata` that points to the table; it is known by its least address, that of the first function.
fn module_text(file: &File<'_>, table: u64, first: u64) -> Option<u64> {
    let fits = |minpc: u64, text: u64| text != 0 && minpc == text.wrapping_add(first);
    for section in file.sections().filter(|section| section.kind() == object::SectionKind::Data) {
        let Ok(data) = section.data() else { continue };
        let skew = (section.address().wrapping_neg() % WORD as u64) as usize;
        for (index, word) in data.get(skew..).unwrap_or_default().chunks_exact(WORD).enumerate() {
            if word == table.to_le_bytes() {
                let at = |number: u64| u64_at(data, skew + (index + number as usize) * WORD);
                if let Some(text) = at(MODULE_TEXT).filter(|&text| at(MODULE_MINPC).is_some_and(|pc| fits(pc, text))) {
                    return Some(text);
                }
            }
        }
    }
    // In files that can be loaded anywhere the words stand in the relocations.
    let data = file.section_by_name(".rela.dyn")?.data().ok()?;
    let relocations = || {
        data.chunks_exact(3 * WORD).filter_map(|entry| {
            let (slot, kind, addend) = (u64_at(entry, 0)?, u64_at(entry, WORD)?, u64_at(entry, 2 * WORD)?);
            (kind == R_X86_64_RELATIVE).then_some((slot, addend))
        })
    };
    let word = |slot: u64| relocations().find(|&(other, _)| other == slot).map(|(_, addend)| addend);
    let modules = relocations().filter(|&(_, addend)| addend == table).map(|(slot, _)| slot).take(MAX_MODULES);
    modules.into_iter().find_map(|module| {
        let text = word(module.wrapping_add(MODULE_TEXT * WORD as u64))?;
        fits(word(module.wrapping_add(MODULE_MINPC * WORD as u64))?, text).then_some(text)
    })
}

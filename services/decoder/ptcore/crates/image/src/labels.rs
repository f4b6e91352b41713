//! Code that a symbol names without saying that it is a function: assemblers leave it without a type where the source
//! states none, and GHC says of the code of its constructors that it is data.

use crate::binary::cold::whole_name;
use crate::binary::segments::code_sections;
use crate::elf_file::{has_own_sections, File};
use crate::symbol_names::SymbolNames;
use crate::symbols::{symbol, Binding, Source, Symbol};
use object::elf::{SymbolType, SHF_EXECINSTR, STT_NOTYPE, STT_OBJECT};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolFlags};
use std::ops::Range;

/// Such a symbol, and the section of code that it stands in.
pub struct Label {
    symbol: Symbol,
    section: Range<u64>,
    /// Part of a function that clang moved away, which it gives no type but a size.
    part: bool,
}

/// The labels among the symbols of the static symbol table of `file`, whose bytes are `data`.
pub fn static_labels(file: &File<'_>, data: &[u8], source: Source) -> Vec<Label> {
    let names = SymbolNames::of(file);
    file.symbols().filter_map(|one| label(file, &one, &names, data, source)).collect()
}

pub fn dynamic_labels(file: &File<'_>, data: &[u8]) -> Vec<Label> {
    let names = SymbolNames::dynamic(file);
    if has_own_sections(file) {
        return file.dynamic_symbols().filter_map(|one| label(file, &one, &names, data, Source::Dynsym)).collect();
    }
    let code = code_sections(file);
    let around = |address: u64| {
        let after = code.partition_point(|&(start, _)| start <= address);
        after.checked_sub(1).map(|index| code[index].0..code[index].1)
    };
    let labels = file.dynamic_symbols().filter(|one| !one.is_undefined()).filter_map(|one| {
        // Segments do not tell code from the data beside it.
        let name = named(&one, &[STT_NOTYPE], &names)?;
        of_section(&one, name, around(one.address())?, &names, data, Source::Dynsym)
    });
    labels.collect()
}

fn label<'d>(
    file: &File<'_>,
    one: &impl ObjectSymbol<'d>,
    names: &SymbolNames<'d>,
    data: &[u8],
    source: Source,
) -> Option<Label> {
    let name = named(one, &[STT_NOTYPE, STT_OBJECT], names)?;
    let section = file.section_by_index(one.section_index()?).ok()?;
    // The sections of a debug file are empty: their kind is not told by what they have.
    if !matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR)) {
        return None;
    }
    let section = section.address()..section.address().saturating_add(section.size());
    of_section(one, name, section, names, data, source)
}

/// The name of a symbol of one of `types`.
fn named<'d>(one: &impl ObjectSymbol<'d>, types: &[SymbolType], names: &SymbolNames<'d>) -> Option<&'d [u8]> {
    let is_label = matches!(one.flags(), SymbolFlags::Elf { st_info, .. } if types.contains(&st_info.st_type()));
    // `.L` is what assemblers keep to themselves, `$` tells code from data.
    names.name(one.index()).filter(|name| is_label && !name.starts_with(b".L") && !name.starts_with(b"$"))
}

fn of_section<'d>(
    one: &impl ObjectSymbol<'d>,
    name: &[u8],
    section: Range<u64>,
    names: &SymbolNames<'_>,
    data: &[u8],
    source: Source,
) -> Option<Label> {
    // What stands behind the last byte marks the end of the section.
    section.contains(&one.address()).then_some(())?;
    let part = one.size() > 0 && whole_name(name).is_some();
    Some(Label { symbol: symbol(one, names, data, source)?, section, part })
}

/// The labels that are functions: those outside of the `functions` that other files of the program may see. The others
/// are places inside of them, but for parts of functions, and where a section has nothing else.
pub fn functions_of(labels: Vec<Label>, functions: &[Symbol]) -> Vec<Symbol> {
    if labels.is_empty() {
        return Vec::new();
    }
    let known = Known::new(functions);
    let mut open: Vec<_> = labels.into_iter().filter(|label| !known.covers(label.symbol.address)).collect();
    open.sort_by_key(|label| label.section.start);
    let sections = open.chunk_by(|a, b| a.section == b.section);
    sections
        .flat_map(|labels| {
            let seen = |label: &Label| label.symbol.binding != Binding::Local;
            let alone = !labels.iter().any(seen) && !known.begin_in(&labels[0].section);
            labels.iter().filter(move |label| alone || label.part || seen(label)).map(|label| label.symbol)
        })
        .collect()
}

/// Where functions are, by address; with each how far it and those before it reach.
struct Known(Vec<(u64, u64)>);

impl Known {
    fn new(functions: &[Symbol]) -> Known {
        // One without a size has its first byte at least.
        let extent = |one: &Symbol| (one.address, one.address.saturating_add(one.size.max(1)));
        let mut known: Vec<_> = functions.iter().map(extent).collect();
        known.sort_unstable();
        let mut reach = 0;
        for (_, end) in &mut known {
            reach = reach.max(*end);
            *end = reach;
        }
        Known(known)
    }

    fn covers(&self, address: u64) -> bool {
        let after = self.0.partition_point(|&(start, _)| start <= address);
        after > 0 && address < self.0[after - 1].1
    }

    fn begin_in(&self, section: &Range<u64>) -> bool {
        let first = self.0.partition_point(|&(start, _)| start < section.start);
        self.0.get(first).is_some_and(|&(start, _)| start < section.end)
    }
}

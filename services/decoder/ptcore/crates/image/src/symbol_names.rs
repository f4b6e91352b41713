//! Names of symbols, of which no more is read than is kept: thousands of symbols may have one long name.

use crate::elf_file::{File, Overlaid};
use crate::name::MAX_NAME;
use object::elf::{Sym32, Sym64};
use object::read::elf::{ElfFile, FileHeader, Sym as _, SymbolTable};
use object::{Endianness, SymbolIndex};

/// Names of a symbol table (System V ABI, chapter 4, "String Table").
pub struct SymbolNames<'d> {
    entries: Entries<'d>,
    endian: Endianness,
    strings: &'d [u8],
}

enum Entries<'d> {
    Of32(&'d [Sym32<Endianness>]),
    Of64(&'d [Sym64<Endianness>]),
}

impl<'d> SymbolNames<'d> {
    /// Those of `.symtab`.
    pub fn of(file: &File<'d>) -> Self {
        SymbolNames::read(file, false)
    }

    /// Those of `.dynsym`.
    pub fn dynamic(file: &File<'d>) -> Self {
        SymbolNames::read(file, true)
    }

    fn read(file: &File<'d>, dynamic: bool) -> Self {
        match file {
            object::File::Elf32(file) => {
                let table = table(file, dynamic);
                let strings = strings(file, table);
                SymbolNames { entries: Entries::Of32(table.symbols()), endian: file.endian(), strings }
            }
            object::File::Elf64(file) => {
                let table = table(file, dynamic);
                let strings = strings(file, table);
                SymbolNames { entries: Entries::Of64(table.symbols()), endian: file.endian(), strings }
            }
            _ => SymbolNames { entries: Entries::Of64(&[]), endian: Endianness::Little, strings: &[] },
        }
    }

    /// The first 4096 bytes of a symbol's name; `None` for one that has none.
    pub fn name(&self, symbol: SymbolIndex) -> Option<&'d [u8]> {
        let offset = match self.entries {
            Entries::Of32(entries) => entries.get(symbol.0)?.st_name(self.endian),
            Entries::Of64(entries) => entries.get(symbol.0)?.st_name(self.endian),
        };
        let rest = self.strings.get(offset as usize..)?;
        let end = memchr::memchr(0, &rest[..rest.len().min(MAX_NAME)]);
        let end = end.or((rest.len() >= MAX_NAME).then_some(MAX_NAME))?;
        Some(&rest[..end]).filter(|name| !name.is_empty())
    }
}

fn table<'f, 'd, Elf: FileHeader>(
    file: &'f ElfFile<'d, Elf, Overlaid<'d>>,
    dynamic: bool,
) -> &'f SymbolTable<'d, Elf, Overlaid<'d>> {
    if dynamic {
        file.elf_dynamic_symbol_table()
    } else {
        file.elf_symbol_table()
    }
}

fn strings<'d, Elf: FileHeader>(
    file: &ElfFile<'d, Elf, Overlaid<'d>>,
    table: &SymbolTable<'d, Elf, Overlaid<'d>>,
) -> &'d [u8] {
    use object::read::elf::SectionHeader;
    let section = file.elf_section_table().section(table.string_section());
    section.and_then(|section| section.data(file.endian(), file.data())).unwrap_or_default()
}

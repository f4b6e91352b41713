//! The tables that a dynamic segment leads to (System V ABI, chapter 5, "Dynamic Section").

use super::loads::Loads;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, GnuHashTable, HashTable};
use object::Endianness;
use std::ops::Range;

/// Addresses and places of the tables of symbols and of their names.
pub struct Symbols {
    pub table: (u64, Range<u64>),
    pub strings: (u64, Range<u64>),
    pub entry: u64,
}

impl Loads<'_> {
    pub fn symbols(&self) -> Option<Symbols> {
        let [table, strings] = [elf::DT_SYMTAB, elf::DT_STRTAB].map(|tag| self.tags.get(&tag).copied());
        let (table, strings) = (table?, strings?);
        let (place, names) = (self.place(table)?, self.cut(strings, elf::DT_STRSZ)?);
        let entry = if self.class.is_64 { 24 } else { 16 };
        let room = (place.end - place.start) / entry;
        // Linkers write the names behind the symbols.
        let between = strings.checked_sub(table).map(|distance| distance / entry);
        let count = self.hashed().or(between).unwrap_or(0).max(self.named());
        let count = count.min(between.unwrap_or(room)).min(room);
        let end = place.start + count * entry;
        Some(Symbols { table: (table, place.start..end), strings: (strings, names), entry })
    }

    /// A table of so many bytes as the tag says, as far as they are there.
    pub fn cut(&self, address: u64, size: elf::DynamicTag) -> Option<Range<u64>> {
        let place = self.place(address)?;
        let end = place.start.saturating_add(*self.tags.get(&size)?).min(place.end);
        Some(place.start..end)
    }

    /// How many symbols there are by the hash tables. GNU's leaves out those of other files where the file has none of its own.
    fn hashed(&self) -> Option<u64> {
        if self.class.is_64 {
            self.counted::<FileHeader64<Endianness>>()
        } else {
            self.counted::<FileHeader32<Endianness>>()
        }
    }

    fn counted<Elf: FileHeader<Endian = Endianness>>(&self) -> Option<u64> {
        let endian = self.class.endian;
        let table = |tag| Some(self.data(&self.place(*self.tags.get(&tag)?)?));
        let old = table(elf::DT_HASH).and_then(|data| HashTable::<Elf>::parse(endian, data).ok());
        let new = table(elf::DT_GNU_HASH).and_then(|data| GnuHashTable::<Elf>::parse(endian, data).ok());
        let old = old.map(|table| table.symbol_table_length());
        let new = new.map(|table| table.symbol_table_length(endian).unwrap_or(table.symbol_base()));
        old.into_iter().chain(new).max().map(u64::from)
    }

    /// One more than the number of the last symbol that a relocation is for.
    fn named(&self) -> u64 {
        let number = |info: u64| if self.class.is_64 { info >> 32 } else { info >> 8 };
        let tables = self.relocations().into_iter().map(|table| (self.data(&table.place), table.entry));
        let numbers = tables.flat_map(|(data, entry)| {
            let info = data.chunks_exact(entry as usize).filter_map(|entry| self.word(entry, self.class.word()));
            info.map(number)
        });
        numbers.max().map_or(0, |last| last + 1)
    }

    fn word(&self, bytes: &[u8], at: usize) -> Option<u64> {
        use object::endian::Endian;
        let rest = bytes.get(at..)?;
        Some(if self.class.is_64 {
            self.class.endian.read_u64(*rest.first_chunk()?)
        } else {
            self.class.endian.read_u32(*rest.first_chunk()?).into()
        })
    }

    /// The relocations of stubs, and the others.
    pub fn relocations(&self) -> Vec<Relocations> {
        let with_addend = [elf::DT_RELA, elf::DT_PLTREL].map(|tag| self.tags.get(&tag).copied());
        let kind = |with: bool, names: [&'static str; 2]| {
            let entry = (if with { 3 } else { 2 }) * self.class.word() as u64;
            (names[usize::from(with)], entry)
        };
        let of_stubs = kind(with_addend[1] == Some(elf::DT_RELA.0 as u64), [".rel.plt", ".rela.plt"]);
        let others = kind(with_addend[0].is_some(), [".rel.dyn", ".rela.dyn"]);
        let (tag, size) = match with_addend[0] {
            Some(_) => (elf::DT_RELA, elf::DT_RELASZ),
            None => (elf::DT_REL, elf::DT_RELSZ),
        };
        let tables = [(of_stubs, elf::DT_JMPREL, elf::DT_PLTRELSZ), (others, tag, size)];
        let table = |((name, entry), tag, size)| {
            let address = *self.tags.get(&tag)?;
            Some(Relocations { name, entry, address, place: self.cut(address, size)? })
        };
        tables.into_iter().filter_map(table).collect()
    }
}

/// A table of relocations, by the name that its section would have.
pub struct Relocations {
    pub name: &'static str,
    pub entry: u64,
    pub address: u64,
    pub place: Range<u64>,
}

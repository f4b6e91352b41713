//! Dynamic segments as they stand in memory: loaders write there where the tables are then.

use super::loads::Loads;
use object::elf::{self, DynamicTag};
use object::endian::Endian;

/// What loaders relocate (glibc, `elf_get_dynamic_info`), of what is read.
const ADDRESSES: [DynamicTag; 8] = [
    elf::DT_SYMTAB,
    elf::DT_STRTAB,
    elf::DT_HASH,
    elf::DT_GNU_HASH,
    elf::DT_JMPREL,
    elf::DT_RELA,
    elf::DT_REL,
    elf::DT_PLTGOT,
];
/// Files are loaded at whole pages.
const PAGE: u64 = 1 << 12;
/// So many places are tried: tables stand in the first segment.
const MAX_PAGES: usize = 1 << 14;

impl Loads<'_> {
    /// Makes addresses the file's own where they are those of memory.
    pub fn unrelocate(&mut self) {
        let Some(&symbols) = self.tags.get(&elf::DT_SYMTAB) else { return };
        if self.place(symbols).is_some() {
            return;
        }
        let starts = self.loads.iter().flat_map(|part| {
            let size = part.place.end - part.place.start;
            (part.address & !(PAGE - 1)..part.address.saturating_add(size)).step_by(PAGE as usize)
        });
        let mut biases = starts.take(MAX_PAGES).map(|page| (symbols & !(PAGE - 1)).wrapping_sub(page));
        let Some(bias) = biases.find(|&bias| self.fits(bias)) else { return };
        for tag in ADDRESSES {
            if let Some(address) = self.tags.get_mut(&tag) {
                *address = address.wrapping_sub(bias);
            }
        }
    }

    /// Whether the tables begin and end as such do where they are so much lower: with a symbol of zeros, around names
    /// with zeros, and with a hash table's numbers.
    fn fits(&self, bias: u64) -> bool {
        let at = |tag| self.place(self.tags.get(&tag)?.wrapping_sub(bias)).map(|place| self.data(&place));
        let (Some(symbols), Some(strings)) = (at(elf::DT_SYMTAB), at(elf::DT_STRTAB)) else { return false };
        let entry = if self.class.is_64 { 24 } else { 16 };
        let last = self.tags.get(&elf::DT_STRSZ).and_then(|&size| strings.get((size as usize).checked_sub(1)?));
        let named = strings.first() == Some(&0) && last == Some(&0);
        let hashed = match (at(elf::DT_GNU_HASH), at(elf::DT_HASH)) {
            (Some(table), _) => self
                .numbers(table)
                .is_some_and(|[buckets, first, filters, _]| buckets > 0 && first > 0 && filters.is_power_of_two()),
            (None, Some(table)) => {
                self.numbers(table).is_some_and(|[buckets, symbols, ..]| buckets > 0 && symbols >= buckets / 2)
            }
            (None, None) => false,
        };
        named && hashed && symbols.get(..entry).is_some_and(|first| first.iter().all(|&byte| byte == 0))
    }

    fn numbers(&self, table: &[u8]) -> Option<[u32; 4]> {
        let mut numbers = [0; 4];
        for (number, bytes) in numbers.iter_mut().zip(table.get(..16)?.chunks_exact(4)) {
            *number = self.class.endian.read_u32(*bytes.first_chunk()?);
        }
        Some(numbers)
    }
}

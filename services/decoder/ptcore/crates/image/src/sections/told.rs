//! What the segments of a file tell of what its section headers would.

use super::headers::Section;
use super::loads::{Loads, Part};
use crate::elf_file::{parsed, Headers, Overlaid};
use crate::plt;
use object::elf::{self, SectionFlags, SectionType};
use std::ops::Range;

/// How Go's table of functions begins behind the first byte, which tells its version (`pcHeader`: magic, two zeros, the
/// least size of an instruction and that of a pointer on x86-64).
const GO_TABLE: &[u8] = b"\xff\xff\xff\0\0\x01\x08";
const GO_VERSIONS: [u8; 4] = [0xfb, 0xfa, 0xf0, 0xf1];

/// The sections that the segments of a file tell, under the names that linkers give them.
pub struct Told<'d> {
    loads: Loads<'d>,
    sections: Vec<Section>,
    symbols: u64,
}

impl<'d> Told<'d> {
    /// `None` where nothing of the file is loaded.
    pub fn of(bytes: &'d [u8]) -> Option<Told<'d>> {
        let mut told = Told { loads: Loads::of(bytes)?, sections: Vec::new(), symbols: 0 };
        told.add_symbols();
        Some(told)
    }

    /// Whether the dynamic segment leads to symbols.
    pub fn has_symbols(&self) -> bool {
        self.symbols > 1
    }

    /// Section headers for the file's `bytes`.
    pub fn headers(mut self, bytes: &[u8]) -> Headers {
        self.add_relocations();
        self.add_loads();
        self.add_unwind_table();
        self.add_go_table();
        let headers = self.loads.class.headers(bytes, &self.sections);
        let stubs = parsed(Overlaid::over(bytes, &headers)).map(|file| plt::unlisted(&file)).unwrap_or_default();
        if stubs.is_empty() {
            return headers;
        }
        for (name, addresses) in stubs {
            if let Some(place) = self.loads.place(addresses.start) {
                let end = place.start.saturating_add(addresses.end - addresses.start).min(place.end);
                self.add(name, elf::SHT_PROGBITS, elf::SHF_ALLOC, addresses.start, place.start..end);
            }
        }
        self.loads.class.headers(bytes, &self.sections)
    }

    fn add(&mut self, name: &'static str, kind: SectionType, flags: SectionFlags, address: u64, place: Range<u64>) {
        self.sections.push(Section { name, kind, flags, address, place, link: 0, entry: 0 });
    }

    fn add_symbols(&mut self) {
        let Some(symbols) = self.loads.symbols() else { return };
        let (address, place) = symbols.strings;
        self.add(".dynstr", elf::SHT_STRTAB, elf::SHF_ALLOC, address, place);
        let link = self.sections.len() as u32;
        let (address, place) = symbols.table;
        self.symbols = (place.end - place.start) / symbols.entry;
        let (kind, flags, entry) = (elf::SHT_DYNSYM, elf::SHF_ALLOC, symbols.entry);
        self.sections.push(Section { name: ".dynsym", kind, flags, address, place, link, entry });
    }

    fn add_relocations(&mut self) {
        for table in self.loads.relocations() {
            self.add(table.name, elf::SHT_PROGBITS, elf::SHF_ALLOC, table.address, table.place);
        }
        let Some(&address) = self.loads.tags.get(&elf::DT_PLTGOT) else { return };
        if let Some(place) = self.loads.place(address) {
            self.add(".got.plt", elf::SHT_PROGBITS, elf::SHF_ALLOC, address, place);
        }
    }

    fn add_loads(&mut self) {
        for Part { address, place, flags } in self.loads.loads.clone() {
            if flags.contains(elf::PF_X) {
                self.add(".text", elf::SHT_PROGBITS, elf::SHF_ALLOC | elf::SHF_EXECINSTR, address, place);
            } else if flags.contains(elf::PF_W) {
                self.add(".data", elf::SHT_PROGBITS, elf::SHF_ALLOC | elf::SHF_WRITE, address, place);
            }
        }
        for Part { address, place, .. } in self.loads.notes.clone() {
            self.add(".note", elf::SHT_NOTE, elf::SHF_ALLOC, address, place);
        }
    }

    fn add_unwind_table(&mut self) {
        let Some((address, place)) = self.loads.unwind_table() else { return };
        let around = self.loads.loads.iter().find(|part| part.place.contains(&place.start)).cloned();
        self.add(".eh_frame", elf::SHT_PROGBITS, elf::SHF_ALLOC, address, place);
        // Its tables of landing pads are loaded with it; it says where each of them is.
        if let Some(Part { address, place, .. }) = around {
            self.add(".gcc_except_table", elf::SHT_PROGBITS, elf::SHF_ALLOC, address, place);
        }
    }

    fn add_go_table(&mut self) {
        let found = self.loads.loads.iter().filter(|_| self.loads.class.is_64).find_map(|part| {
            let data = self.loads.data(&part.place);
            let begins = |&at: &usize| at % 8 == 0 && GO_VERSIONS.contains(&data[at]);
            let at = memchr::memmem::find_iter(data, GO_TABLE).filter_map(|at| at.checked_sub(1)).find(begins)? as u64;
            Some((part.address.wrapping_add(at), part.place.start + at..part.place.end))
        });
        if let Some((address, place)) = found {
            self.add(".gopclntab", elf::SHT_PROGBITS, elf::SHF_ALLOC, address, place);
        }
    }
}

//! Section headers as they stand in a file (System V ABI, chapter 4).

use crate::elf_file::Headers;
use object::elf::{SectionFlags, SectionType, SHT_STRTAB};
use object::endian::Endian;
use object::Endianness;
use std::ops::Range;

/// What a section header says.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: &'static str,
    pub kind: SectionType,
    pub flags: SectionFlags,
    pub address: u64,
    /// Where it is in the file.
    pub place: Range<u64>,
    /// The number of the section with its names.
    pub link: u32,
    pub entry: u64,
}

/// A class of files and their byte order.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    pub is_64: bool,
    pub endian: Endianness,
}

impl Class {
    pub fn word(self) -> usize {
        if self.is_64 {
            8
        } else {
            4
        }
    }

    fn section(self) -> usize {
        16 + 6 * self.word()
    }

    /// Where in the file's header e_shoff stands, where e_shentsize with e_shnum and e_shstrndx, and where it ends.
    fn header(self) -> [usize; 3] {
        if self.is_64 {
            [0x28, 0x3a, 0x40]
        } else {
            [0x20, 0x2e, 0x34]
        }
    }

    fn half(self, number: usize) -> [u8; 2] {
        self.endian.write_u16(number as u16)
    }

    fn put(self, bytes: &mut Vec<u8>, number: u64, size: usize) {
        match size {
            8 => bytes.extend(self.endian.write_u64(number)),
            _ => bytes.extend(self.endian.write_u32(number as u32)),
        }
    }

    /// For the file `bytes`: these sections, fewer than 2^15, numbered from 1 on.
    pub fn headers(self, bytes: &[u8], sections: &[Section]) -> Headers {
        let (count, file) = (sections.len() + 2, bytes.len() as u64);
        let mut strings = vec![0];
        let mut table = vec![0; self.section()];
        for section in sections {
            self.add(&mut table, section, strings.len());
            strings.extend(section.name.bytes());
            strings.push(0);
        }
        let at = file + (count * self.section()) as u64;
        let place = at..at + strings.len() as u64;
        let flags = SectionFlags(0);
        self.add(&mut table, &Section { name: "", kind: SHT_STRTAB, flags, address: 0, place, link: 0, entry: 0 }, 0);
        table.extend(strings);
        let [offset, counts, end] = self.header();
        let mut header = bytes[..end].to_vec();
        let mut at = Vec::new();
        self.put(&mut at, file, self.word());
        header[offset..offset + self.word()].copy_from_slice(&at);
        let counts = header[counts..].chunks_exact_mut(2).zip([self.section(), count, count - 1]);
        counts.for_each(|(field, number)| field.copy_from_slice(&self.half(number)));
        Headers { header, sections: table }
    }

    fn add(self, table: &mut Vec<u8>, section: &Section, name: usize) {
        let (word, place) = (self.word(), &section.place);
        let fields =
            [(name as u64, 4), (u64::from(section.kind.0), 4), (section.flags.0, word), (section.address, word)];
        let size = place.end.saturating_sub(place.start);
        let more =
            [(place.start, word), (size, word), (u64::from(section.link), 4), (0, 4), (4, word), (section.entry, word)];
        for (number, size) in fields.into_iter().chain(more) {
            self.put(table, number, size);
        }
    }
}

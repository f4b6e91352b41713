//! Go's table of functions and lines, which even stripped programs have.
//!
//! Layout: the Go sources `src/internal/abi/symtab.go` (magic numbers), `src/runtime/symtab.go` (`pcHeader`,
//! `moduledata`) and `src/debug/gosym/pclntab.go` (the encoding of the tables). Versions of Go 1.2, 1.16, 1.18 and 1.20
//! on; little-endian, pointers of 8 bytes.

mod code_start;
mod numbers;
mod table;

use crate::elf_file::File;
use object::{Object, ObjectSection};
use table::Table;

const WORD: usize = 8;

/// Where the table stands in a file, and what its addresses are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    offset: usize,
    size: usize,
    text: u64,
}

/// A function: its bounds and where in the table its name begins.
pub struct GoFunction<'t> {
    pub start: u64,
    pub end: u64,
    pub name: &'t [u8],
}

impl Place {
    /// Where the table of `file` is, whose bytes are `data`. `None` when there is none that can be read.
    pub fn find(file: &File<'_>, data: &[u8]) -> Option<Place> {
        let section = file
            .sections()
            .find(|section| section.name_bytes().is_ok_and(|name| name.ends_with(b".gopclntab")))
            .filter(|_| file.is_64() && file.is_little_endian())?;
        let bytes = section.data().ok()?;
        let offset = (bytes.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
        let place = Place { offset, size: bytes.len(), text: 0 };
        let table = place.table(data)?;
        let text = if table.relative { table.text_start(file, section.address()) } else { 0 };
        Some(Place { text, ..place })
    }

    /// The table in the file's bytes.
    pub fn table<'d>(&self, data: &'d [u8]) -> Option<Table<'d>> {
        let end = self.offset.checked_add(self.size)?;
        Table::read(data.get(self.offset..end)?, self.text)
    }
}

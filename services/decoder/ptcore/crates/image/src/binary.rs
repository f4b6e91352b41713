//! An ELF file: its code and its functions.

mod bounds;
pub(crate) mod cold;
mod error;
mod files;
mod functions;
mod names;
pub(crate) mod segments;
mod symbols;

pub use error::BinaryError;
pub use functions::Function;

use crate::absent::Absent;
use crate::bytes::Bytes;
use crate::dwarf::{Dwarf, Frame};
use crate::elf_file::{build_id, elf, is_debug_file, File};
use crate::flatten::Range;
use crate::landing::Catches;
use crate::pclntab;
use crate::sections::Sections;
use crate::separate::{checksum, hex, Search};
use crate::text_relocations::{completed, Completed};
use files::{mini_debug_info, usable};
use object::{Architecture, Object};
use segments::Segments;
use std::ops;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use symbols::status;

/// An ELF file: its code, its functions, and what its debug information says of them.
pub struct Binary {
    path: PathBuf,
    bytes: Arc<Bytes>,
    /// As they are once it is loaded.
    loaded: Arc<Bytes>,
    unknown_branches: usize,
    debug: Option<Arc<Bytes>>,
    mini: Option<Bytes>,
    build_id: String,
    symbol_status: String,
    sections: Arc<Sections>,
    segments: Segments,
    /// Where a program begins that it is, or that it loads.
    start: Option<u64>,
    functions: Vec<Function>,
    ranges: Vec<Range>,
    dwarf: Dwarf,
    go: Option<pclntab::Place>,
    /// Read where an exception is caught.
    catches: OnceLock<Option<Catches>>,
}

impl Binary {
    /// Reads an ELF file and the symbols of its separate debug file, which is looked for as `search` says. A debug file
    /// that cannot be used is named in `symbol_status`, no error.
    pub fn load(path: &Path, search: &Search) -> Result<Binary, BinaryError> {
        let bytes = Bytes::open(path).map_err(|error| BinaryError::Unreadable { path: path.to_owned(), error })?;
        Binary::of(path, bytes, search)
    }

    /// As [`Binary::load`], of an ELF file whose bytes are at hand. `path`: what it is called, and beside what its debug
    /// file may be.
    pub fn of(path: &Path, bytes: Bytes, search: &Search) -> Result<Binary, BinaryError> {
        let bytes = Arc::new(bytes);
        let no_elf = |error| BinaryError::NotElf { path: path.to_owned(), error };
        let sections = Arc::new(Sections::of(&bytes).map_err(no_elf)?);
        let file = sections.file(&bytes).map_err(no_elf)?;
        let architecture = file.architecture();
        if !matches!(architecture, Architecture::X86_64 | Architecture::X86_64_X32 | Architecture::I386) {
            let architecture = format!("{architecture:?}");
            return Err(BinaryError::OtherArchitecture { path: path.to_owned(), architecture });
        }
        let build_id = hex(build_id(&file));
        let mut files = vec![(path.to_owned(), Arc::clone(&bytes))];
        let mut refusal = sections.refusal();
        let mut debug = None;
        if let Some(path) = search.debug_file(path, &file) {
            match usable(Bytes::open(&path), &build_id, &file) {
                Ok(bytes) => {
                    files.insert(0, (path, Arc::clone(debug.insert(Arc::new(bytes)))));
                }
                Err(error) => refusal += &format!("; the debug file {} cannot be used: {error}", path.display()),
            }
        }
        let segments = Segments::of(&file);
        let (loaded, unknown_branches) = match completed(&file, &bytes, &segments) {
            Some(Completed { bytes, unknown }) => (Arc::new(Bytes::Owned(bytes)), unknown),
            None => (Arc::clone(&bytes), 0),
        };
        let mini = mini_debug_info(&file, &search.room);
        let mut binary = Binary {
            path: path.to_owned(),
            build_id,
            symbol_status: String::new(),
            sections: Arc::clone(&sections),
            loaded,
            unknown_branches,
            segments,
            start: Some(file.entry()).filter(|&entry| entry != 0),
            functions: Vec::new(),
            ranges: Vec::new(),
            dwarf: Dwarf::new(files, search.clone()),
            go: pclntab::Place::find(&file, &bytes),
            catches: OnceLock::new(),
            debug,
            mini,
            bytes: Arc::clone(&bytes),
        };
        let symbols = binary.symbols(&file, &bytes);
        binary.symbol_status = status(&symbols, &refusal);
        binary.name_functions(&file, &bytes, symbols);
        Ok(binary)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file as it was parsed.
    pub fn elf(&self) -> Result<File<'_>, String> {
        self.sections.file(&self.bytes)
    }

    /// GNU build id in hex, empty when there is none.
    pub fn build_id(&self) -> &str {
        &self.build_id
    }

    /// Whether it is the separate debug file of a binary: nothing of it is code.
    pub fn is_debug_file(&self) -> bool {
        // By its own section headers: where they tell no symbols those of the segments stand in for them.
        elf(&self.bytes).is_ok_and(|file| is_debug_file(&file))
    }

    /// What LLDB tells a file without a build id by (`ObjectFileELF::GetUUID`): the checksum of its debug file as its
    /// `.gnu_debuglink` has it, else its own (CRC-32); `None` of one with a build id.
    pub fn checksum(&self) -> Option<u32> {
        self.build_id.is_empty().then(|| self.elf().ok()).flatten().map(|file| checksum(&file, &self.bytes))
    }

    /// The best table there is: `symtab`, `debug`, `minidebug`, `dynsym` or `none: ` with the reason.
    pub fn symbol_status(&self) -> &str {
        &self.symbol_status
    }

    /// All functions, by address.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    pub fn function(&self, number: u32) -> &Function {
        &self.functions[number as usize]
    }

    /// File and line of each address, `None` where the debug information has none.
    pub fn lines(&self, addresses: &[u64]) -> Vec<Option<(String, u32)>> {
        let go = self.go.and_then(|place| place.table(&self.bytes));
        let line = |address| self.dwarf.line(address).or_else(|| go.as_ref()?.line(address));
        addresses.iter().map(|&address| line(address)).collect()
    }

    /// The functions at `address`, the innermost inlined one first and the code's own last, each with the file and line
    /// where it stands. Without debug information at most the function that symbols tell.
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        let mut frames = self.dwarf.frames(address);
        let own = self.find(address).function.and_then(|number| self.name(self.function(number)));
        match frames.last_mut() {
            // The symbol's name is the one that the function has everywhere else.
            Some(last) => last.function = own.or(last.function.take()),
            None => {
                let (file, line) = self.lines(&[address]).pop().flatten().unzip();
                frames.extend(own.map(|name| Frame { function: Some(name), file, line }));
            }
        }
        frames
    }

    /// As [`crate::Symbols::caught_at`], in the binary's own addresses.
    pub fn caught_at(&self, pad: u64) -> Option<Vec<ops::Range<u64>>> {
        let read = || self.elf().ok().map(|file| Catches::of(&file));
        self.catches.get_or_init(read).as_ref()?.caught_at(pad)
    }

    /// Files that the debug information refers to, and that were not there when [`Binary::frames`] wanted them; and how
    /// many more of them there are than are named.
    pub fn absent(&self) -> (Vec<Absent>, usize) {
        self.dwarf.absent()
    }

    /// Whether it has no debug information that can be read, and [`Binary::frames`] or [`Binary::lines`] wanted it.
    pub fn misses_debug_information(&self) -> bool {
        self.dwarf.is_missed()
    }

    /// The file's bytes from `offset` on.
    pub fn code(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or_default()
    }

    /// The same as they are once it is loaded, as far as branches go.
    pub(crate) fn loaded(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|offset| self.loaded.get(offset..)).unwrap_or_default()
    }

    /// How many branches are to functions of other files, which were only found as it was loaded: they are no instructions.
    pub fn unknown_branches(&self) -> usize {
        self.unknown_branches
    }

    /// The bytes of its separate debug file, where one was found.
    pub fn debug(&self) -> Option<&[u8]> {
        self.debug.as_deref().map(|bytes| &**bytes)
    }
}

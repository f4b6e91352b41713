//! The section headers of ELF files, also of those where none can be read.

mod dynamic;
mod frames;
mod headers;
mod loads;
mod relocated;
mod told;

use crate::elf_file::{elf, parsed, File, Headers, Overlaid};
use object::{Object, ObjectSection, SectionKind};
use told::Told;

/// The section headers of a file: its own, or where none can be read, those that its segments tell.
#[derive(Default)]
pub struct Sections {
    headers: Option<Headers>,
    refusal: String,
}

impl Sections {
    /// The error says why `bytes` are no ELF file, by its section headers and by its segments.
    pub fn of(bytes: &[u8]) -> Result<Sections, String> {
        let own = elf(bytes);
        if own.as_ref().is_ok_and(|file| is_told(file) || !has_segments(file)) {
            return Ok(Sections::default());
        }
        let told = Told::of(bytes);
        let refusal = match &own {
            // What it has says more than segments without symbols do.
            Ok(file) if has_code(file) && !told.as_ref().is_some_and(Told::has_symbols) => {
                return Ok(Sections::default())
            }
            Ok(_) => String::new(),
            Err(error) => format!("; its section headers cannot be read: {error}"),
        };
        match (told, own) {
            (Some(told), _) => Ok(Sections { headers: Some(told.headers(bytes)), refusal }),
            (None, Ok(_)) => Ok(Sections::default()),
            (None, Err(error)) => Err(error),
        }
    }

    /// Why the file's own headers are not taken, behind a semicolon; empty where they are or where it has none.
    pub fn refusal(&self) -> String {
        self.refusal.clone()
    }

    /// The file whose headers these are.
    pub fn file<'d>(&'d self, bytes: &'d [u8]) -> Result<File<'d>, String> {
        parsed(self.headers.as_ref().map_or(Overlaid::plain(bytes), |headers| Overlaid::over(bytes, headers)))
    }
}

/// Whether the file's own headers tell symbols.
fn is_told(file: &File<'_>) -> bool {
    file.symbols().next().is_some() || file.dynamic_symbols().next().is_some()
}

fn has_code(file: &File<'_>) -> bool {
    file.sections().any(|section| section.kind() == SectionKind::Text)
}

fn has_segments(file: &File<'_>) -> bool {
    file.segments().next().is_some()
}

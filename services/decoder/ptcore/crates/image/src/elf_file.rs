//! ELF files as they are parsed.

mod overlaid;

pub use overlaid::{Headers, Overlaid};

use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{elf, Endianness, Object, ObjectSection, SectionFlags};

/// The names of a file's sections have so many bytes at most, also where several sections share one: they are read over
/// and over. Object files with a section for each function have some megabytes.
const MAX_SECTION_NAMES: usize = 1 << 26;

/// An ELF file, with the sections of its own table or those that its segments tell.
pub type File<'d> = object::File<'d, Overlaid<'d>>;

/// A file with its own section headers.
pub fn elf(bytes: &[u8]) -> Result<File<'_>, String> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err("it does not begin with the ELF magic number".to_owned());
    }
    let file = parsed(Overlaid::plain(bytes))?;
    let mut room = MAX_SECTION_NAMES;
    for section in file.sections() {
        let size = section.name_bytes().map_or(0, <[u8]>::len);
        let too_long = || format!("the names of its sections have more than {MAX_SECTION_NAMES} bytes");
        room = room.checked_sub(size).ok_or_else(too_long)?;
    }
    Ok(file)
}

/// With the section headers that lie over it.
pub fn parsed(data: Overlaid<'_>) -> Result<File<'_>, String> {
    object::File::parse(data).map_err(|error| error.to_string())
}

/// The GNU build id, by section or by segment; empty when there is none.
pub fn build_id<'d>(file: &File<'d>) -> &'d [u8] {
    let told = file.build_id().ok().flatten();
    told.or_else(|| match file {
        object::File::Elf32(file) => noted(file),
        object::File::Elf64(file) => noted(file),
        _ => None,
    })
    .unwrap_or_default()
}

fn noted<'d, Elf: FileHeader<Endian = Endianness>>(file: &ElfFile<'d, Elf, Overlaid<'d>>) -> Option<&'d [u8]> {
    let endian = file.endian();
    let notes = file.elf_program_headers().iter().filter_map(|one| one.notes(endian, file.data()).ok().flatten());
    notes.flat_map(|notes| notes.map_while(Result::ok)).find_map(|note| {
        let is_id = note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
        is_id.then_some(note.desc())
    })
}

/// Whether the code is in another file: this one has its sections without what was in them (`objcopy --only-keep-debug`,
/// `eu-strip -f`). The program headers may still speak of bytes, those of other sections.
pub fn is_debug_file(file: &File<'_>) -> bool {
    let runs = |flags| matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(elf::SHF_EXECINSTR));
    let mut code = file.sections().filter(|section| runs(section.flags()) && section.size() > 0).peekable();
    code.peek().is_some() && code.all(|section| section.file_range().is_none())
}

/// Whether the section headers are the file's own: symbols name sections by their numbers there.
pub fn has_own_sections(file: &File<'_>) -> bool {
    match file {
        object::File::Elf32(file) => file.data().is_plain(),
        object::File::Elf64(file) => file.data().is_plain(),
        _ => true,
    }
}

//! ELF files as they are parsed.

use object::{Object, ObjectSection};

/// The names of a file's sections have so many bytes at most, also where several sections share one: they are read over
/// and over. Object files with a section for each function have some megabytes.
const MAX_SECTION_NAMES: usize = 1 << 26;

pub fn elf(bytes: &[u8]) -> Result<object::File<'_>, String> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err("it does not begin with the ELF magic number".to_owned());
    }
    let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
    let mut room = MAX_SECTION_NAMES;
    for section in file.sections() {
        let size = section.name_bytes().map_or(0, <[u8]>::len);
        let too_long = || format!("the names of its sections have more than {MAX_SECTION_NAMES} bytes");
        room = room.checked_sub(size).ok_or_else(too_long)?;
    }
    Ok(file)
}

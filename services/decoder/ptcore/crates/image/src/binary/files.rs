//! The files that belong to a binary: itself, its separate debug file, the small one packed into it.

use super::Unpack;
use crate::bytes::Bytes;
use crate::room::Room;
use crate::separate::hex;
use object::{Object, ObjectSection};
use std::io;

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

pub fn usable(debug: io::Result<Bytes>, build_id: &str) -> Result<Bytes, String> {
    let debug = debug.map_err(|error| error.to_string())?;
    let file = elf(&debug)?;
    let other = hex(file.build_id().ok().flatten().unwrap_or_default());
    if !build_id.is_empty() && !other.is_empty() && other != build_id {
        return Err(format!("its build id is {other}"));
    }
    drop(file);
    Ok(debug)
}

pub fn mini_debug_info(file: &object::File<'_>, unpack: Unpack<'_>, room: &Room) -> Option<Bytes> {
    let packed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
    let bytes = Bytes::Owned(unpack(packed)?);
    room.take(bytes.len() as u64)?;
    elf(&bytes).is_ok().then_some(bytes)
}

//! The files that belong to a binary: itself, its separate debug file, the small one packed into it.

use crate::bytes::Bytes;
use crate::elf_file::{build_id as id_of, elf, File};
use crate::room::Room;
use crate::separate::hex;
use crate::xz;
use object::{Object, ObjectSection};
use std::io;

/// The debug file, if it may be the one of the binary: by build id, and where that has none, by what its `.gnu_debuglink` says.
pub fn usable(debug: io::Result<Bytes>, build_id: &str, binary: &File<'_>) -> Result<Bytes, String> {
    let debug = debug.map_err(|error| error.to_string())?;
    if let (true, Ok(Some((_, wanted)))) = (build_id.is_empty(), binary.gnu_debuglink()) {
        let own = crc32fast::hash(&debug);
        if own != wanted {
            return Err(format!("its checksum is {own:08x}, and {wanted:08x} is wanted"));
        }
    }
    let file = elf(&debug)?;
    let other = hex(id_of(&file));
    if !build_id.is_empty() && !other.is_empty() && other != build_id {
        return Err(format!("its build id is {other}"));
    }
    drop(file);
    Ok(debug)
}

pub fn mini_debug_info(file: &File<'_>, room: &Room) -> Option<Bytes> {
    let packed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
    let bytes = Bytes::Owned(xz::unpack(packed)?);
    room.take(bytes.len() as u64)?;
    elf(&bytes).is_ok().then_some(bytes)
}

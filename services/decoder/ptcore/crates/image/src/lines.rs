//! Source lines from DWARF.

use addr2line::Context;
use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, Section, SectionId};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Debug sections are unpacked up to this many bytes; a file with more gives no lines.
const MAX_SECTIONS: u64 = 1 << 30;

type Line = Option<(String, u32)>;

/// Lines asked for before.
#[derive(Default)]
pub struct Lines(Mutex<HashMap<u64, Line>>);

impl Lines {
    /// The line of each address, from the first of `files` with line tables.
    pub fn find<'f>(&self, files: impl Iterator<Item = &'f [u8]>, addresses: &[u64]) -> Vec<Line> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown: Vec<_> = addresses.iter().copied().filter(|address| !known.contains_key(address)).collect();
        if !unknown.is_empty() {
            let mut found = vec![None; unknown.len()];
            for bytes in files {
                if let Some(lines) = look_up(bytes, &unknown) {
                    found = lines;
                    break;
                }
            }
            known.extend(unknown.into_iter().zip(found));
        }
        addresses.iter().map(|address| known.get(address).cloned().flatten()).collect()
    }
}

fn look_up(bytes: &[u8], addresses: &[u64]) -> Option<Vec<Line>> {
    let file = object::File::parse(bytes).ok()?;
    if !file.is_little_endian() {
        return None;
    }
    let mut room = MAX_SECTIONS;
    let sections = DwarfSections::load(|id: SectionId| section(&file, id.name(), &mut room)).ok()?;
    let dwarf: Dwarf<EndianSlice<'_, LittleEndian>> =
        sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    if dwarf.debug_line.reader().is_empty() {
        return None;
    }
    let context = Context::from_dwarf(dwarf).ok()?;
    Some(addresses.iter().map(|&address| line(&context, address)).collect())
}

fn line(context: &Context<EndianSlice<'_, LittleEndian>>, address: u64) -> Line {
    let location = context.find_location(address).ok()??;
    Some((location.file?.to_owned(), location.line?))
}

/// The section's bytes, unpacked; none when it is absent or damaged. Fails when there is no room left.
fn section<'d>(file: &object::File<'d>, name: &str, room: &mut u64) -> Result<Cow<'d, [u8]>, ()> {
    let Some(section) = file.section_by_name(name) else { return Ok(Cow::Borrowed(&[])) };
    let Ok(data) = section.compressed_data() else { return Ok(Cow::Borrowed(&[])) };
    *room = room.checked_sub(data.uncompressed_size).ok_or(())?;
    Ok(data.decompress().unwrap_or_default())
}

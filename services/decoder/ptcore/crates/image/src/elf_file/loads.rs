//! What the segments of a file say, by the bytes that are there.

use super::headers::Class;
use object::elf::{self, ProgramFlags};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind};
use std::collections::HashMap;
use std::ops::Range;

/// So many segments are looked at; programs have a dozen.
const MAX_SEGMENTS: usize = 1 << 10;
/// So many entries of the dynamic segment; programs have some dozens.
const MAX_TAGS: usize = 1 << 10;

/// A part of the file and its address.
#[derive(Clone, Debug)]
pub struct Part {
    pub address: u64,
    pub place: Range<u64>,
    pub flags: ProgramFlags,
}

/// The segments of a file.
pub struct Loads<'d> {
    pub bytes: &'d [u8],
    pub class: Class,
    /// `PT_LOAD`.
    pub loads: Vec<Part>,
    /// `PT_NOTE`.
    pub notes: Vec<Part>,
    /// `PT_GNU_EH_FRAME`.
    pub frames: Option<Part>,
    /// Of `PT_DYNAMIC`.
    pub tags: HashMap<elf::DynamicTag, u64>,
}

impl<'d> Loads<'d> {
    /// `None` where the header or the program headers cannot be read, or where nothing is loaded.
    pub fn of(bytes: &'d [u8]) -> Option<Loads<'d>> {
        let loads = match FileKind::parse(bytes).ok()? {
            FileKind::Elf32 => Loads::read::<elf::FileHeader32<Endianness>>(bytes)?,
            FileKind::Elf64 => Loads::read::<elf::FileHeader64<Endianness>>(bytes)?,
            _ => return None,
        };
        (!loads.loads.is_empty()).then_some(loads)
    }

    fn read<Elf: FileHeader<Endian = Endianness>>(bytes: &'d [u8]) -> Option<Loads<'d>> {
        let header = Elf::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let class = Class { is_64: header.is_type_64(), endian };
        let mut all = Loads { bytes, class, loads: vec![], notes: vec![], frames: None, tags: HashMap::new() };
        for segment in header.program_headers(endian, bytes).ok()?.iter().take(MAX_SEGMENTS) {
            let (offset, size) = segment.file_range(endian);
            let end = offset.saturating_add(size).min(bytes.len() as u64);
            let place = offset.min(end)..end;
            let part = Part { address: segment.p_vaddr(endian).into(), place, flags: segment.p_flags(endian) };
            match segment.p_type(endian) {
                elf::PT_LOAD => all.loads.push(part),
                elf::PT_NOTE => all.notes.push(part),
                elf::PT_GNU_EH_FRAME => all.frames = Some(part),
                elf::PT_DYNAMIC => {
                    let entries = segment.dynamic(endian, bytes).ok().flatten().unwrap_or_default();
                    let tags = entries.iter().take(MAX_TAGS).map(|one| (one.tag(endian), one.val(endian)));
                    all.tags.extend(tags.take_while(|&(tag, _)| tag != elf::DT_NULL));
                }
                _ => {}
            }
        }
        Some(all)
    }

    /// Where in the file the byte at `address` is, up to where its segment ends in it.
    pub fn place(&self, address: u64) -> Option<Range<u64>> {
        self.loads.iter().find_map(|part| {
            let at = part.place.start.checked_add(address.checked_sub(part.address)?)?;
            part.place.contains(&at).then_some(at..part.place.end)
        })
    }

    pub fn data(&self, place: &Range<u64>) -> &'d [u8] {
        self.bytes.get(place.start as usize..place.end as usize).unwrap_or_default()
    }
}

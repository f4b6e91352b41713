//! What the segments of a file say, by the bytes that are there.

use super::headers::Class;
use object::elf::{self, ProgramFlags};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadRef};
use std::collections::HashMap;
use std::mem::size_of;
use std::ops::Range;

/// So many segments are looked at; programs have a dozen.
const MAX_SEGMENTS: usize = 1 << 10;
/// So many entries of the dynamic segment; programs have some dozens.
const MAX_TAGS: usize = 1 << 10;

/// Values by tag.
pub type Tags = HashMap<elf::DynamicTag, u64>;

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
    pub tags: Tags,
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
        let mut dynamic = None;
        for segment in header.program_headers(endian, bytes).ok()?.iter().take(MAX_SEGMENTS) {
            let (offset, size) = segment.file_range(endian);
            let end = offset.saturating_add(size).min(bytes.len() as u64);
            let place = offset.min(end)..end;
            let part = Part { address: segment.p_vaddr(endian).into(), place, flags: segment.p_flags(endian) };
            match segment.p_type(endian) {
                elf::PT_LOAD => all.loads.push(part),
                elf::PT_NOTE => all.notes.push(part),
                elf::PT_GNU_EH_FRAME => all.frames = Some(part),
                elf::PT_DYNAMIC => dynamic = Some((part.address, offset, size)),
                _ => {}
            }
        }
        if let Some((address, offset, size)) = dynamic {
            all.tags = all.tags_at::<Elf>(offset, size);
            if let Some(offset) = all.in_memory(address).filter(|_| !all.tags.contains_key(&elf::DT_SYMTAB)) {
                all.tags = all.tags_at::<Elf>(offset, size);
            }
            all.unrelocate();
        }
        Some(all)
    }

    fn tags_at<Elf: FileHeader<Endian = Endianness>>(&self, offset: u64, size: u64) -> Tags {
        let (endian, count) = (self.class.endian, size as usize / size_of::<Elf::Dyn>());
        let entries = self.bytes.read_slice_at::<Elf::Dyn>(offset, count.min(MAX_TAGS)).unwrap_or_default();
        let tags = entries.iter().map(|one| (one.tag(endian), one.val(endian)));
        tags.take_while(|&(tag, _)| tag != elf::DT_NULL).collect()
    }

    /// Where in the file `address` is, if it was read from memory from its first segment on.
    fn in_memory(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.loads.first()?.address)?.checked_add(self.loads[0].place.start)
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

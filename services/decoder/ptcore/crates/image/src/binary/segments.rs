//! What of a file is loaded where, and what of it is code.

use super::Binary;
use crate::elf_file::File;
use object::elf::{SHF_ALLOC, SHF_EXECINSTR};
use object::{Object, ObjectKind, ObjectSection, ObjectSegment, SectionFlags, SectionKind};
use std::ops::Range;

/// A stretch of the file that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub offset: u64,
    pub address: u64,
    pub size: u64,
    pub executable: bool,
}

/// All of a file.
pub struct Segments {
    all: Vec<Segment>,
    /// They come one after another, by offset and by address: as nearly always. Files of generated code have thousands.
    in_file: bool,
    in_memory: bool,
}

/// Of those that do not come one after another so many are known: all of them are looked at, over and over.
const MAX_OUT_OF_TURN: usize = 1 << 10;

impl Segments {
    /// Where no program header tells what is loaded, section headers do: perf before Linux 6.1 wrote generated code like
    /// this (tools/perf/util/genelf.c). The sections of object files have no addresses yet.
    pub fn of(file: &File<'_>) -> Segments {
        if file.segments().next().is_none() && file.kind() != ObjectKind::Relocatable {
            return Segments::new(file.sections().filter_map(|section| loaded(&section)));
        }
        Segments::new(file.segments().map(|segment| Segment {
            offset: segment.file_range().0,
            address: segment.address(),
            size: segment.file_range().1,
            executable: segment.permissions().executable(),
        }))
    }

    fn new(segments: impl Iterator<Item = Segment>) -> Segments {
        let mut all: Vec<_> = segments.collect();
        let in_turn = |start: fn(&Segment) -> u64| {
            let meets =
                |pair: &[Segment]| start(&pair[0]).checked_add(pair[0].size).is_some_and(|end| end <= start(&pair[1]));
            all.windows(2).all(meets)
        };
        let (in_file, in_memory) = (in_turn(|segment| segment.offset), in_turn(|segment| segment.address));
        if !in_file || !in_memory {
            all.truncate(MAX_OUT_OF_TURN);
        }
        Segments { all, in_file, in_memory }
    }

    /// The segment that loads the byte at `offset`. Neighbouring segments may share a page of the file: the one with code
    /// is meant.
    fn at_offset(&self, offset: u64) -> Option<&Segment> {
        let candidates = self.around(self.in_file, |segment| segment.offset <= offset);
        let holds = |segment: &&Segment| offset.wrapping_sub(segment.offset) < segment.size && segment.offset <= offset;
        candidates.iter().find(|segment| segment.executable && holds(segment)).or_else(|| candidates.iter().find(holds))
    }

    /// Those that are loaded around `address`.
    pub fn at_address(&self, address: u64) -> impl Iterator<Item = &Segment> {
        let candidates = self.around(self.in_memory, |segment| segment.address <= address);
        candidates.iter().filter(move |segment| address.wrapping_sub(segment.address) < segment.size)
    }

    /// The last one that begins `before`, where they are in order; otherwise all.
    fn around(&self, in_order: bool, before: impl Fn(&Segment) -> bool) -> &[Segment] {
        if !in_order {
            return &self.all;
        }
        let after = self.all.partition_point(before);
        &self.all[after.saturating_sub(1)..after]
    }
}

/// A section that is loaded and has bytes in the file.
fn loaded<'d>(section: &impl ObjectSection<'d>) -> Option<Segment> {
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return None };
    let (offset, size) = section.file_range().filter(|_| sh_flags.contains(SHF_ALLOC))?;
    Some(Segment { offset, address: section.address(), size, executable: sh_flags.contains(SHF_EXECINSTR) })
}

impl Binary {
    /// The address at which the byte at `offset` is loaded; `None` when no segment loads it.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.at_offset(offset)?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    /// The offsets of the code that is loaded in one with the byte at `offset`.
    pub fn code_around(&self, offset: u64) -> Option<Range<u64>> {
        let segment = self.segments.at_offset(offset).filter(|segment| segment.executable)?;
        Some(segment.offset..segment.offset.saturating_add(segment.size))
    }

    pub(super) fn is_code(&self, address: u64) -> bool {
        self.segments.at_address(address).any(|segment| segment.executable)
    }
}

pub fn code_sections(file: &File<'_>) -> Vec<(u64, u64)> {
    let mut sections: Vec<_> = file
        .sections()
        .filter(|section| section.kind() == SectionKind::Text)
        .map(|section| (section.address(), section.address().saturating_add(section.size())))
        .collect();
    sections.sort_unstable();
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(segments: &[(u64, u64, u64)]) -> Segments {
        let code = |&(offset, address, size)| Segment { offset, address, size, executable: true };
        Segments::new(segments.iter().map(code))
    }

    fn at_offset(segments: &Segments, offset: u64) -> Option<u64> {
        segments.at_offset(offset).map(|segment| segment.address)
    }

    #[test]
    fn a_place_is_found_in_segments_of_any_size() {
        let all = segments(&[(0x1000, 0x40_0000, u64::MAX)]);
        assert_eq!([0, 0xfff, 0x1234].map(|offset| at_offset(&all, offset)), [None, None, Some(0x40_0000)]);
        let all = segments(&[(0x1000, 0x40_0000, 0x10)]);
        assert_eq!([0x100f, 0x1010].map(|offset| at_offset(&all, offset)), [Some(0x40_0000), None]);
        assert_eq!([0x3f_ffff, 0x40_000f, 0x40_0010].map(|address| all.at_address(address).count()), [0, 1, 0]);
    }

    #[test]
    fn segments_need_not_be_in_order() {
        let turned = segments(&[(0x1000, 0x40_0000, 0x10), (0x1010, 0x30_0000, 0x10), (0x1008, 0x50_0000, 0x20)]);
        let found = [0x1008, 0x1018, 0x1027, 0x1028].map(|offset| at_offset(&turned, offset));
        assert_eq!(found, [Some(0x40_0000), Some(0x30_0000), Some(0x50_0000), None]);
        for address in [0x30_000f, 0x40_000f, 0x50_001f] {
            assert_eq!(turned.at_address(address).count(), 1, "{address:#x}");
        }
    }

    #[test]
    fn of_thousands_that_are_not_in_order_the_first_ones_are_known() {
        let many: Vec<_> = (0..5000).map(|number| (0x1000 + number * 8, 0x40_0000 - number * 64, 8)).collect();
        let all = segments(&many);
        let known = |number: u64| all.at_address(0x40_0000 - number * 64).count();
        assert_eq!([known(0), known(1023), known(1024), known(4999)], [1, 1, 0, 0]);
    }

    #[test]
    fn each_of_thousands_is_found() {
        let many: Vec<_> = (0..5000).map(|number| (0x1000 + number * 8, 0x40_0000 + number * 64, 8)).collect();
        let all = segments(&many);
        assert!(all.in_file && all.in_memory);
        for &(offset, address, size) in &many {
            assert_eq!(at_offset(&all, offset + size - 1), Some(address));
            assert_eq!(all.at_address(address + size - 1).count(), 1);
            assert_eq!(all.at_address(address + size).count(), 0);
        }
    }
}

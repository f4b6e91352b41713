//! What of a file is loaded where, and what of it is code.

use super::Binary;
use object::{Object, ObjectSection, ObjectSegment, SectionKind};

/// A stretch of the file that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub offset: u64,
    pub address: u64,
    pub size: u64,
    pub executable: bool,
}

impl Binary {
    /// The address at which the byte at `offset` is loaded; `None` when no segment loads it.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        // Neighbouring segments may share a page of the file: the one with code is meant.
        let holds =
            |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|distance| distance < segment.size);
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.executable && holds(segment))
            .or_else(|| self.segments.iter().find(holds))?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    pub(super) fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| segment.executable && address.wrapping_sub(segment.address) < segment.size)
    }
}

pub fn segments(file: &object::File<'_>) -> Vec<Segment> {
    file.segments()
        .map(|segment| Segment {
            offset: segment.file_range().0,
            address: segment.address(),
            size: segment.file_range().1,
            executable: segment.permissions().executable(),
        })
        .collect()
}

pub fn code_sections(file: &object::File<'_>) -> Vec<(u64, u64)> {
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
    use crate::bytes::Bytes;
    use crate::dwarf::Dwarf;
    use crate::separate::Search;
    use std::path::PathBuf;
    use std::sync::Arc;

    #[test]
    fn an_address_is_found_in_segments_of_any_size() {
        let search = Search::default();
        let segment = |offset, size| Segment { offset, address: 0x40_0000, size, executable: true };
        let mut binary = Binary {
            path: PathBuf::new(),
            bytes: Arc::new(Bytes::Owned(Vec::new())),
            debug: None,
            mini: None,
            build_id: String::new(),
            symbol_status: String::new(),
            segments: vec![segment(0x1000, u64::MAX)],
            functions: Vec::new(),
            ranges: Vec::new(),
            dwarf: Dwarf::new(Vec::new(), search),
            go: None,
        };
        assert_eq!([0, 0xfff].map(|offset| binary.address_of(offset)), [None, None]);
        assert_eq!(binary.address_of(0x1234), Some(0x40_0234));
        binary.segments = vec![segment(0x1000, 0x10)];
        assert_eq!([0x100f, 0x1010].map(|offset| binary.address_of(offset)), [Some(0x40_000f), None]);
    }
}

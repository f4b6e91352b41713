//! The bytes of a file, with section headers in place of its own.

use object::ReadRef;
use std::ops::Range;

/// A file's header that leads to section headers behind the file's last byte, and these with their names.
pub struct Headers {
    pub header: Vec<u8>,
    pub sections: Vec<u8>,
}

/// What is read as a file.
#[derive(Clone, Copy, Debug)]
pub struct Overlaid<'d> {
    file: &'d [u8],
    header: &'d [u8],
    behind: &'d [u8],
}

impl<'d> Overlaid<'d> {
    /// The file as it is.
    pub fn plain(file: &'d [u8]) -> Overlaid<'d> {
        Overlaid { file, header: &[], behind: &[] }
    }

    pub fn over(file: &'d [u8], headers: &'d Headers) -> Overlaid<'d> {
        Overlaid { file, header: &headers.header, behind: &headers.sections }
    }

    /// Whether the section headers are the file's own.
    pub fn is_plain(self) -> bool {
        self.header.is_empty()
    }

    fn at(self, offset: u64) -> (&'d [u8], u64) {
        match offset.checked_sub(self.file.len() as u64) {
            Some(behind) => (self.behind, behind),
            None => (self.file, offset),
        }
    }
}

impl<'d> ReadRef<'d> for Overlaid<'d> {
    fn len(self) -> Result<u64, ()> {
        Ok((self.file.len() + self.behind.len()) as u64)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        if offset == 0 && size > 0 && size == self.header.len() as u64 {
            return Ok(self.header);
        }
        let (bytes, offset) = self.at(offset);
        bytes.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        let (bytes, start) = self.at(range.start);
        let end = start.checked_add(range.end.checked_sub(range.start).ok_or(())?).ok_or(())?;
        bytes.read_bytes_at_until(start..end, delimiter)
    }
}

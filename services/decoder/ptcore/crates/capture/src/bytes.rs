//! Bytes that many hold: parts of a mapped file, or unpacked ones.

use crate::elf::TemporaryFile;
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// Streams up to this size are joined in memory.
const IN_MEMORY: usize = 1 << 26;

/// A part of some bytes; a copy is another name for the same bytes.
#[derive(Clone)]
pub struct Bytes {
    whole: Arc<pt_image::Bytes>,
    part: Range<usize>,
}

impl Bytes {
    /// Maps a file.
    pub fn open(path: &Path) -> io::Result<Bytes> {
        Ok(Bytes::whole(pt_image::Bytes::open(path)?))
    }

    fn whole(bytes: pt_image::Bytes) -> Bytes {
        let part = 0..bytes.len();
        Bytes { whole: Arc::new(bytes), part }
    }

    /// Parts one after another; large ones by way of a temporary file that is mapped.
    pub fn join(parts: &[Bytes]) -> io::Result<Bytes> {
        if let [one] = parts {
            return Ok(one.clone());
        }
        let slices: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        if slices.iter().map(|slice| slice.len()).sum::<usize>() <= IN_MEMORY {
            return Ok(slices.concat().into());
        }
        Bytes::open(&TemporaryFile::of(&slices)?.0)
    }

    /// Gives back the memory of what was read of a mapped file.
    pub fn release(&self) {
        self.whole.release();
    }

    /// The same for a binary to hold.
    pub fn shared(&self) -> pt_image::Bytes {
        pt_image::Bytes::Part(Arc::clone(&self.whole), self.part.clone())
    }

    /// A part of these, cut off at their end.
    pub fn part(&self, part: Range<usize>) -> Bytes {
        let end = self.part.start.saturating_add(part.end).min(self.part.end);
        let start = self.part.start.saturating_add(part.start).min(end);
        Bytes { whole: Arc::clone(&self.whole), part: start..end }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::whole(pt_image::Bytes::Owned(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole[self.part.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

//! The content of a file, mapped or in memory, or a part of it.

use memmap2::{Mmap, UncheckedAdvice};
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

pub enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
    /// A part of bytes that others hold, too.
    Part(Arc<Bytes>, Range<usize>),
}

impl Bytes {
    /// Maps a file; an empty one is no bytes.
    pub fn open(path: &Path) -> io::Result<Bytes> {
        let kind = std::fs::metadata(path)?;
        if kind.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if !kind.is_file() {
            // Opening a pipe would wait for its writer.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            return Ok(Bytes::Owned(Vec::new()));
        }
        // SAFETY: the mapping is private and read-only. The service's files are never rewritten in place. Those of users may be:
        // what is read twice may differ then, so no parser relies on what it read before, and one that another process shortens
        // ends this one with SIGBUS.
        Ok(Bytes::Mapped(unsafe { Mmap::map(&file)? }))
    }

    /// Gives back the memory of what was read of a mapped file; it is read again where it is needed again.
    pub fn release(&self) {
        let Bytes::Mapped(map) = self else { return };
        // SAFETY: nobody writes to the mapping: its pages are those of the file, before and afterwards.
        let released = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        // Otherwise they stay until the system wants them.
        drop(released);
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
            Bytes::Part(whole, part) => whole.get(part.clone()).unwrap_or_default(),
        }
    }
}

//! Files in the temporary folder.

use crate::CaptureError;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that goes when this does.
pub struct TemporaryFile(pub PathBuf, File);

impl TemporaryFile {
    pub fn new(bytes: &[u8]) -> Result<Self, CaptureError> {
        let folder = std::env::temp_dir();
        TemporaryFile::of(&folder, std::iter::once(bytes), bytes.len() as u64)
    }

    /// Parts one after another, `size` bytes in all. The error names the folder.
    pub fn of<'p>(folder: &Path, parts: impl Iterator<Item = &'p [u8]>, size: u64) -> Result<Self, CaptureError> {
        let write = || {
            let mut file = TemporaryFile::create(folder)?;
            for part in parts {
                file.append(part)?;
            }
            Ok(file)
        };
        write().map_err(|error| CaptureError::Temporary { folder: folder.to_owned(), size, error })
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.write_all(bytes)
    }

    /// An empty one.
    pub fn create(folder: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("permille-capture-{}-{number}", std::process::id()));
            match File::create_new(&path) {
                Ok(file) => return Ok(TemporaryFile(path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // It is only a copy; one that stays in the temporary folder harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

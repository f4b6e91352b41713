//! What the fuzz targets share: inputs that hold code and a stream, and files in memory.

mod beside;

pub use beside::{Folder, FILE, NAMES};

use std::ffi::CStr;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

/// Where the code of an input stands.
pub const CODE: u64 = 0x40_1000;

/// An input of the flow and call layers: one byte of size (in steps of 4 bytes), code, packets.
pub fn code_and_stream(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((&size, rest)) = input.split_first() else { return (&[], &[]) };
    rest.split_at((usize::from(size) * 4).min(rest.len()))
}

/// A file that only has a name as long as it is open.
pub struct MemoryFile(File);

impl MemoryFile {
    pub fn new() -> Self {
        const NAME: &CStr = c"input";
        extern "C" {
            fn memfd_create(name: *const std::ffi::c_char, flags: u32) -> i32;
        }
        // SAFETY: the name ends with a zero byte; nothing else is handed over.
        let descriptor = unsafe { memfd_create(NAME.as_ptr(), 0) };
        assert!(descriptor >= 0, "no file in memory: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is fresh and belongs to nobody else.
        MemoryFile(unsafe { File::from_raw_fd(descriptor) })
    }

    /// Holds these bytes and nothing else from now on.
    pub fn hold(&mut self, bytes: &[u8]) -> PathBuf {
        self.0.set_len(0).and_then(|()| self.0.seek(SeekFrom::Start(0))).expect("an empty file");
        self.0.write_all(bytes).expect("room in memory");
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

impl Default for MemoryFile {
    fn default() -> Self {
        MemoryFile::new()
    }
}

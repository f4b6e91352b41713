//! Bytes that are no packet.

use std::fmt;

/// Why they are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No packet of the manual begins like this.
    Unknown,
    /// The data end inside the packet.
    Truncated,
}

/// Bytes that are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    pub offset: usize,
    /// The first bytes at `offset`, zero beyond the end of the data.
    pub bytes: [u8; 4],
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::Unknown => "no packet begins with",
            ErrorKind::Truncated => "the data end inside the packet that begins with",
        };
        let [a, b, c, d] = self.bytes;
        write!(f, "at offset {:#x}: {what} {a:02x} {b:02x} {c:02x} {d:02x}", self.offset)
    }
}

impl std::error::Error for Error {}

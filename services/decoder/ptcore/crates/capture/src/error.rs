//! Why a recording cannot be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with which file, and where in it (offsets in bytes).
#[derive(Debug)]
pub enum CaptureError {
    Unreadable {
        path: PathBuf,
        error: io::Error,
    },
    /// Nothing that is known begins like this, or what it tells is not enough.
    Unknown {
        path: PathBuf,
        why: String,
    },
    /// A part of the file cannot be.
    Damaged {
        path: PathBuf,
        offset: u64,
        what: String,
    },
    /// So much larger than it is that it is not unpacked, or far too large: that may be whole.
    Packed {
        path: PathBuf,
        limit: u64,
    },
    /// A description in JSON is wrong at a place (`processes[0].pid`).
    Json {
        path: PathBuf,
        place: String,
        what: String,
    },
    /// Bytes that are kept in a file for the time being.
    Temporary {
        folder: PathBuf,
        size: u64,
        error: io::Error,
    },
    /// An option that cannot be taken.
    Option {
        given: String,
        what: String,
    },
}

impl CaptureError {
    pub(crate) fn unreadable(path: &Path, error: io::Error) -> Self {
        CaptureError::Unreadable { path: path.to_owned(), error }
    }

    pub(crate) fn damaged(path: &Path, offset: usize, what: impl Into<String>) -> Self {
        CaptureError::Damaged { path: path.to_owned(), offset: offset as u64, what: what.into() }
    }

    /// Whether one file is at fault, and not what is told of it or this machine: what other files hold can be had.
    pub(crate) fn is_of_content(&self) -> bool {
        matches!(self, CaptureError::Unreadable { .. } | CaptureError::Damaged { .. } | CaptureError::Packed { .. })
    }

    pub(crate) fn option(given: &str, what: impl Into<String>) -> Self {
        CaptureError::Option { given: given.to_owned(), what: what.into() }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
            CaptureError::Unknown { path, why } => write!(f, "{}: {why}", path.display()),
            CaptureError::Damaged { path, offset, what } => {
                write!(f, "{}: at offset {offset:#x}: {what}", path.display())
            }
            CaptureError::Packed { path, limit } => {
                write!(f, "{}: more than {limit} bytes when unpacked", path.display())
            }
            CaptureError::Json { path, place, what } => write!(f, "{}: {place}: {what}", path.display()),
            CaptureError::Temporary { folder, size, error } => {
                let folder = folder.display();
                write!(f, "the temporary folder {folder} (TMPDIR) is to take {size} bytes of the recording: {error}")
            }
            CaptureError::Option { given, what } => write!(f, "{given}: {what}"),
        }
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CaptureError::Unreadable { error, .. } | CaptureError::Temporary { error, .. } => Some(error),
            _ => None,
        }
    }
}

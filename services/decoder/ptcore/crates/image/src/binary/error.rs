//! Files that are no binaries.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub enum BinaryError {
    Unreadable { path: PathBuf, error: io::Error },
    NotElf { path: PathBuf, error: String },
    OtherArchitecture { path: PathBuf, architecture: String },
}

impl fmt::Display for BinaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BinaryError::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
            BinaryError::OtherArchitecture { path, architecture } => {
                write!(f, "{} is for {architecture}, not for x86", path.display())
            }
            BinaryError::NotElf { path, error } => write!(f, "{} is no ELF file: {error}", path.display()),
        }
    }
}

impl std::error::Error for BinaryError {}

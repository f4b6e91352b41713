//! Changes that an address space cannot take.

use std::fmt;

/// Changes of all pieces together: bounds the memory of images that are cut ever smaller.
pub const MAX_CHANGES: usize = 1 << 25;
/// Epochs are numbers of 30 bits: the flow layer keeps the mode beside them.
pub const MAX_EPOCH: u32 = u32::MAX >> 2;

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The stretch is empty or goes beyond the last address.
    BadRange {
        address: u64,
        size: u64,
    },
    /// Changes must come in the order of their epochs.
    EpochBack {
        epoch: u32,
        last: u32,
    },
    EpochTooLarge {
        epoch: u32,
    },
    TooManyChanges,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::BadRange { address, size } => {
                write!(
                    f,
                    "size {size:#x} at address {address:#x}: a mapping must hold at least one byte and end below 2^64"
                )
            }
            ImageError::EpochBack { epoch, last } => {
                write!(f, "epoch {epoch} after epoch {last}: give the changes in the order of their epochs")
            }
            ImageError::EpochTooLarge { epoch } => write!(f, "epoch {epoch} is beyond the last possible, {MAX_EPOCH}"),
            ImageError::TooManyChanges => {
                write!(f, "the address space is cut into more than {MAX_CHANGES} pieces: decode a shorter period")
            }
        }
    }
}

impl std::error::Error for ImageError {}

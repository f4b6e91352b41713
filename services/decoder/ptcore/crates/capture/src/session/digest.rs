//! Whether what the archive has is what was recorded.

use crate::bytes::IN_MEMORY;
use crate::json::Node;
use crate::{Bytes, CaptureError};
use pt_image::hex;
use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;

/// An error when the manifest's entry has the SHA-256 of another content. Entries without one say nothing.
pub fn require(entry: &Node, path: &Path, bytes: &Bytes) -> Result<(), CaptureError> {
    let told = entry.find("sha256")?.map_or(Ok(""), |told| told.text())?;
    if told.is_empty() {
        return Ok(());
    }
    let mut digest = Sha256::new();
    for piece in bytes.chunks(IN_MEMORY) {
        digest.update(piece);
        bytes.release();
    }
    let found = hex(&digest.finalize());
    if found != told {
        let what = "the SHA-256 of its content is not the manifest's";
        return Err(CaptureError::unreadable(path, io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    Ok(())
}

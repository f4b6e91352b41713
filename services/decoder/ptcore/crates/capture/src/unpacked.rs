//! Files that are packed with gzip or zstd, whichever they are.

use crate::{Bytes, CaptureError};
use std::io::Read;
use std::path::Path;

/// Up to which size so many compressed bytes are unpacked in memory.
pub(crate) fn max_unpacked(packed: usize) -> u64 {
    (packed as u64).saturating_mul(1024).clamp(1 << 26, 1 << 32)
}

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The bytes of the file, unpacked.
pub(crate) fn content(path: &Path) -> Result<Bytes, CaptureError> {
    let data = Bytes::open(path).map_err(|error| CaptureError::unreadable(path, error))?;
    if data.starts_with(GZIP) {
        return unpack(path, flate2::read::MultiGzDecoder::new(&*data), max_unpacked(data.len()));
    }
    if data.starts_with(ZSTD) {
        let damaged = |error| CaptureError::damaged(path, 0, format!("not zstd: {error}"));
        let decoder = ruzstd::decoding::StreamingDecoder::new(&*data).map_err(damaged)?;
        return unpack(path, decoder, max_unpacked(data.len()));
    }
    Ok(data)
}

fn unpack(path: &Path, packed: impl Read, limit: u64) -> Result<Bytes, CaptureError> {
    let mut bytes = Vec::new();
    let read = packed.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| CaptureError::unreadable(path, error))?;
    if bytes.len() as u64 > limit {
        let what = format!("more than {limit} bytes when unpacked: unpack it to a file and give that");
        return Err(CaptureError::damaged(path, 0, what));
    }
    Ok(bytes.into())
}

//! Files that are packed with gzip, zstd or xz, whichever they are.

use crate::bytes::IN_MEMORY;
use crate::temporary::TemporaryFile;
use crate::zstd::{self, Frames};
use crate::{Bytes, CaptureError};
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Up to which size so many compressed bytes are unpacked.
pub(crate) fn max_unpacked(packed: usize) -> u64 {
    (packed as u64).saturating_mul(1024).clamp(1 << 26, 1 << 32)
}

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = b"\xfd7zXZ\0";

/// The bytes of the file, unpacked.
pub(crate) fn content(path: &Path) -> Result<Bytes, CaptureError> {
    content_with_doubt(path).map(|(bytes, _)| bytes)
}

/// Files that were read, for those that several parts of a recording name.
#[derive(Default)]
pub(crate) struct Contents(HashMap<PathBuf, Bytes>);

impl Contents {
    pub fn read(&mut self, path: &Path) -> Result<Bytes, CaptureError> {
        if let Some(known) = self.0.get(path) {
            return Ok(known.clone());
        }
        let read = content(path)?;
        self.0.insert(path.to_owned(), read.clone());
        Ok(read)
    }
}

/// The bytes, and what of the file is not among them.
pub(crate) fn content_with_doubt(path: &Path) -> Result<(Bytes, Option<String>), CaptureError> {
    let data = Bytes::open(path).map_err(|error| CaptureError::unreadable(path, error))?;
    if data.starts_with(GZIP) {
        return members(path, &data, max_unpacked(data.len()));
    }
    if zstd::is_file(&data) {
        return frames(path, &data, max_unpacked(data.len()));
    }
    Ok((data, None))
}

/// All members of a gzip file (RFC 1952, section 2.2). Bytes behind them are left out, as gzip does: zeros, with which
/// tapes are filled, without a word.
fn members(path: &Path, data: &[u8], limit: u64) -> Result<(Bytes, Option<String>), CaptureError> {
    let (mut unpacked, mut rest) = (Unpacked::default(), data);
    while rest.starts_with(GZIP) {
        let mut member = flate2::bufread::GzDecoder::new(rest);
        unpacked.add(path, "gzip", &mut member, limit)?;
        rest = member.into_inner();
    }
    Ok((unpacked.bytes()?, left_out("gzip", rest)))
}

/// All frames of a zstd file.
fn frames(path: &Path, data: &[u8], limit: u64) -> Result<(Bytes, Option<String>), CaptureError> {
    let (mut unpacked, mut frames) = (Unpacked::default(), Frames::new(data));
    unpacked.add(path, "zstd", &mut frames, limit)?;
    Ok((unpacked.bytes()?, left_out("zstd", frames.rest)))
}

/// What is told of bytes behind the end.
pub(crate) fn left_out(what: &str, rest: &[u8]) -> Option<String> {
    let other = rest.iter().any(|&byte| byte != 0);
    other.then(|| format!("{} bytes behind the end of the {what} data are left out", rest.len()))
}

/// What was unpacked so far: large files by way of a temporary one that is mapped.
#[derive(Default)]
struct Unpacked {
    /// Those before `last`.
    file: Option<TemporaryFile>,
    last: Vec<u8>,
    size: u64,
}

impl Unpacked {
    /// Up to `limit` bytes with those that are there already.
    fn add(&mut self, path: &Path, what: &str, mut packed: impl Read, limit: u64) -> Result<(), CaptureError> {
        loop {
            let room = (limit + 1).saturating_sub(self.size).min(IN_MEMORY as u64);
            let read = packed.by_ref().take(room).read_to_end(&mut self.last);
            let read = read.map_err(|error| {
                let told = format!("the {what} data are cut off or damaged: {error}");
                CaptureError::unreadable(path, io::Error::new(error.kind(), told))
            })? as u64;
            self.size += read;
            if self.size > limit {
                return Err(CaptureError::Packed { path: path.to_owned(), limit });
            }
            if read < room {
                return Ok(());
            }
            self.put_away().map(drop).map_err(|error| self.no_room(error))?;
        }
    }

    fn put_away(&mut self) -> io::Result<&TemporaryFile> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(TemporaryFile::create(&std::env::temp_dir())?),
        };
        file.append(&self.last)?;
        self.last.clear();
        Ok(file)
    }

    fn bytes(mut self) -> Result<Bytes, CaptureError> {
        if self.file.is_none() {
            return Ok(self.last.into());
        }
        let mapped = self.put_away().and_then(|file| Bytes::open(&file.0));
        mapped.map_err(|error| self.no_room(error))
    }

    fn no_room(&self, error: io::Error) -> CaptureError {
        CaptureError::Temporary { folder: std::env::temp_dir(), size: self.size, error }
    }
}

/// A packed ELF file of up to `limit` bytes, unpacked; `None` for one that is not packed. Kernel modules are installed
/// like this (Linux, scripts/Makefile.modinst).
pub(crate) fn binary(data: &[u8], limit: u64) -> Option<Result<Vec<u8>, String>> {
    let unpacked = if data.starts_with(GZIP) {
        bounded(flate2::read::MultiGzDecoder::new(data), limit).map_err(|error| format!("not gzip: {error}"))
    } else if zstd::is_file(data) {
        bounded(Frames::new(data), limit).map_err(|error| format!("not zstd: {error}"))
    } else if data.starts_with(XZ) {
        let bytes = pt_image::unpack_xz(data).ok_or_else(|| "not xz, or far too large when unpacked".to_owned());
        bytes.map(|bytes| Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
    } else {
        return None;
    };
    let too_large = || format!("more than {limit} bytes when unpacked");
    Some(unpacked.and_then(|bytes| bytes.ok_or_else(too_large)))
}

/// All that comes; `None` when that is more than `limit` bytes.
fn bounded(packed: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    packed.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::Write;

    pub fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    pub fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn what_is_large_is_whole_and_may_be_several_members() {
        let parts = [(1, IN_MEMORY + 5), (2, IN_MEMORY - 5), (3, 7)].map(|(byte, size)| vec![byte; size]);
        let (whole, packed) = (parts.concat(), parts.map(|part| gzip(&part)).concat());
        let limit = whole.len() as u64;
        let (bytes, left_out) = members(Path::new("packed"), &packed, limit).unwrap();
        assert!(*bytes == whole[..]);
        assert_eq!(left_out, None);
        let refused = members(Path::new("packed"), &packed, limit - 1).map(drop).unwrap_err();
        assert!(matches!(refused, CaptureError::Packed { .. }), "{refused}");
    }

    #[test]
    fn of_packed_data_that_are_damaged_it_is_told_how_they_are_packed() {
        for (what, packed) in [("gzip", gzip(&[7; 5000])), ("zstd", zstd(&[7; 5000]))] {
            let file = TemporaryFile::new(&packed[..packed.len() / 2]).unwrap();
            let told = content(&file.0).map(drop).unwrap_err().to_string();
            assert!(told.contains(&format!("the {what} data are cut off or damaged: ")), "{told}");
        }
    }

    #[test]
    fn packed_data_that_are_not_those_of_their_checksum_are_damaged() {
        // gzip has its checksum before the size, zstd at the end.
        for (what, mut packed, from_end) in [("gzip", gzip(&[7; 5000]), 8), ("zstd", zstd(&[7; 5000]), 1)] {
            let at = packed.len() - from_end;
            packed[at] ^= 1;
            assert!(binary(&packed, 5000).unwrap().is_err(), "{what}");
            let file = TemporaryFile::new(&packed).unwrap();
            let told = content(&file.0).map(drop).unwrap_err().to_string();
            assert!(told.contains(&format!("the {what} data are cut off or damaged: ")), "{told}");
        }
    }

    #[test]
    fn a_packed_binary_is_unpacked_up_to_a_size() {
        let frames = [zstd(&[7; 2000]), zstd(&[7; 3000])].concat();
        for packed in [gzip(&[7; 5000]), zstd(&[7; 5000]), frames] {
            assert_eq!(binary(&packed, 5000), Some(Ok(vec![7; 5000])));
            assert_eq!(binary(&packed, 4999), Some(Err("more than 4999 bytes when unpacked".to_owned())));
            assert!(binary(&packed[..packed.len() - 1], 5000).unwrap().is_err());
        }
        assert!(binary(XZ, 5000).unwrap().is_err());
        assert_eq!(binary(b"\x7fELF", 5000), None);
    }
}

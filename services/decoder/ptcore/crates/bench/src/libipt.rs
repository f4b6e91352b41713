//! The other side of the comparison.

use crate::input::{Input, Piece};
use std::ffi::{c_char, c_int, CString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    pub instructions: u64,
    pub blocks: u64,
    pub errors: u64,
}

enum Raw {}

extern "C" {
    fn peer_cpu_seconds() -> f64;
    fn peer_all_cpu_seconds() -> f64;
    fn peer_new(stream: *const u8, size: usize, cpu: *const u32, clocks: *const u32) -> *mut Raw;
    fn peer_add(peer: *mut Raw, path: *const c_char, offset: u64, size: u64, address: u64) -> c_int;
    fn peer_packets(peer: *const Raw) -> Counts;
    fn peer_blocks(peer: *const Raw) -> Counts;
    fn peer_free(peer: *mut Raw);
}

/// Processor time of this thread.
pub fn cpu_seconds() -> f64 {
    // SAFETY: takes nothing.
    unsafe { peer_cpu_seconds() }
}

/// Processor time of all threads.
pub fn all_cpu_seconds() -> f64 {
    // SAFETY: takes nothing.
    unsafe { peer_all_cpu_seconds() }
}

/// Pieces of code as files, which libipt wants; removed at the end.
pub struct Files {
    folder: PathBuf,
    pieces: Vec<(CString, u64, u64, u64)>,
}

impl Files {
    pub fn of(input: &Input) -> std::io::Result<Files> {
        let folder = std::env::temp_dir().join(format!("pt-bench-{}-{}", std::process::id(), input.name));
        std::fs::create_dir_all(&folder)?;
        let mut all = std::fs::File::create(folder.join("code"))?;
        let (mut pieces, mut at) = (Vec::new(), 0);
        for piece in &input.pieces {
            let (path, offset, size, address) = match piece {
                Piece::Bytes { address, bytes } => {
                    all.write_all(bytes)?;
                    at += bytes.len() as u64;
                    (folder.join("code"), at - bytes.len() as u64, bytes.len() as u64, *address)
                }
                Piece::File { address, path, offset, size } => (path.clone(), *offset, *size, *address),
            };
            pieces.push((CString::new(path.as_os_str().as_bytes())?, offset, size, address));
        }
        Ok(Files { folder, pieces })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// libipt with a stream and its image.
pub struct Peer<'a> {
    raw: *mut Raw,
    /// The stream, which libipt reads in place.
    _input: &'a Input,
}

impl<'a> Peer<'a> {
    pub fn new(input: &'a Input, files: &Files) -> Peer<'a> {
        let config = &input.config;
        let clocks =
            [config.mtc_freq.into(), config.tsc_ctc_ratio.0, config.tsc_ctc_ratio.1, config.nominal_ratio.into()];
        // SAFETY: the stream outlives the peer, which copies the numbers; paths are C strings.
        unsafe {
            let raw = peer_new(input.stream.as_ptr(), input.stream.len(), input.cpu.as_ptr(), clocks.as_ptr());
            assert!(!raw.is_null(), "libipt refuses the configuration of {}", input.name);
            for (path, offset, size, address) in &files.pieces {
                let status = peer_add(raw, path.as_ptr(), *offset, *size, *address);
                assert!(status >= 0, "libipt refuses {path:?} at {address:#x}: {status}");
            }
            Peer { raw, _input: input }
        }
    }

    pub fn packets(&self) -> Counts {
        // SAFETY: `raw` lives until the drop.
        unsafe { peer_packets(self.raw) }
    }

    pub fn blocks(&self) -> Counts {
        // SAFETY: `raw` lives until the drop.
        unsafe { peer_blocks(self.raw) }
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `peer_new`, and not used afterwards.
        unsafe { peer_free(self.raw) }
    }
}

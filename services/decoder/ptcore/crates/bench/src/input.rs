//! Streams with the code they ran: Griffin containers and the folders that vpt leaves.

use flate2::read::GzDecoder;
use pt_flow::Config;
use pt_image::{Binary, Image, Search};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Input {
    pub name: String,
    pub stream: Vec<u8>,
    pub config: Config,
    /// Family, model, stepping.
    pub cpu: [u32; 3],
    pub epochs: Vec<(usize, u32)>,
    pub image: Image,
    /// The image once more, as of its last epoch and without what was unmapped.
    pub pieces: Vec<Piece>,
}

pub enum Piece {
    Bytes { address: u64, bytes: Vec<u8> },
    File { address: u64, path: PathBuf, offset: u64, size: u64 },
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first thread of a Griffin container (magic 0x51C0FFEE; records of kind 0 are packets, of kind 4 code).
pub fn griffin(path: &Path) -> Input {
    let mut bytes = Vec::new();
    GzDecoder::new(&read(path)[..]).read_to_end(&mut bytes).expect("gzip data");
    assert_eq!(u32_at(&bytes, 0), 0x51C0_FFEE, "{}: no Griffin container", path.display());
    let mut buffers = BTreeMap::new();
    let mut pieces = BTreeMap::new();
    let mut at = 8;
    while at < bytes.len() {
        let body = at + 8;
        match u32_at(&bytes, at) {
            0 => {
                let size = u64_at(&bytes, body + 24) as usize;
                buffers.insert((u64_at(&bytes, body + 8), u64_at(&bytes, body + 16)), body + 32..body + 32 + size);
            }
            4 => {
                let size = u64_at(&bytes, body + 16) as usize;
                pieces.insert(u64_at(&bytes, body + 8), body + 24..body + 24 + size);
            }
            _ => {}
        }
        at += u32_at(&bytes, at + 4) as usize;
    }
    let first = buffers.keys().next().map_or(0, |&(thread, _)| thread);
    let stream = buffers
        .into_iter()
        .filter(|&((thread, _), _)| thread == first)
        .flat_map(|(_, range)| bytes[range].to_vec())
        .collect();
    let mut image = Image::new();
    let pieces = pieces
        .into_iter()
        .map(|(address, range)| {
            image.code(0, address, bytes[range.clone()].to_vec()).expect("a range of code");
            Piece::Bytes { address, bytes: bytes[range].to_vec() }
        })
        .collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Input {
        name: name.trim_end_matches(".griffin.gz").to_owned(),
        stream,
        config: Config::default(),
        cpu: [6, 94, 3],
        epochs: Vec::new(),
        image,
        pieces,
    }
}

/// One stream of a process's folder (layout: `services/controller/vpt/include/permille/vpt.h`).
pub fn recording(name: &str, folder: &Path, stream: u32) -> Input {
    let control = read(&folder.join("control"));
    let file = read(&folder.join(format!("stream-{stream}.pt")));
    let mut records = vec![0; u64_at(&control, 216) as usize];
    let mut sideband = std::fs::File::open(folder.join("sideband.bin")).expect("sideband.bin");
    sideband.read_exact(&mut records).expect("the whole sideband");
    let (mut epochs, mut changes, mut at) = (Vec::new(), Vec::new(), 0);
    while at + 16 <= records.len() {
        let (kind, size) = (u32_at(&records, at), u32_at(&records, at + 4) as usize);
        let body = &records[at + 16..at + 16 + size];
        match kind {
            MARK if u32_at(body, 0) == stream => epochs.push((u64_at(body, 8) as usize, u32_at(body, 4))),
            MARK => {}
            _ => changes.push((u32_at(body, 0), kind, body)),
        }
        at += 16 + size;
    }
    changes.sort_by_key(|&(epoch, _, _)| epoch);
    let (mut image, mut pieces) = (Image::new(), Vec::new());
    let mut binaries = HashMap::<PathBuf, Option<Arc<Binary>>>::new();
    for (epoch, kind, body) in changes {
        let (address, size, offset) = (u64_at(body, 8), u64_at(body, 16), u64_at(body, 24));
        let tail = &body[64..];
        let changed = match kind {
            MAP => {
                let path = PathBuf::from(String::from_utf8_lossy(tail).as_ref());
                let open = || Binary::load(&path, &Search::default()).ok().map(Arc::new);
                let Some(binary) = binaries.entry(path.clone()).or_insert_with(open) else { continue };
                let changed = image.map(epoch, address, size, offset, binary, &path.to_string_lossy());
                pieces.push(Piece::File { address, path, offset, size });
                changed
            }
            UNMAP => image.unmap(epoch, address, size),
            _ => {
                pieces.push(Piece::Bytes { address, bytes: tail.to_vec() });
                image.code(epoch, address, tail.to_vec())
            }
        };
        changed.expect("a change of the image");
    }
    Input {
        name: name.to_owned(),
        stream: file[PAGE..PAGE + u64_at(&file, 32) as usize].to_vec(),
        config: Config {
            mtc_freq: u32_at(&control, 144) as u8,
            tsc_ctc_ratio: (u32_at(&control, 52), u32_at(&control, 56)),
            nominal_ratio: u32_at(&control, 60) as u8,
            ..Config::default()
        },
        cpu: [u32_at(&control, 40), u32_at(&control, 44), u32_at(&control, 48)],
        epochs,
        image,
        pieces,
    }
}

const PAGE: usize = 4096;
const MAP: u32 = 1;
const UNMAP: u32 = 2;
const MARK: u32 = 4;

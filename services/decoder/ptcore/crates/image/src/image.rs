//! The address space of a process over its epochs.

mod changes;
mod code;
mod error;
mod owners;
mod pieces;
mod places;
mod runs;

pub use changes::{Change, Standing};
pub use error::{ImageError, MAX_EPOCH};
pub use places::Description;

use crate::Binary;
use owners::{Owner, Stretch, NOBODY};
use pieces::Piece;
use runs::Runs;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Whatever addresses can belong to.
enum Space {
    Unmapped,
    Code,
    Binary { name: String, binary: Arc<Binary> },
    Missing { name: String, reason: String },
}

enum Content {
    /// A byte at an address stands at `address - delta` in the file.
    File {
        delta: u64,
    },
    /// Bytes from `address` on, which were written over the file with this `delta` where there is one.
    Code {
        address: u64,
        bytes: Vec<u8>,
        delta: Option<u64>,
    },
    Missing,
}

/// Bytes that stand at fixed addresses. Its number is its generation.
struct Section {
    space: u32,
    content: Content,
}

/// How many versions of the code at one address are compared with a new one.
const REMEMBERED: usize = 16;

const UNMAPPED: u32 = 0;
const CODE: u32 = 1;
/// The section where nothing is mapped.
const NOTHING: u32 = 0;

/// Which bytes stood where, from which epoch on. Changes are told in the order of their epochs.
pub struct Image {
    spaces: Vec<Space>,
    sections: Vec<Section>,
    pieces: BTreeMap<u64, Piece>,
    /// Of the pieces as they are; found when they are first asked for.
    runs: OnceLock<Runs>,
    by_binary: HashMap<(usize, String), u32>,
    by_missing: HashMap<(String, String), u32>,
    by_file: HashMap<(u32, u64), u32>,
    by_code: HashMap<u64, Vec<u32>>,
    /// Whose code of no file is.
    generated: Owner,
    epoch: u32,
    changes: usize,
}

impl Default for Image {
    fn default() -> Self {
        Image::new()
    }
}

impl Image {
    pub fn new() -> Self {
        Image {
            spaces: vec![Space::Unmapped, Space::Code],
            sections: vec![Section { space: UNMAPPED, content: Content::Missing }],
            pieces: BTreeMap::new(),
            runs: OnceLock::new(),
            by_binary: HashMap::new(),
            by_missing: HashMap::new(),
            by_file: HashMap::new(),
            by_code: HashMap::new(),
            generated: NOBODY,
            epoch: 0,
            changes: 0,
        }
    }

    /// Code of no file has the names of this binary's functions, whose addresses and offsets are those of memory. To be
    /// told before any code.
    pub fn name_generated(&mut self, binary: &Arc<Binary>, name: &str) {
        self.spaces.push(Space::Binary { name: name.to_owned(), binary: Arc::clone(binary) });
        let space = (self.spaces.len() - 1) as u32;
        self.sections.push(Section { space, content: Content::File { delta: 0 } });
        self.by_file.insert((space, 0), (self.sections.len() - 1) as u32);
        self.generated = Owner { space, delta: Some(0) };
    }

    /// As [`Image::map`], but code that is known there already stays, and is the file's from `epoch` on.
    pub fn claim(
        &mut self,
        epoch: u32,
        address: u64,
        size: u64,
        offset: u64,
        binary: &Arc<Binary>,
        name: &str,
    ) -> Result<(), ImageError> {
        self.keeping_code(epoch, address, size, |image| image.map(epoch, address, size, offset, binary, name))
    }

    /// Code that is known there stays, and is no file's from `epoch` on.
    pub fn disown(&mut self, epoch: u32, address: u64, size: u64) -> Result<(), ImageError> {
        self.keeping_code(epoch, address, size, |image| image.unmap(epoch, address, size))
    }

    fn keeping_code(
        &mut self,
        epoch: u32,
        address: u64,
        size: u64,
        change: impl FnOnce(&mut Self) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let known = self.known_code(address, address.saturating_add(size));
        change(self)?;
        known.into_iter().try_for_each(|(start, bytes)| self.code(epoch, start, bytes))
    }

    /// From `epoch` on `size` bytes of the file from `offset` stand at `address`; `name` is what it was mapped as.
    pub fn map(
        &mut self,
        epoch: u32,
        address: u64,
        size: u64,
        offset: u64,
        binary: &Arc<Binary>,
        name: &str,
    ) -> Result<(), ImageError> {
        let key = (Arc::as_ptr(binary) as usize, name.to_owned());
        let spaces = &mut self.spaces;
        let space = *self.by_binary.entry(key).or_insert_with(|| {
            spaces.push(Space::Binary { name: name.to_owned(), binary: Arc::clone(binary) });
            (spaces.len() - 1) as u32
        });
        let delta = address.wrapping_sub(offset);
        let sections = &mut self.sections;
        let section = *self.by_file.entry((space, delta)).or_insert_with(|| {
            sections.push(Section { space, content: Content::File { delta } });
            (sections.len() - 1) as u32
        });
        self.change(epoch, address, size, section)
    }

    /// From `epoch` on nothing stands there.
    pub fn unmap(&mut self, epoch: u32, address: u64, size: u64) -> Result<(), ImageError> {
        self.change(epoch, address, size, NOTHING)
    }

    /// From `epoch` on these bytes, which no file holds, stand at `address`. What they were written over says which
    /// functions they are part of.
    pub fn code(&mut self, epoch: u32, address: u64, bytes: Vec<u8>) -> Result<(), ImageError> {
        let size = bytes.len() as u64;
        let end = address.checked_add(size).filter(|_| size > 0).ok_or(ImageError::BadRange { address, size })?;
        for Stretch { start, end, owner } in self.owners(address, end) {
            let part = &bytes[(start - address) as usize..(end - address) as usize];
            let section = self.code_section(start, part, owner);
            self.change(epoch, start, end - start, section)?;
        }
        Ok(())
    }

    /// The code of no file from `start` to `end`.
    fn known_code(&self, start: u64, end: u64) -> Vec<(u64, Vec<u8>)> {
        let first = self.pieces.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let known = self.pieces.range(first..end.max(first)).filter_map(|(&from, piece)| {
            let &(_, section) = piece.history.last()?;
            let Content::Code { address, bytes, .. } = &self.sections[section as usize].content else { return None };
            let (from, to) = (from.max(start), piece.end.min(end));
            let part = bytes.get((from - address) as usize..to.checked_sub(*address)? as usize)?;
            (!part.is_empty()).then(|| (from, part.to_vec()))
        });
        known.collect()
    }

    fn code_section(&mut self, address: u64, bytes: &[u8], Owner { space, delta }: Owner) -> u32 {
        let alike = self.by_code.entry(address).or_default();
        let same = |&&section: &&u32| match &self.sections[section as usize] {
            Section { space: of, content: Content::Code { bytes: known, delta: by, .. } } => {
                (*of, *by) == (space, delta) && known == bytes
            }
            _ => false,
        };
        match alike.iter().rev().take(REMEMBERED).find(same) {
            Some(&section) => section,
            None => {
                let content = Content::Code { address, bytes: bytes.to_vec(), delta };
                self.sections.push(Section { space, content });
                let section = (self.sections.len() - 1) as u32;
                alike.push(section);
                section
            }
        }
    }

    /// From `epoch` on the mapping `name` stands there, whose bytes could not be had for the `reason`.
    pub fn missing(&mut self, epoch: u32, address: u64, size: u64, name: &str, reason: &str) -> Result<(), ImageError> {
        let (spaces, sections) = (&mut self.spaces, &mut self.sections);
        let section = *self.by_missing.entry((name.to_owned(), reason.to_owned())).or_insert_with(|| {
            spaces.push(Space::Missing { name: name.to_owned(), reason: reason.to_owned() });
            sections.push(Section { space: (spaces.len() - 1) as u32, content: Content::Missing });
            (sections.len() - 1) as u32
        });
        self.change(epoch, address, size, section)
    }

    /// The binary of a space that is one.
    pub fn binary(&self, space: u32) -> Option<&Arc<Binary>> {
        match &self.spaces[space as usize] {
            Space::Binary { binary, .. } => Some(binary),
            _ => None,
        }
    }

    /// A line for each file with debug information that frames were looked for in, and that is not there.
    pub fn absent(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for space in &self.spaces {
            let Space::Binary { name, binary } = space else { continue };
            let (named, more) = binary.absent();
            lines.extend(named.iter().map(|absent| absent.told(name)));
            if more > 0 {
                lines.push(format!("{name}: debug information refers to {more} other files that are not there"));
            }
        }
        lines
    }

    /// The names of the files in which frames or lines were looked for, and that have no debug information.
    pub fn undebugged(&self) -> impl Iterator<Item = &str> {
        self.spaces.iter().filter_map(|space| match space {
            Space::Binary { name, binary } if binary.misses_debug_information() => Some(name.as_str()),
            _ => None,
        })
    }
}

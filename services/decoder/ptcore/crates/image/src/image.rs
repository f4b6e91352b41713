//! The address space of a process over its epochs.

use crate::{Binary, Place, Role, Symbols};
use pt_flow::{CodeMemory, CodeSlice};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// Changes of all pieces together: bounds the memory of images that are cut ever smaller.
const MAX_CHANGES: usize = 1 << 25;
/// Epochs are numbers of 31 bits: the flow layer keeps a mode bit beside them.
const MAX_EPOCH: u32 = u32::MAX >> 1;

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

/// What can be said of a function to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    /// What the binary was mapped as.
    pub binary: String,
    /// In the binary's own address space.
    pub address: u64,
    pub size: u64,
    /// From which table the name is, or `none: ` and why there is none.
    pub symbol_status: String,
}

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
    Code {
        address: u64,
        bytes: Vec<u8>,
    },
    Missing,
}

/// What stands at some addresses from an epoch on.
pub enum Standing<'i> {
    Nothing,
    /// Bytes of the file from the offset on.
    File {
        binary: &'i Arc<Binary>,
        offset: u64,
        name: &'i str,
    },
    Code(&'i [u8]),
    Missing {
        name: &'i str,
        reason: &'i str,
    },
}

/// A change as `Image`'s methods take it.
pub struct Change<'i> {
    pub epoch: u32,
    pub address: u64,
    pub size: u64,
    pub what: Standing<'i>,
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

/// A stretch of addresses that changes as a whole; the newest change of an epoch counts.
#[derive(Clone)]
struct Piece {
    end: u64,
    history: Vec<(u32, u32)>,
}

/// Which bytes stood where, from which epoch on. Changes are told in the order of their epochs.
pub struct Image {
    spaces: Vec<Space>,
    sections: Vec<Section>,
    pieces: BTreeMap<u64, Piece>,
    by_binary: HashMap<(usize, String), u32>,
    by_missing: HashMap<(String, String), u32>,
    by_file: HashMap<(u32, u64), u32>,
    by_code: HashMap<u64, Vec<u32>>,
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
            by_binary: HashMap::new(),
            by_missing: HashMap::new(),
            by_file: HashMap::new(),
            by_code: HashMap::new(),
            epoch: 0,
            changes: 0,
        }
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

    /// From `epoch` on these bytes, which no file holds, stand at `address`.
    pub fn code(&mut self, epoch: u32, address: u64, bytes: Vec<u8>) -> Result<(), ImageError> {
        let size = bytes.len() as u64;
        let alike = self.by_code.entry(address).or_default();
        let same = |&&section: &&u32| match &self.sections[section as usize].content {
            Content::Code { bytes: known, .. } => *known == bytes,
            _ => false,
        };
        let section = match alike.iter().rev().take(REMEMBERED).find(same) {
            Some(&section) => section,
            None => {
                self.sections.push(Section { space: CODE, content: Content::Code { address, bytes } });
                let section = (self.sections.len() - 1) as u32;
                alike.push(section);
                section
            }
        };
        self.change(epoch, address, size, section)
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

    /// Changes that make an image like this one, by epoch and address.
    pub fn changes(&self) -> Vec<Change<'_>> {
        // Per section and epoch, so that what was cut only later is whole again.
        let mut runs: Vec<(u32, u64, u64, u32)> = Vec::new();
        let mut open: HashMap<(u32, u32), usize> = HashMap::new();
        for (&start, piece) in &self.pieces {
            for &(epoch, section) in &piece.history {
                match open.get(&(epoch, section)).map(|&number| &mut runs[number]).filter(|run| run.2 == start) {
                    Some(run) => run.2 = piece.end,
                    None => {
                        open.insert((epoch, section), runs.len());
                        runs.push((epoch, start, piece.end, section));
                    }
                }
            }
        }
        runs.sort_unstable();
        let change = |(epoch, start, end, section): (u32, u64, u64, u32)| Change {
            epoch,
            address: start,
            size: end - start,
            what: self.standing(section, start, end),
        };
        runs.into_iter().map(change).collect()
    }

    fn standing(&self, section: u32, start: u64, end: u64) -> Standing<'_> {
        let Section { space, content } = &self.sections[section as usize];
        match (content, &self.spaces[*space as usize]) {
            (Content::File { delta }, Space::Binary { name, binary }) => {
                Standing::File { binary, offset: start.wrapping_sub(*delta), name }
            }
            (Content::Code { address, bytes }, _) => {
                Standing::Code(&bytes[(start - address) as usize..(end - address) as usize])
            }
            (_, Space::Missing { name, reason }) => Standing::Missing { name, reason },
            _ => Standing::Nothing,
        }
    }

    /// Why there is no code at the address.
    pub fn why_no_code(&self, epoch: u32, address: u64) -> String {
        let section = self.section_at(epoch, address).map_or(NOTHING, |(section, _, _)| section);
        match &self.spaces[self.sections[section as usize].space as usize] {
            Space::Unmapped => "nothing was mapped there".to_owned(),
            Space::Code => "the code that was written there is incomplete".to_owned(),
            Space::Binary { name, .. } => format!("the file of {name} ends before it"),
            Space::Missing { name, reason } if name.is_empty() => reason.clone(),
            Space::Missing { name, reason } => format!("{name}: {reason}"),
        }
    }

    /// What to call the function in `space`, or the code from `address` on (the space's own) that no function covers.
    pub fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description {
        let anonymous = |binary: &str, status: String| Description {
            name: format!("{}+{address:#x}", binary.rsplit('/').next().unwrap_or(binary)),
            binary: binary.to_owned(),
            address,
            size: 0,
            symbol_status: status,
        };
        match &self.spaces[space as usize] {
            Space::Unmapped => anonymous("[unmapped]", "none: nothing was mapped there".to_owned()),
            Space::Code => anonymous("[generated]", "none: code written at run time".to_owned()),
            Space::Missing { name, reason } => {
                anonymous(if name.is_empty() { "[anonymous]" } else { name }, format!("none: {reason}"))
            }
            Space::Binary { name, binary } => {
                let Some(function) = function.map(|number| binary.function(number)) else {
                    let status = binary.symbol_status();
                    let reason = if status.starts_with("none") { status } else { "none: no symbol covers it" };
                    return anonymous(name, reason.to_owned());
                };
                let bare = anonymous(name, function.source.name().to_owned());
                let known = Description { address: function.address, size: function.size, ..bare };
                match binary.name(function) {
                    Some(name) => Description { name, ..known },
                    None => Description { name: anonymous(name, String::new()).name, ..known },
                }
            }
        }
    }

    /// The binary of a space that is one.
    pub fn binary(&self, space: u32) -> Option<&Arc<Binary>> {
        match &self.spaces[space as usize] {
            Space::Binary { binary, .. } => Some(binary),
            _ => None,
        }
    }

    fn change(&mut self, epoch: u32, address: u64, size: u64, section: u32) -> Result<(), ImageError> {
        let end = address.checked_add(size).filter(|_| size > 0).ok_or(ImageError::BadRange { address, size })?;
        if epoch > MAX_EPOCH {
            return Err(ImageError::EpochTooLarge { epoch });
        }
        if epoch < self.epoch {
            return Err(ImageError::EpochBack { epoch, last: self.epoch });
        }
        self.epoch = epoch;
        self.split(address);
        self.split(end);
        let mut at = address;
        let mut holes = Vec::new();
        for (&start, piece) in self.pieces.range_mut(address..end) {
            if at < start {
                holes.push((at, start));
            }
            at = piece.end;
            self.changes += piece.turn(epoch, section);
        }
        if at < end {
            holes.push((at, end));
        }
        if section != NOTHING {
            self.changes += holes.len();
            let new = |(start, end)| (start, Piece { end, history: vec![(epoch, section)] });
            self.pieces.extend(holes.into_iter().map(new));
        }
        if self.changes > MAX_CHANGES {
            return Err(ImageError::TooManyChanges);
        }
        Ok(())
    }

    /// Makes `address` the border of two pieces when it is inside one.
    fn split(&mut self, address: u64) {
        let Some((&start, piece)) = self.pieces.range_mut(..address).next_back() else { return };
        if start < address && address < piece.end {
            let upper = piece.clone();
            piece.end = address;
            self.changes += upper.history.len();
            self.pieces.insert(address, upper);
        }
    }

    /// The section at the address with the bounds of its piece.
    fn section_at(&self, epoch: u32, address: u64) -> Option<(u32, u64, u64)> {
        let (&start, piece) = self.pieces.range(..=address).next_back()?;
        if address >= piece.end {
            return None;
        }
        let newer = piece.history.partition_point(|&(since, _)| since <= epoch);
        let (_, section) = piece.history[newer.checked_sub(1)?];
        Some((section, start, piece.end))
    }
}

impl Piece {
    /// Takes the section from the epoch on; returns how much the history grew.
    fn turn(&mut self, epoch: u32, section: u32) -> usize {
        match self.history.last_mut() {
            Some(last) if last.1 == section => 0,
            Some(last) if last.0 == epoch => {
                last.1 = section;
                0
            }
            _ => {
                self.history.push((epoch, section));
                1
            }
        }
    }
}

impl CodeMemory for Image {
    // Pieces are the same in every epoch, so a slice that ends with its piece has one length for one generation.
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        let (section, _, end) = self.section_at(epoch, address)?;
        let room = usize::try_from(end - address).unwrap_or(usize::MAX);
        let Section { space, content } = &self.sections[section as usize];
        let bytes = match content {
            Content::File { delta } => self.binary(*space)?.code(address.wrapping_sub(*delta)),
            Content::Code { address: base, bytes } => bytes.get(usize::try_from(address - base).ok()?..)?,
            Content::Missing => return None,
        };
        let bytes = &bytes[..bytes.len().min(room)];
        (!bytes.is_empty()).then_some(CodeSlice { bytes, generation: section.into() })
    }
}

impl Symbols for Image {
    fn place(&self, epoch: u32, address: u64) -> Place {
        let bare =
            |space, start, end| Place { space, function: None, start, end, bias: 0, entry: false, role: Role::Plain };
        let Some((section, start, end)) = self.section_at(epoch, address) else {
            return bare(UNMAPPED, 0, u64::MAX);
        };
        let Section { space, content } = &self.sections[section as usize];
        let (delta, binary) = match (content, self.binary(*space)) {
            (Content::File { delta }, Some(binary)) => (*delta, binary),
            (Content::Code { address, bytes }, _) => return bare(*space, *address, *address + bytes.len() as u64),
            _ => return bare(*space, start, end),
        };
        let Some(own) = binary.address_of(address.wrapping_sub(delta)) else {
            return bare(*space, start, end);
        };
        let bias = address.wrapping_sub(own);
        let found = binary.find(own);
        let function = found.function.map(|number| binary.function(number));
        Place {
            space: *space,
            function: found.function,
            start: found.start.wrapping_add(bias),
            end: found.end.wrapping_add(bias),
            bias,
            entry: function.is_some_and(|function| function.address == own),
            role: function.map_or(Role::Plain, |function| function.role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(image: &Image, epoch: u32, address: u64) -> Option<&[u8]> {
        image.read(epoch, address).map(|slice| slice.bytes)
    }

    fn generation(image: &Image, epoch: u32, address: u64) -> u64 {
        image.read(epoch, address).unwrap().generation
    }

    #[test]
    fn an_epoch_sees_the_changes_up_to_it() {
        let mut image = Image::new();
        image.code(2, 0x1000, vec![1, 2, 3, 4]).unwrap();
        image.code(4, 0x1002, vec![7]).unwrap();
        image.unmap(6, 0x1000, 2).unwrap();
        assert_eq!(bytes(&image, 1, 0x1000), None);
        assert_eq!(bytes(&image, 2, 0x1000), Some(&[1, 2][..]));
        assert_eq!(bytes(&image, 3, 0x1002), Some(&[3][..]));
        assert_eq!(bytes(&image, 4, 0x1002), Some(&[7][..]));
        assert_eq!(bytes(&image, 5, 0x1003), Some(&[4][..]));
        assert_eq!(bytes(&image, 6, 0x1001), None);
        assert_eq!(bytes(&image, u32::MAX, 0x1002), Some(&[7][..]));
        assert_eq!(bytes(&image, 6, 0x1004), None);
    }

    #[test]
    fn the_same_bytes_at_the_same_place_are_one_generation() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![0x90, 0xc3]).unwrap();
        image.code(2, 0x1000, vec![0xcc, 0xc3]).unwrap();
        image.code(3, 0x1000, vec![0x90, 0xc3]).unwrap();
        assert_ne!(generation(&image, 1, 0x1000), generation(&image, 2, 0x1000));
        assert_eq!(generation(&image, 1, 0x1000), generation(&image, 3, 0x1000));
    }

    #[test]
    fn the_last_change_of_an_epoch_counts() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![1]).unwrap();
        image.unmap(1, 0x1000, 1).unwrap();
        assert_eq!(bytes(&image, 1, 0x1000), None);
        image.code(1, 0x1000, vec![2]).unwrap();
        assert_eq!(bytes(&image, 1, 0x1000), Some(&[2][..]));
    }

    #[test]
    fn slices_of_one_generation_are_equally_long_in_every_epoch() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![0x90; 8]).unwrap();
        image.code(2, 0x1004, vec![0xcc]).unwrap();
        assert_eq!(generation(&image, 1, 0x1000), generation(&image, 2, 0x1000));
        assert_eq!(bytes(&image, 1, 0x1000), bytes(&image, 2, 0x1000));
    }

    #[test]
    fn missing_code_says_why() {
        let mut image = Image::new();
        image.missing(1, 0x1000, 0x1000, "/usr/lib/libx.so", "the file is gone").unwrap();
        assert_eq!(bytes(&image, 1, 0x1800), None);
        assert_eq!(image.why_no_code(1, 0x1800), "/usr/lib/libx.so: the file is gone");
        assert_eq!(image.why_no_code(0, 0x1800), "nothing was mapped there");
        let place = image.place(1, 0x1800);
        assert_eq!(image.describe(place.space, None, 0x1800).name, "libx.so+0x1800");
    }

    #[test]
    fn its_changes_make_the_same_image_again() {
        let mut image = Image::new();
        image.code(1, 0x1000, (0..64).collect()).unwrap();
        image.missing(1, 0x2000, 0x1000, "libx.so", "gone").unwrap();
        image.code(2, 0x1010, vec![7; 8]).unwrap();
        image.unmap(3, 0x1038, 0x2000).unwrap();
        image.code(4, 0x1010, (16..24).collect()).unwrap();
        let mut again = Image::new();
        let mut wholes = 0;
        for Change { epoch, address, size, what } in image.changes() {
            wholes += usize::from((epoch, address, size) == (1, 0x1000, 64));
            match what {
                Standing::Nothing => again.unmap(epoch, address, size),
                Standing::Code(bytes) => again.code(epoch, address, bytes.to_vec()),
                Standing::Missing { name, reason } => again.missing(epoch, address, size, name, reason),
                Standing::File { binary, offset, name } => again.map(epoch, address, size, offset, binary, name),
            }
            .unwrap();
        }
        assert_eq!(wholes, 1);
        for epoch in 0..6 {
            for address in (0xff0..0x1050).chain([0x1fff, 0x2000, 0x2fff, 0x3000]) {
                let seen = |image: &Image| {
                    (image.read(epoch, address).map(|code| code.bytes[0]), image.why_no_code(epoch, address))
                };
                assert_eq!(seen(&image), seen(&again), "{epoch} {address:#x}");
            }
        }
    }

    #[test]
    fn bad_changes_are_refused() {
        let mut image = Image::new();
        assert_eq!(image.unmap(1, 0x1000, 0), Err(ImageError::BadRange { address: 0x1000, size: 0 }));
        assert_eq!(image.unmap(1, u64::MAX, 2), Err(ImageError::BadRange { address: u64::MAX, size: 2 }));
        image.code(2, 0, vec![1]).unwrap();
        assert_eq!(image.code(1, 0, vec![1]), Err(ImageError::EpochBack { epoch: 1, last: 2 }));
        assert!(matches!(image.unmap(u32::MAX, 0, 1), Err(ImageError::EpochTooLarge { .. })));
    }

    #[test]
    fn it_agrees_with_a_plain_model_of_memory() {
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let mut image = Image::new();
        let mut model = vec![[None::<u8>; 64]];
        for epoch in 1..200u32 {
            let mut now = *model.last().unwrap();
            for _ in 0..random(3) {
                let start = random(60);
                let size = 1 + random(64 - start);
                let value = random(5) as u8;
                if value == 0 {
                    image.unmap(epoch, start, size).unwrap();
                } else {
                    image.code(epoch, start, vec![value; size as usize]).unwrap();
                }
                now[start as usize..(start + size) as usize].fill((value > 0).then_some(value));
            }
            model.push(now);
        }
        for (epoch, memory) in model.iter().enumerate() {
            for (address, &byte) in memory.iter().enumerate() {
                let slice = bytes(&image, epoch as u32, address as u64);
                assert_eq!(slice.map(|slice| slice[0]), byte);
                let rest = slice.unwrap_or_default();
                assert!(rest.iter().zip(&memory[address..]).all(|(&byte, &model)| Some(byte) == model));
            }
        }
    }
}

//! What was told to an image, told again.

use super::owners::Owner;
use super::{Content, Image, Section, Space, NOTHING};
use crate::Binary;
use std::collections::HashMap;
use std::sync::Arc;

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

impl Image {
    /// Changes that make an image like this one, by epoch. In each epoch code comes behind what it was written over; both
    /// are by address.
    pub fn changes(&self) -> Vec<Change<'_>> {
        // Per section and epoch, so that what was cut only later is whole again.
        let mut runs: Vec<(u32, u64, u64, u32)> = Vec::new();
        let mut open: HashMap<(u32, u32), usize> = HashMap::new();
        for (&start, piece) in &self.pieces {
            let mut before = self.mapped_owner(NOTHING);
            for &(epoch, section) in &piece.history {
                for section in self.below(section, before).into_iter().chain([section]) {
                    match open.get(&(epoch, section)).map(|&number| &mut runs[number]).filter(|run| run.2 == start) {
                        Some(run) => run.2 = piece.end,
                        None => {
                            open.insert((epoch, section), runs.len());
                            runs.push((epoch, start, piece.end, section));
                        }
                    }
                }
                before = self.mapped_owner(section);
            }
        }
        let is_code = |section: u32| matches!(self.sections[section as usize].content, Content::Code { .. });
        runs.sort_unstable_by_key(|&(epoch, start, end, section)| (epoch, is_code(section), start, end, section));
        let change = |(epoch, start, end, section): (u32, u64, u64, u32)| Change {
            epoch,
            address: start,
            size: end - start,
            what: self.standing(section, start, end),
        };
        runs.into_iter().map(change).collect()
    }

    /// What is to be told before code, so that it is written over what it was written over: the section that came in the
    /// same epoch.
    fn below(&self, section: u32, before: Owner) -> Option<u32> {
        let Section { content: Content::Code { delta, .. }, space } = &self.sections[section as usize] else {
            return None;
        };
        let changed = self.mapped_owner(section) != before;
        changed.then(|| delta.map_or(Some(NOTHING), |delta| self.by_file.get(&(*space, delta)).copied()))?
    }

    fn standing(&self, section: u32, start: u64, end: u64) -> Standing<'_> {
        let Section { space, content } = &self.sections[section as usize];
        match (content, &self.spaces[*space as usize]) {
            (Content::File { delta }, Space::Binary { name, binary }) => {
                Standing::File { binary, offset: start.wrapping_sub(*delta), name }
            }
            (Content::Code { address, bytes, .. }, _) => {
                Standing::Code(&bytes[(start - address) as usize..(end - address) as usize])
            }
            (_, Space::Missing { name, reason }) => Standing::Missing { name, reason },
            _ => Standing::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_flow::CodeMemory;

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
}

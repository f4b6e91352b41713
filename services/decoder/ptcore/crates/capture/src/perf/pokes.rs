//! Where the kernel changed its own code. Copies of the code may be of any time: what a change replaced says what had stood
//! there since the code came.

use crate::spaces::{Content, Mapping, Stretches};
use std::collections::BTreeMap;

/// What a record says of an address, in the order of the file.
enum Told {
    /// New code came: it has nothing of what was there.
    Came {
        size: u64,
    },
    Replaced {
        old: Vec<u8>,
    },
}

/// Such changes: TSC ticks, address, what a record told.
#[derive(Default)]
pub struct Pokes(Vec<(u64, u64, Told)>);

impl Pokes {
    pub fn came(&mut self, tsc: u64, address: u64, size: u64) {
        self.0.push((tsc, address, Told::Came { size }));
    }

    pub fn replaced(&mut self, tsc: u64, address: u64, old: Vec<u8>) {
        self.0.push((tsc, address, Told::Replaced { old }));
    }

    /// What stood there up to the first change, and since when.
    pub fn before(mut self) -> Vec<(u64, Mapping)> {
        // Records of several cores are not in the order of time.
        self.0.sort_by_key(|&(tsc, ..)| tsc);
        let (mut changed, mut since) = (Stretches::default(), BTreeMap::new());
        let mut before = Vec::new();
        for (tsc, address, told) in self.0 {
            match told {
                Told::Came { size } => {
                    changed.remove(address, address.saturating_add(size));
                    since.insert(address, (address.saturating_add(size), tsc));
                }
                Told::Replaced { old } => {
                    let end = address.saturating_add(old.len() as u64);
                    let came = since.range(..=address).next_back().filter(|(_, &(end, _))| end > address);
                    let came = came.map_or(0, |(_, &(_, tsc))| tsc);
                    for (from, to) in changed.holes(address, end) {
                        let part = &old[(from - address) as usize..(to - address) as usize];
                        before.push((came, poke(from, part)));
                    }
                    changed.add(address, end);
                }
            }
        }
        before
    }
}

/// Code that the kernel wrote there.
pub fn poke(address: u64, code: &[u8]) -> Mapping {
    let content = Content::Code(code.into());
    Mapping { address, size: code.len() as u64, name: "[kernel]".to_owned(), content }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pokes: Pokes) -> Vec<(u64, u64, Vec<u8>)> {
        let code = |mapping: Mapping| match mapping.content {
            Content::Code(code) => code.to_vec(),
            _ => panic!("a change replaces code"),
        };
        pokes.before().into_iter().map(|(tsc, mapping)| (tsc, mapping.address, code(mapping))).collect()
    }

    #[test]
    fn the_first_change_of_each_byte_says_what_was_there() {
        let mut pokes = Pokes::default();
        pokes.replaced(200, 0x1000, vec![2, 2]);
        pokes.replaced(100, 0x1001, vec![1, 1]);
        pokes.replaced(300, 0x1000, vec![3, 3, 3, 3]);
        assert_eq!(told(pokes), [(0, 0x1001, vec![1, 1]), (0, 0x1000, vec![2]), (0, 0x1003, vec![3])]);
    }

    #[test]
    fn what_was_there_came_with_its_function() {
        let mut pokes = Pokes::default();
        pokes.replaced(100, 0x1010, vec![1]);
        pokes.came(200, 0x1000, 0x20);
        pokes.replaced(300, 0x1010, vec![3]);
        pokes.replaced(400, 0x1010, vec![4]);
        assert_eq!(told(pokes), [(0, 0x1010, vec![1]), (200, 0x1010, vec![3])]);
    }
}

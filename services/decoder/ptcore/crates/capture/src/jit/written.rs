//! Functions that were written at run time, many to an ELF file in memory.

use super::Loaded;
use crate::elf::{self, Function};
use crate::spaces::{Content, Mapping, JIT};
use std::collections::BTreeMap;

/// A file takes up to this many: the number of its loaded parts has 16 bits.
const MAX_FUNCTIONS: usize = 1 << 15;
/// Each takes some 2 KiB beside its code: of a program that writes over its code as often, what comes later has no names.
const MAX_FILES: usize = 1 << 17;
/// Functions that are moved are there once more: up to this many bytes of a jitdump.
const MAX_MOVED: usize = 1 << 28;

/// Takes functions in the order of their records.
pub struct Written<'d> {
    /// Those of the file that is being filled, which do not overlap.
    next: Vec<New<'d>>,
    /// Their addresses, start to end.
    taken: BTreeMap<u64, u64>,
    mappings: Vec<(u64, Mapping)>,
    /// Bytes that may still be moved.
    room: usize,
    /// Files that may still be made, and functions that got into none: they have no names.
    files: usize,
    pub unnamed: usize,
    /// Code took the place of other code.
    pub replaced: bool,
}

struct New<'d> {
    tsc: u64,
    address: u64,
    name: &'d [u8],
    code: &'d [u8],
}

impl<'d> Written<'d> {
    pub fn new() -> Self {
        Written {
            next: Vec::new(),
            taken: BTreeMap::new(),
            mappings: Vec::new(),
            room: MAX_MOVED,
            files: MAX_FILES,
            unnamed: 0,
            replaced: false,
        }
    }

    pub fn load(&mut self, tsc: u64, address: u64, (name, code): Loaded<'d>) {
        let Some(end) = address.checked_add(code.len() as u64).filter(|&end| end > address) else { return };
        // In one file an address has one content.
        let overlaps = self.taken.range(..end).next_back().is_some_and(|(_, &taken)| taken > address);
        self.replaced |= overlaps;
        if overlaps || self.next.len() >= MAX_FUNCTIONS {
            self.close();
        }
        self.taken.insert(address, end);
        self.next.push(New { tsc, address, name, code });
    }

    /// A function that is known already is at this address, too.
    pub fn again(&mut self, tsc: u64, address: u64, (name, code): Loaded<'d>) {
        match self.room.checked_sub(name.len() + code.len()) {
            Some(left) => {
                self.room = left;
                self.load(tsc, address, (name, code));
            }
            None => {
                self.close();
                let reason = format!("the jitdump moves more than {MAX_MOVED} bytes of code: record a shorter period");
                self.mappings.push((tsc, mapping(address, code, Content::Missing { reason })));
            }
        }
    }

    /// All of them, with the time at which each was there.
    pub fn finish(&mut self) -> Vec<(u64, Mapping)> {
        self.close();
        std::mem::take(&mut self.mappings)
    }

    /// Makes a file of those that wait.
    fn close(&mut self) {
        self.taken.clear();
        let next = std::mem::take(&mut self.next);
        let mut by_address: Vec<_> = next.iter().collect();
        by_address.sort_unstable_by_key(|new| new.address);
        let parts: Vec<_> = by_address.iter().map(|new| (new.address, new.code)).collect();
        let functions: Vec<_> = by_address.iter().map(|new| new.function()).collect();
        let left = self.files.checked_sub(1);
        self.files = left.unwrap_or(0);
        let file = left.and_then(|_| elf::binary(JIT, &parts, &functions.iter().collect::<Vec<_>>()).ok());
        self.unnamed += if file.is_none() { next.len() } else { 0 };
        let mut offset = elf::code_at(parts.len());
        let mut offsets = BTreeMap::new();
        for (address, code) in parts {
            offsets.insert(address, offset);
            offset += code.len() as u64;
        }
        self.mappings.extend(next.iter().map(|new| {
            let content = match &file {
                Some(binary) => Content::File { binary: binary.clone(), offset: offsets[&new.address] },
                None => Content::Code(new.code.into()),
            };
            (new.tsc, mapping(new.address, new.code, content))
        }));
    }
}

impl New<'_> {
    fn function(&self) -> Function {
        let name = String::from_utf8_lossy(self.name).into_owned();
        Function { address: self.address, size: self.code.len() as u64, name, ..Function::default() }
    }
}

fn mapping(address: u64, code: &[u8], content: Content) -> Mapping {
    Mapping { address, size: code.len() as u64, name: JIT.to_owned(), content }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaces::Spaces;
    use pt_flow::CodeMemory;
    use pt_image::{Binary, Image, Symbols};
    use std::collections::HashSet;
    use std::sync::Arc;

    const CODE: [u8; 4] = [0x90, 0x90, 0x90, 0xc3];

    fn files(mappings: &[(u64, Mapping)]) -> HashSet<*const Binary> {
        let file = |(_, mapping): &(u64, Mapping)| match &mapping.content {
            Content::File { binary, .. } => Some(Arc::as_ptr(binary)),
            _ => None,
        };
        mappings.iter().filter_map(file).collect()
    }

    /// The image, and from when on which of its epochs holds.
    fn image(mappings: Vec<(u64, Mapping)>) -> (Image, Vec<(u64, u32)>) {
        let mut spaces = Spaces::default();
        mappings.into_iter().for_each(|(tsc, mapping)| spaces.map(7, tsc, mapping));
        let built = spaces.build(7);
        assert!(built.refused.is_empty());
        (built.image, built.epochs)
    }

    /// Name, address and size of the function, and what is left of it there.
    fn at(image: &Image, epoch: u32, address: u64) -> (String, u64, u64, Vec<u8>) {
        let place = image.place(epoch, address);
        let told = image.describe(place.space, place.function, address);
        let bytes = image.read(epoch, address).map(|code| code.bytes.to_vec());
        (told.name, told.address, told.size, bytes.unwrap_or_default())
    }

    #[test]
    fn tens_of_thousands_of_functions_are_a_few_files() {
        let names: Vec<_> = (0..70_000).map(|number| format!("made{number}")).collect();
        let mut written = Written::new();
        // Programs do not write them in the order of their addresses.
        let place = |number: u64| 0x7f00_0000_0000 + (number * 27_644_437 % 70_000) * 64;
        for (number, name) in (0..).zip(&names) {
            written.load(number, place(number), (name.as_bytes(), &CODE));
        }
        let mappings = written.finish();
        assert_eq!((mappings.len(), files(&mappings).len()), (70_000, 3));
        let (image, epochs) = image(mappings);
        assert_eq!(epochs, []);
        for number in (0..70_000).step_by(997) {
            let found = at(&image, 0, place(number) + 1);
            assert_eq!(found, (names[number as usize].clone(), place(number), 4, CODE[1..].to_vec()));
        }
    }

    #[test]
    fn what_takes_the_place_of_a_function_has_its_own_name_from_its_time_on() {
        let mut written = Written::new();
        written.load(10, 0x1000, (b"first", &CODE));
        written.load(20, 0x2000, (b"other", &CODE));
        written.load(30, 0x1002, (b"second", &[0xcc, 0xc3, 0x90, 0x90]));
        written.load(40, 0x3000, (b"last", &CODE));
        let mappings = written.finish();
        assert_eq!(files(&mappings).len(), 2);
        let (image, epochs) = image(mappings);
        assert_eq!(epochs, [(30, 1)]);
        assert_eq!(at(&image, 0, 0x1002), ("first".to_owned(), 0x1000, 4, CODE[2..].to_vec()));
        assert_eq!(at(&image, 1, 0x1002), ("second".to_owned(), 0x1002, 4, vec![0xcc, 0xc3]));
        assert_eq!(at(&image, 1, 0x1005), ("second".to_owned(), 0x1002, 4, vec![0x90]));
        assert_eq!(at(&image, 1, 0x1001).0, "first");
        assert_eq!((at(&image, 1, 0x2000).0, at(&image, 1, 0x3000).0), ("other".to_owned(), "last".to_owned()));
    }

    #[test]
    fn addresses_that_cannot_be_cost_their_function_alone() {
        let mut written = Written::new();
        written.load(10, 0x1000, (b"before", &CODE));
        written.load(20, u64::MAX - 1, (b"beyond", &CODE));
        written.load(30, 0x1800, (b"empty", b""));
        written.load(40, 0x2000, (b"behind", &CODE));
        let (image, _) = image(written.finish());
        assert_eq!((at(&image, 0, 0x1000).0, at(&image, 0, 0x2000).0), ("before".to_owned(), "behind".to_owned()));
    }

    #[test]
    fn code_that_takes_the_place_of_other_code_too_often_has_no_names_any_more() {
        let mut written = Written::new();
        written.files = 2;
        let code = [[1, 0xc3], [2, 0xc3], [3, 0xc3], [4, 0xc3]];
        for (tsc, code) in (1..).zip(&code) {
            written.load(tsc, 0x1000, (b"made", code));
        }
        let (image, _) = image(written.finish());
        assert_eq!(written.unnamed, 2);
        let names: Vec<_> = (0..4).map(|epoch| at(&image, epoch, 0x1000)).collect();
        assert_eq!(names[1], ("made".to_owned(), 0x1000, 2, vec![2, 0xc3]));
        assert_eq!(names[3].3, [4, 0xc3]);
    }

    #[test]
    fn code_is_moved_as_long_as_there_is_room_for_it() {
        let mut written = Written::new();
        written.room = 2 * (CODE.len() + b"moved".len());
        written.load(10, 0x1000, (b"moved", &CODE));
        for number in 2..5 {
            written.again(10 * number, 0x1000 * number, (b"moved", &CODE));
        }
        let (image, _) = image(written.finish());
        assert_eq!((at(&image, 0, 0x2000).0, at(&image, 0, 0x3000).0), ("moved".to_owned(), "moved".to_owned()));
        let why = image.why_no_code(0, 0x4000);
        assert_eq!(why, "[jit]: the jitdump moves more than 268435456 bytes of code: record a shorter period");
    }
}

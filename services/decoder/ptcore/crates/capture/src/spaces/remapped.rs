//! Text of a file that a program has copied into memory without one, to have it in huge pages: recordings of perf do not have its
//! bytes, which are the file's.

use super::{Change, Content, Mapping, JIT};
use pt_image::Binary;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Intel SDM volume 3, "Paging": a page that is mapped by an entry of a page directory.
const HUGE_PAGE: u64 = 2 << 20;

/// A stretch of memory that is a file's.
#[derive(Clone)]
struct Piece {
    memory: Range<u64>,
    offset: u64,
    binary: Arc<Binary>,
    name: String,
}

impl Piece {
    /// The place in the file of memory where the code belongs that is loaded in one with this.
    fn goes_on(&self, memory: &Range<u64>) -> Option<u64> {
        // Another part of the file may end in the page that the code begins in.
        let code = [self.offset, self.offset | 0xfff].into_iter().find_map(|offset| self.binary.code_around(offset))?;
        let address = |offset: u64| self.memory.start.checked_add(offset)?.checked_sub(self.offset);
        let (start, end) = (address(code.start)?, address(code.end)?.checked_next_multiple_of(HUGE_PAGE)?);
        let inside = start - start % HUGE_PAGE <= memory.start && memory.end <= end;
        memory.start.checked_add(self.offset)?.checked_sub(self.memory.start).filter(|_| inside)
    }
}

/// Takes memory without a file for a file's where it is made of whole huge pages, in the place of the file's code that is, or was,
/// beside it. Who copies code forbids to write there then; where a program writes code of its own, it may do that, or tells the
/// code's names. `line`: changes of an address space, by time.
pub(super) fn take_for_files(line: &mut [(u64, Change)]) {
    let generated = generated(line);
    let mut pieces: BTreeMap<u64, Piece> = BTreeMap::new();
    // By their ends, those of which the piece behind is not told yet.
    let mut waiting: HashMap<u64, (usize, Range<u64>)> = HashMap::new();
    for at in 0..line.len() {
        let Change::Map(mapping) = &line[at].1 else {
            (pieces, waiting) = Default::default();
            continue;
        };
        let memory = mapping.address..mapping.address.saturating_add(mapping.size);
        match &mapping.content {
            Content::File { binary, offset } => {
                let (binary, name, offset) = (Arc::clone(binary), mapping.name.clone(), *offset);
                let piece = Piece { memory, offset, binary, name };
                if let Some((copied, memory)) = waiting.remove(&piece.memory.start) {
                    take(&mut line[copied].1, &piece, &memory);
                }
                pieces.insert(piece.memory.start, piece);
            }
            Content::Unnamed { writable: false, .. }
                if (memory.start | memory.end) % HUGE_PAGE == 0 && generated.range(memory.clone()).next().is_none() =>
            {
                // Behind it; in front of it, or where it is.
                let beside = [memory.end, memory.start].map(|place| pieces.range(..=place).next_back());
                let mut beside = beside.into_iter().flatten().filter(|(_, piece)| piece.memory.end >= memory.start);
                if !beside.any(|(_, piece)| take(&mut line[at].1, piece, &memory)) {
                    waiting.insert(memory.end, (at, memory));
                }
            }
            _ => {}
        }
    }
}

/// Where the code of jitdumps is.
fn generated(line: &[(u64, Change)]) -> BTreeSet<u64> {
    let address = |(_, change): &(u64, Change)| match change {
        Change::Map(mapping) if mapping.name == JIT => Some(mapping.address),
        _ => None,
    };
    line.iter().filter_map(address).collect()
}

fn take(change: &mut Change, piece: &Piece, memory: &Range<u64>) -> bool {
    let (Change::Map(Mapping { name, content, .. }), Some(offset)) = (change, piece.goes_on(memory)) else {
        return false;
    };
    if matches!(content, Content::Unnamed { names, .. } if !names.within(memory.clone()).is_empty()) {
        return false;
    }
    *content = Content::File { binary: Arc::clone(&piece.binary), offset };
    name.clone_from(&piece.name);
    true
}

#[cfg(test)]
mod tests {
    use super::super::{Built, Spaces};
    use super::*;
    use crate::elf;
    use crate::perf_map::PerfMap;
    use pt_flow::CodeMemory;

    const BASE: u64 = 0x4000_0000;

    /// Three huge pages of code, whose bytes are 1, 2 and 3.
    fn binary() -> Arc<Binary> {
        let code: Vec<u8> = [1, 2, 3].into_iter().flat_map(|byte| vec![byte; HUGE_PAGE as usize]).collect();
        elf::binary("x", &[(BASE, &code)], &[]).unwrap()
    }

    fn file(binary: &Arc<Binary>, address: u64, size: u64) -> Mapping {
        moved(binary, address, size, address - BASE)
    }

    /// Where the code's byte `begin` is at `address`.
    fn moved(binary: &Arc<Binary>, address: u64, size: u64, begin: u64) -> Mapping {
        let content = Content::File { binary: Arc::clone(binary), offset: elf::code_at(1) + begin };
        Mapping { address, size, name: "x".to_owned(), content }
    }

    fn unnamed(address: u64, size: u64) -> Mapping {
        let content = Content::Unnamed { names: Arc::default(), writable: false, reason: "no file".to_owned() };
        Mapping { address, size, name: "//anon".to_owned(), content }
    }

    /// The bytes of each epoch in the middle of the second page.
    fn built(mappings: Vec<(u64, Mapping)>) -> Vec<Option<u8>> {
        let mut spaces = Spaces::default();
        mappings.into_iter().for_each(|(tsc, mapping)| spaces.map(1, tsc, mapping));
        let Built { image, epochs, refused, .. } = spaces.build(1);
        assert!(refused.is_empty(), "{refused:?}");
        let byte = |epoch| image.read(epoch, BASE + 3 * HUGE_PAGE / 2).map(|slice| slice.bytes[0]);
        (0..=epochs.len() as u32).map(byte).collect()
    }

    #[test]
    fn huge_pages_in_the_place_of_a_files_code_are_the_files() {
        let x = binary();
        let (front, behind) = (file(&x, BASE, HUGE_PAGE), file(&x, BASE + 2 * HUGE_PAGE, HUGE_PAGE));
        let hole = unnamed(BASE + HUGE_PAGE, HUGE_PAGE);
        // As perf finds them in /proc, and whichever comes last.
        for order in [[&front, &hole, &behind], [&front, &behind, &hole]] {
            assert_eq!(built(order.map(|one| (0, one.clone())).to_vec()), [Some(2)]);
        }
        let first = unnamed(BASE, 2 * HUGE_PAGE);
        let last = unnamed(BASE + HUGE_PAGE, 2 * HUGE_PAGE);
        for order in [[&front, &last], [&first, &behind], [&behind, &first]] {
            assert_eq!(built(order.map(|one| (0, one.clone())).to_vec()), [Some(2)]);
        }
        // While it is recorded: where it was mapped nothing has changed.
        let whole = unnamed(BASE, 3 * HUGE_PAGE);
        for copied in [hole, first, last, whole] {
            assert_eq!(built(vec![(0, file(&x, BASE, 3 * HUGE_PAGE)), (50, copied)]), [Some(2), Some(2)]);
        }
    }

    #[test]
    fn the_last_huge_page_of_a_files_code_need_not_be_full() {
        let code: Vec<u8> = (0..3 * HUGE_PAGE / 2 + 0x1000).map(|at| (1 + at / HUGE_PAGE) as u8).collect();
        let x = elf::binary("x", &[(BASE, &code)], &[]).unwrap();
        let mapped = file(&x, BASE, code.len() as u64);
        assert_eq!(built(vec![(0, mapped), (50, unnamed(BASE, 2 * HUGE_PAGE))]), [Some(2), Some(2)]);
    }

    #[test]
    fn other_memory_without_a_file_is_nobodys() {
        let x = binary();
        let whole = file(&x, BASE, 3 * HUGE_PAGE);
        let middle = BASE + HUGE_PAGE;
        let size = 3 * HUGE_PAGE;
        let beside = vec![moved(&x, middle - size, size, 0), unnamed(middle, HUGE_PAGE)];
        let in_front = vec![unnamed(middle, HUGE_PAGE), moved(&x, middle + HUGE_PAGE, size, 0)];
        // Code that is written where a library was.
        let small = vec![whole, unnamed(BASE + 3 * HUGE_PAGE / 2, HUGE_PAGE)];
        for mappings in [beside, in_front, small] {
            let last = built(mappings.into_iter().zip([5, 10]).map(|(one, tsc)| (tsc, one)).collect());
            assert_eq!(last.last(), Some(&None));
        }
    }

    #[test]
    fn what_a_program_writes_itself_is_no_copy() {
        let whole = file(&binary(), BASE, 3 * HUGE_PAGE);
        let middle = BASE + HUGE_PAGE;
        let memory = |names: PerfMap, writable| {
            let content = Content::Unnamed { names: Arc::new(names), writable, reason: "no file".to_owned() };
            Mapping { content, ..unnamed(middle, HUGE_PAGE) }
        };
        let written = memory(PerfMap::default(), true);
        let named = memory(PerfMap::parse(b"40200000 40 hot\n"), false);
        for told in [written, named] {
            assert_eq!(built(vec![(5, whole.clone()), (10, told)]), [Some(2), None]);
        }
        let function = Mapping::of_code(JIT, middle + 0x40, &[0x90, 0xc3], &[]).unwrap();
        let told = vec![(5, whole), (10, unnamed(middle, HUGE_PAGE)), (20, function)];
        assert_eq!(built(told), [Some(2), None, None]);
    }
}

//! Text of a file that a program has copied into memory without one, to have it in huge pages: recordings of perf do not have its
//! bytes, which are the file's.

use super::{Change, Content, Mapping};
use pt_image::Binary;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Intel SDM volume 3, "Paging": a page that is mapped by an entry of a page directory.
const HUGE_PAGE: u64 = 2 << 20;

/// Where a stretch of memory is in a file: addresses are so far from offsets.
#[derive(Clone)]
struct Piece {
    end: u64,
    bias: u64,
    binary: Arc<Binary>,
    name: String,
}

impl Piece {
    fn belongs_to(&self, other: &Piece) -> bool {
        self.bias == other.bias && Arc::ptr_eq(&self.binary, &other.binary)
    }
}

/// Takes memory without a file for the file's where it is made of whole huge pages, and the file is mapped in front of it and
/// behind it as if all of that had once been one. `line`: changes of an address space, by time.
pub(super) fn take_for_files(line: &mut [(u64, Change)]) {
    let mut pieces: BTreeMap<u64, Piece> = BTreeMap::new();
    // By their ends, those of which the piece behind is not told yet.
    let mut waiting: HashMap<u64, (usize, Piece)> = HashMap::new();
    for at in 0..line.len() {
        let Change::Map(mapping) = &line[at].1 else {
            (pieces, waiting) = Default::default();
            continue;
        };
        let (begin, end) = (mapping.address, mapping.address.saturating_add(mapping.size));
        match &mapping.content {
            Content::File { binary, offset } => {
                let bias = begin.wrapping_sub(*offset);
                let piece = Piece { end, bias, binary: Arc::clone(binary), name: mapping.name.clone() };
                if let Some((copied, _)) = waiting.remove(&begin).filter(|(_, before)| before.belongs_to(&piece)) {
                    take(&mut line[copied].1, &piece);
                }
                pieces.insert(begin, piece);
            }
            Content::Unnamed { .. } if (begin | end) % HUGE_PAGE == 0 => {
                let before = pieces.range(..begin).next_back().filter(|(_, before)| before.end >= begin);
                let Some(before) = before.map(|(_, before)| before.clone()) else { continue };
                if before.end > end || pieces.get(&end).is_some_and(|behind| behind.belongs_to(&before)) {
                    take(&mut line[at].1, &before);
                } else {
                    waiting.insert(end, (at, before));
                }
            }
            _ => {}
        }
    }
}

fn take(change: &mut Change, piece: &Piece) {
    if let Change::Map(Mapping { address, name, content, .. }) = change {
        let offset = address.wrapping_sub(piece.bias);
        *content = Content::File { binary: Arc::clone(&piece.binary), offset };
        name.clone_from(&piece.name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Built, Spaces};
    use super::*;
    use crate::elf;
    use pt_flow::CodeMemory;

    const BASE: u64 = 0x4000_0000;

    /// Three huge pages of code, whose bytes are 1, 2 and 3.
    fn binary() -> Arc<Binary> {
        let code: Vec<u8> = [1, 2, 3].into_iter().flat_map(|byte| vec![byte; HUGE_PAGE as usize]).collect();
        elf::binary("x", &[(BASE, &code)], &[]).unwrap()
    }

    fn file(binary: &Arc<Binary>, address: u64, size: u64) -> Mapping {
        let content = Content::File { binary: Arc::clone(binary), offset: elf::code_at(1) + address - BASE };
        Mapping { address, size, name: "x".to_owned(), content }
    }

    fn unnamed(address: u64, size: u64) -> Mapping {
        let content = Content::Unnamed { names: Arc::default(), reason: "no file".to_owned() };
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
    fn huge_pages_between_the_pieces_of_a_file_are_the_files() {
        let x = binary();
        let pieces = [file(&x, BASE, HUGE_PAGE), file(&x, BASE + 2 * HUGE_PAGE, HUGE_PAGE)];
        let hole = unnamed(BASE + HUGE_PAGE, HUGE_PAGE);
        // As perf finds them in /proc, and whichever comes last.
        let [front, behind] = &pieces;
        for order in [[front, &hole, behind], [front, behind, &hole]] {
            assert_eq!(built(order.map(|one| (0, one.clone())).to_vec()), [Some(2)]);
        }
        // While it is recorded: where it was mapped nothing has changed.
        assert_eq!(built(vec![(0, file(&x, BASE, 3 * HUGE_PAGE)), (50, hole.clone())]), [Some(2), Some(2)]);
    }

    #[test]
    fn other_memory_without_a_file_is_nobodys() {
        let (x, y) = (binary(), binary());
        let (front, behind) = (file(&x, BASE, HUGE_PAGE), file(&x, BASE + 2 * HUGE_PAGE, HUGE_PAGE));
        let hole = unnamed(BASE + HUGE_PAGE, HUGE_PAGE);
        let alone = [vec![front.clone(), hole.clone()], vec![hole.clone(), behind.clone()]];
        let of_another = vec![front.clone(), hole.clone(), file(&y, BASE + 2 * HUGE_PAGE, HUGE_PAGE)];
        // Code that is written where a library was.
        let small = vec![file(&x, BASE, 3 * HUGE_PAGE), unnamed(BASE + 3 * HUGE_PAGE / 2, HUGE_PAGE)];
        for mappings in alone.into_iter().chain([of_another, small]) {
            let last = built(mappings.into_iter().zip([5, 10, 15]).map(|(one, tsc)| (tsc, one)).collect());
            assert_eq!(last.last(), Some(&None));
        }
    }
}

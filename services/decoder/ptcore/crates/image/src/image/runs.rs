//! Code of no file that is told piece by piece, as it first ran: a piece says nothing of where functions begin.

use super::{Content, Image, Piece, Section, CODE, NOBODY};

/// Code that never ran is missing between the pieces: less than a page of it.
const MAX_GAP: u64 = 0x1000;

/// Where runs of neighbouring pieces begin, whatever the epoch.
pub struct Runs(Vec<u64>);

impl Image {
    /// Where the run begins that the code of no file at `address` is in.
    pub(super) fn run_begin(&self, address: u64) -> u64 {
        let Runs(begins) = self.runs.get_or_init(|| self.find_runs());
        let behind = begins.partition_point(|&begin| begin <= address);
        behind.checked_sub(1).map_or(address, |index| begins[index])
    }

    fn find_runs(&self) -> Runs {
        let mut begins = Vec::new();
        let mut reached = None;
        for (&start, piece) in &self.pieces {
            if self.was(piece, |section| self.is_generated(section)) {
                if reached.is_none_or(|end| start - end >= MAX_GAP) {
                    begins.push(start);
                }
                reached = Some(piece.end);
            } else if self.was(piece, |section| self.mapped_owner(section) != NOBODY) {
                reached = None;
            }
        }
        Runs(begins)
    }

    fn was(&self, piece: &Piece, what: impl Fn(u32) -> bool) -> bool {
        piece.history.iter().any(|&(_, section)| what(section))
    }

    /// Whether it is code that was written over no file.
    pub(super) fn is_generated(&self, section: u32) -> bool {
        let Section { space, content } = &self.sections[section as usize];
        matches!(content, Content::Code { .. }) && [CODE, self.generated.space].contains(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Symbols;

    /// Where the code that nothing divides begins, and up to where the same is known of it.
    fn bounds(image: &Image, epoch: u32, address: u64) -> (u64, u64) {
        let place = image.place(epoch, address);
        assert_eq!((place.space, place.function, place.bias), (CODE, None, 0));
        (place.start, place.end)
    }

    #[test]
    fn neighbouring_pieces_are_one_stretch_of_code() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![0x90; 6]).unwrap();
        image.code(2, 0x100d, vec![0xc3; 1]).unwrap();
        image.code(3, 0x1006, vec![0x90; 7]).unwrap();
        image.code(3, 0x200d, vec![0xc3; 1]).unwrap();
        for epoch in 3..5 {
            assert_eq!(bounds(&image, epoch, 0x1003), (0x1000, 0x1006));
            assert_eq!(bounds(&image, epoch, 0x1006), (0x1000, 0x100d));
            assert_eq!(bounds(&image, epoch, 0x100d), (0x1000, 0x100e));
            assert_eq!(bounds(&image, epoch, 0x200d), (0x1000, 0x200e));
        }
    }

    #[test]
    fn pieces_far_away_are_another_stretch() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![0xc3; 16]).unwrap();
        image.code(1, 0x2010, vec![0xc3; 16]).unwrap();
        image.code(1, 0x301f, vec![0xc3; 16]).unwrap();
        let begins = [0x1008, 0x2018, 0x3028].map(|address| bounds(&image, 1, address).0);
        assert_eq!(begins, [0x1000, 0x2010, 0x2010]);
    }

    /// Calls divide code by where it was called in any epoch, so it must be the same code in all of them.
    #[test]
    fn code_is_in_one_stretch_whichever_piece_came_first() {
        let mut image = Image::new();
        image.code(1, 0x1006, vec![0x90; 7]).unwrap();
        assert_eq!(bounds(&image, 1, 0x1008).0, 0x1006);
        image.code(2, 0x1000, vec![0x90; 6]).unwrap();
        image.unmap(3, 0x1000, 6).unwrap();
        for epoch in 1..4 {
            assert_eq!(bounds(&image, epoch, 0x1008), (0x1000, 0x100d));
        }
    }

    #[test]
    fn code_that_is_written_over_other_code_is_no_stretch_of_its_own() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![0x90; 64]).unwrap();
        image.code(2, 0x1010, vec![0xcc; 8]).unwrap();
        assert_eq!(bounds(&image, 2, 0x1014), (0x1000, 0x1018));
        assert_eq!(bounds(&image, 2, 0x1020), (0x1000, 0x1040));
    }

    #[test]
    fn what_is_missing_divides_no_code() {
        let mut image = Image::new();
        image.missing(0, 0x1000, 0x1000, "", "not recorded").unwrap();
        image.code(1, 0x1000, vec![0x90; 6]).unwrap();
        image.code(1, 0x1010, vec![0x90; 6]).unwrap();
        assert_eq!(bounds(&image, 1, 0x1012), (0x1000, 0x1016));
    }
}

//! Stretches of addresses and their histories: which section stood at an address in an epoch.

use super::error::{MAX_CHANGES, MAX_EPOCH};
use super::{Image, ImageError, NOTHING};

/// A stretch of addresses that changes as a whole; the newest change of an epoch counts.
#[derive(Clone)]
pub struct Piece {
    pub end: u64,
    pub history: Vec<(u32, u32)>,
}

impl Image {
    pub(super) fn change(&mut self, epoch: u32, address: u64, size: u64, section: u32) -> Result<(), ImageError> {
        let end = address.checked_add(size).filter(|_| size > 0).ok_or(ImageError::BadRange { address, size })?;
        if epoch > MAX_EPOCH {
            return Err(ImageError::EpochTooLarge { epoch });
        }
        if epoch < self.epoch {
            return Err(ImageError::EpochBack { epoch, last: self.epoch });
        }
        self.epoch = epoch;
        self.runs.take();
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
    pub(super) fn section_at(&self, epoch: u32, address: u64) -> Option<(u32, u64, u64)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_changes_are_refused() {
        let mut image = Image::new();
        assert_eq!(image.unmap(1, 0x1000, 0), Err(ImageError::BadRange { address: 0x1000, size: 0 }));
        assert_eq!(image.unmap(1, u64::MAX, 2), Err(ImageError::BadRange { address: u64::MAX, size: 2 }));
        image.code(2, 0, vec![1]).unwrap();
        assert_eq!(image.code(1, 0, vec![1]), Err(ImageError::EpochBack { epoch: 1, last: 2 }));
        assert!(matches!(image.unmap(u32::MAX, 0, 1), Err(ImageError::EpochTooLarge { .. })));
    }
}

//! The epochs that the flow comes to.

/// By offset, of which one is known ahead.
pub struct EpochsAhead<'e> {
    next: Option<(usize, u32)>,
    rest: &'e mut dyn Iterator<Item = (usize, u32)>,
}

impl<'e> EpochsAhead<'e> {
    pub fn new(epochs: &'e mut dyn Iterator<Item = (usize, u32)>) -> Self {
        EpochsAhead { next: epochs.next(), rest: epochs }
    }

    #[inline(always)]
    pub fn first(&self) -> Option<(usize, u32)> {
        self.next
    }

    /// The next one, where it begins at `offset` at the latest.
    #[inline(always)]
    pub fn next_up_to(&mut self, offset: usize) -> Option<u32> {
        let (_, epoch) = self.next.filter(|&(from, _)| from <= offset)?;
        self.advance();
        Some(epoch)
    }

    #[cold]
    fn advance(&mut self) {
        self.next = self.rest.next();
    }
}

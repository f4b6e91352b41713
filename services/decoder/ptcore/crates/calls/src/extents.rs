//! How far functions are known to go on behind what ran of them.

use std::ops::Range;

/// Addresses that surely are in a function and not where it is entered, by its number.
#[derive(Default)]
pub struct Extents {
    of: Vec<Extent>,
}

/// A stretch of one function's code, as the image is in an epoch.
#[derive(Clone)]
pub struct Extent {
    pub epoch: u32,
    pub addresses: Range<u64>,
    /// A symbol says so, and not only what was called so far.
    pub is_named: bool,
}

const NOTHING: Extent = Extent { epoch: 0, addresses: 0..0, is_named: false };

impl Extents {
    /// The extent of the function when `address` is in it.
    #[inline(always)]
    pub fn around(&self, function: u32, epoch: u32, address: u64) -> Option<&Extent> {
        let extent = self.of.get(function as usize)?;
        (extent.addresses.contains(&address) && extent.epoch == epoch).then_some(extent)
    }

    /// Where the function is not known to go on.
    pub fn end(&self, function: u32, epoch: u32) -> Option<u64> {
        let extent = self.of.get(function as usize).filter(|extent| extent.epoch == epoch)?;
        extent.is_named.then_some(extent.addresses.end)
    }

    /// Also that is in the function.
    pub fn put(&mut self, function: u32, mut extent: Extent) {
        let index = function as usize;
        if self.of.len() <= index {
            self.of.resize(index + 1, NOTHING);
        }
        let known = &mut self.of[index];
        let (new, old) = (&mut extent.addresses, &known.addresses);
        if known.epoch == extent.epoch && new.start <= old.start && old.start <= new.end {
            new.end = new.end.max(old.end);
        }
        *known = extent;
    }

    /// What begins at `from` may be in another function.
    pub fn cut(&mut self, function: u32, from: u64) {
        if let Some(extent) = self.of.get_mut(function as usize) {
            extent.addresses.end = extent.addresses.end.min(from);
        }
    }

    pub fn clear(&mut self) {
        self.of.clear();
    }

    pub fn memory(&self) -> usize {
        self.of.capacity() * size_of::<Extent>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(extents: &mut Extents, epoch: u32, addresses: Range<u64>) {
        extents.put(2, Extent { epoch, addresses, is_named: true });
    }

    #[test]
    fn what_adjoins_in_one_epoch_is_one_extent() {
        let mut extents = Extents::default();
        put(&mut extents, 1, 0x1080..0x1100);
        put(&mut extents, 1, 0x1010..0x1080);
        let holds = |extents: &Extents, epoch, address| extents.around(2, epoch, address).is_some();
        assert!(holds(&extents, 1, 0x1010) && holds(&extents, 1, 0x10ff));
        assert!(!holds(&extents, 1, 0x100f) && !holds(&extents, 1, 0x1100));
        assert!(!holds(&extents, 2, 0x1010) && extents.around(0, 1, 0x1010).is_none());
        put(&mut extents, 1, 0x800..0x900);
        assert!(holds(&extents, 1, 0x800) && !holds(&extents, 1, 0x1010));
        put(&mut extents, 2, 0x700..0x800);
        assert!(holds(&extents, 2, 0x700) && !holds(&extents, 2, 0x800));
    }

    #[test]
    fn what_begins_behind_is_cut_off() {
        let mut extents = Extents::default();
        put(&mut extents, 1, 0x1000..0x1100);
        extents.cut(2, 0x1080);
        assert!(extents.around(2, 1, 0x107f).is_some() && extents.around(2, 1, 0x1080).is_none());
    }
}

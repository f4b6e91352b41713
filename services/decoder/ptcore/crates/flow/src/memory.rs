//! The code a stream ran through, as the flow layer asks for it.

use std::ops::Deref;

/// Code bytes from the asked address to the end of their section.
#[derive(Clone, Copy, Debug)]
pub struct CodeSlice<'a> {
    /// Never empty; the first byte stands at the asked address.
    pub bytes: &'a [u8],
    /// Names the content of the section: two answers for one address with one generation hold the same bytes,
    /// whatever the epochs. Blocks are kept by (generation, address).
    pub generation: u64,
}

/// Code images by epoch. An epoch names one state of the address space; the image of an epoch never changes.
pub trait CodeMemory {
    /// The code at `address` as of `epoch`; `None` where no code is known.
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>>;

    /// The same for who mostly asks near to where it asked before: `near` is what the memory noted of that, and no other memory did.
    fn read_near(&self, epoch: u32, address: u64, _near: &mut Near) -> Option<CodeSlice<'_>> {
        self.read(epoch, address)
    }

    /// One of the epochs that have all their code in common with this one, the same for all of them: what was found out about
    /// code in one of them holds in the others.
    fn same_code(&self, epoch: u32) -> u32 {
        epoch
    }

    /// Who runs in the epoch: another number for another thread, and for one that was on another core meanwhile.
    fn thread(&self, epoch: u32) -> u64 {
        let _ = epoch;
        0
    }
}

/// Addresses from `start` to `end` that one section of a memory holds as of an epoch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Near {
    pub epoch: u32,
    pub start: u64,
    pub end: u64,
    pub section: u32,
    /// Which memory it is of, for one that is made of several.
    pub memory: usize,
}

impl<M: Deref<Target: CodeMemory>> CodeMemory for M {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        (**self).read(epoch, address)
    }

    fn read_near(&self, epoch: u32, address: u64, near: &mut Near) -> Option<CodeSlice<'_>> {
        (**self).read_near(epoch, address, near)
    }

    fn same_code(&self, epoch: u32) -> u32 {
        (**self).same_code(epoch)
    }

    fn thread(&self, epoch: u32) -> u64 {
        (**self).thread(epoch)
    }
}

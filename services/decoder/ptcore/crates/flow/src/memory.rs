//! The code a stream ran through, as the flow layer asks for it.

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
}

impl<M: CodeMemory + ?Sized> CodeMemory for &M {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        (**self).read(epoch, address)
    }
}

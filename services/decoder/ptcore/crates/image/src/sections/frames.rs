//! Where the unwind table is that a segment leads to (Linux Standard Base, "Exception Frame Header").

use super::loads::Loads;
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use std::ops::Range;

impl Loads<'_> {
    /// Address and place of `.eh_frame`.
    pub fn unwind_table(&self) -> Option<(u64, Range<u64>)> {
        let head = self.frames.as_ref()?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(head.address);
        let parsed =
            EhFrameHdr::new(self.data(&head.place), LittleEndian).parse(&bases, self.class.word() as u8).ok()?;
        let Pointer::Direct(address) = parsed.eh_frame_ptr() else { return None };
        let place = self.place(address)?;
        let size = until_end(self.data(&place)) as u64;
        Some((address, place.start..place.start + size))
    }
}

/// How many bytes the entries have, up to the one without content that ends them.
fn until_end(table: &[u8]) -> usize {
    let mut at = 0;
    while let Some(size) = table.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes)) {
        at = at.saturating_add(4).saturating_add(size as usize);
        if size == 0 || size == u32::MAX {
            break;
        }
    }
    at.min(table.len())
}

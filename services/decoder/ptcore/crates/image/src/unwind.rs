//! What the unwind tables say of functions, which even stripped files have.

use crate::elf_file::File;
use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, Pointer, UnwindContext};
use gimli::{FrameDescriptionEntry, UnwindSection, X86_64};
use object::{Object, ObjectSection};

type Slice<'f> = EndianSlice<'f, LittleEndian>;

/// Rules that hold from the beginning of all functions are a few bytes; longer ones are damaged.
const MAX_COMMON: usize = 1 << 8;
/// Bytes on the stack when a function is entered: its return address (x86-64 psABI).
const ENTERED: i64 = 8;

/// The description of a stretch of code.
pub struct Description<'t, 'f> {
    entry: FrameDescriptionEntry<Slice<'f>>,
    frames: &'t EhFrame<Slice<'f>>,
    bases: &'t BaseAddresses,
}

/// Start and end of every function with a frame description, as far as `.eh_frame` can be read, by start.
pub fn function_bounds(file: &File<'_>) -> Vec<(u64, u64)> {
    let mut bounds = Vec::new();
    each(file, |description| bounds.push(description.bounds()));
    bounds.sort_unstable();
    bounds.dedup_by_key(|bound| bound.0);
    bounds
}

/// Tells all frame descriptions in their order, as far as `.eh_frame` can be read.
pub fn each<'f>(file: &File<'f>, mut tell: impl FnMut(Description<'_, 'f>)) {
    let Some(section) = file.section_by_name(".eh_frame") else { return };
    let Ok(data) = section.data() else { return };
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = file.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    let mut frames = EhFrame::new(data, LittleEndian);
    frames.set_address_size(if file.is_64() { 8 } else { 4 });
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
        tell(Description { entry, frames: &frames, bases: &bases });
    }
}

impl Description<'_, '_> {
    pub fn bounds(&self) -> (u64, u64) {
        (self.entry.initial_address(), self.entry.end_address())
    }

    /// Where its table of landing pads is.
    pub fn handlers(&self) -> Option<u64> {
        match self.entry.lsda()? {
            Pointer::Direct(address) => Some(address),
            Pointer::Indirect(_) => None,
        }
    }

    /// Its first instruction has more on the stack than a return address: it is not where a function is entered.
    pub fn is_inside(&self) -> bool {
        if self.entry.is_signal_trampoline() || self.entry.cie().entry_len() > MAX_COMMON {
            return false;
        }
        let mut context = UnwindContext::new();
        let Ok(mut rows) = self.entry.rows(self.frames, self.bases, &mut context) else { return false };
        let Ok(Some(row)) = rows.next_row() else { return false };
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => (*register, *offset) != (X86_64::RSP, ENTERED),
            CfaRule::Expression(_) => false,
        }
    }
}

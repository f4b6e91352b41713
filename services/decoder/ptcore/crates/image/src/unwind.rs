//! Bounds of functions from the unwind tables, which even stripped files have.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection};

/// Start and end of every function with a frame description, as far as `.eh_frame` can be read, by start.
pub fn function_bounds(file: &object::File<'_>) -> Vec<(u64, u64)> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else { return Vec::new() };
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = file.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    let mut frames = EhFrame::new(data, LittleEndian);
    frames.set_address_size(if file.is_64() { 8 } else { 4 });
    let mut bounds = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(description) = partial.parse(EhFrame::cie_from_offset) else { continue };
        bounds.push((description.initial_address(), description.end_address()));
    }
    bounds.sort_unstable();
    bounds.dedup_by_key(|bound| bound.0);
    bounds
}

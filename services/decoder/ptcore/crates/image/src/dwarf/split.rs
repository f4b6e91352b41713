//! Files of split debug information, with the units that they have (DWARF 5 standard, 7.3.2.2).

use super::{little_endian, Files};
use crate::metered::Metered;
use addr2line::SplitDwarfLoad;
use gimli::{Abbreviations, AbbreviationsCache, AttributeValue, DebugAbbrevOffset, DebugInfo, Dwarf, DwarfSections};
use gimli::{DwoId, Reader, SectionId, UnitHeader, UnitType};
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// A `.dwo` file. It has the units of a whole program where they were compiled together.
pub struct SplitFile<'f> {
    sections: DwarfSections<Metered<'f>>,
    units: HashMap<DwoId, Unit<'f>>,
}

struct Unit<'f> {
    /// From its first byte on.
    info: Metered<'f>,
    kinds_at: DebugAbbrevOffset,
    kinds: Arc<Abbreviations>,
}

impl<'f> SplitFile<'f> {
    pub fn open(files: &'f Files, path: &Path) -> Option<SplitFile<'f>> {
        let bytes = files.add(path)?;
        let file = little_endian(bytes)?;
        let others = |id| if id == SectionId::DebugInfo { Metered::default() } else { files.split_section(&file, id) };
        let sections = DwarfSections::load(|id| Ok::<_, ()>(others(id))).ok()?;
        let mut units = Units { sections: &sections, kinds: AbbreviationsCache::new(), found: HashMap::new() };
        // Each unit of types may have a section of its own, by the same name.
        let name = SectionId::DebugInfo.dwo_name()?;
        let mut left = bytes.len();
        for section in file.sections().filter(|section| section.name_bytes() == Ok(name.as_bytes())) {
            let Ok(data) = section.compressed_data() else { continue };
            // Those of a damaged file may lie one over the other.
            let Some(rest) = left.checked_sub(data.data.len()) else { break };
            left = rest;
            units.add(Metered::new(files.unpacked(data).unwrap_or_default(), None, &files.copies));
        }
        let units = units.found;
        Some(SplitFile { sections, units })
    }

    /// The file as one that begins with the wanted unit; `None` where that is not in it.
    pub fn beginning_with(&self, load: &SplitDwarfLoad<Metered<'f>>) -> Option<Arc<Dwarf<Metered<'f>>>> {
        let unit = self.units.get(&load.dwo_id)?;
        let mut dwarf = self.sections.borrow(|section| *section);
        dwarf.debug_info = unit.info.into();
        dwarf.abbreviations_cache.set::<Metered<'f>>(unit.kinds_at, Arc::clone(&unit.kinds));
        dwarf.make_dwo(&load.parent);
        Some(Arc::new(dwarf))
    }
}

/// The units of a file while they are looked for.
struct Units<'s, 'f> {
    sections: &'s DwarfSections<Metered<'f>>,
    /// Of entries; many units may have the same.
    kinds: AbbreviationsCache,
    found: HashMap<DwoId, Unit<'f>>,
}

impl<'f> Units<'_, 'f> {
    fn add(&mut self, section: Metered<'f>) {
        let mut headers = DebugInfo::from(section).units();
        while let Ok(Some(header)) = headers.next() {
            if let Some((id, unit)) = self.unit(section, &header) {
                self.found.entry(id).or_insert(unit);
            }
        }
    }

    fn unit(&mut self, section: Metered<'f>, header: &UnitHeader<Metered<'f>>) -> Option<(DwoId, Unit<'f>)> {
        if matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }) {
            return None;
        }
        let kinds_at = header.debug_abbrev_offset();
        let kinds = self.kinds.get(&self.sections.debug_abbrev, kinds_at).ok()?;
        self.kinds.set::<Metered<'f>>(kinds_at, Arc::clone(&kinds));
        let mut info = section;
        info.skip(header.debug_info_offset()?.0).ok()?;
        Some((dwo_id(header, &kinds)?, Unit { info, kinds_at, kinds }))
    }
}

/// What the program calls a unit by: in DWARF 4 an attribute has it.
fn dwo_id(header: &UnitHeader<Metered<'_>>, kinds: &Abbreviations) -> Option<DwoId> {
    if let UnitType::SplitCompilation(id) = header.type_() {
        return Some(id);
    }
    match header.entries(kinds).next_dfs().ok()??.attr_value(gimli::DW_AT_GNU_dwo_id)? {
        AttributeValue::DwoId(id) => Some(id),
        _ => None,
    }
}

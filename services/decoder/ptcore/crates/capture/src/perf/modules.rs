//! Kernel modules: object files whose code the kernel puts together and relocates when it loads them.
//!
//! Linux, kernel/module/main.c (`layout_sections`, `apply_relocations`) and arch/x86/kernel/module.c. What the kernel
//! patches later (alternatives, static keys, calls that are traced) only a kcore has; the calls of `__fentry__`, which
//! begin nearly every function, are patched at once and always.

use crate::elf::{self, Function};
use crate::spaces::Mapping;
use object::elf::{R_X86_64_PC32, R_X86_64_PLT32};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags, SectionIndex};
use std::collections::HashMap;

const CODE: u64 = object::elf::SHF_ALLOC.0 | object::elf::SHF_EXECINSTR.0;
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Whether perf's name of a mapping is that of a module's file.
pub fn is_module(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    file.ends_with(".ko") || [".ko.xz", ".ko.gz", ".ko.zst"].iter().any(|end| file.ends_with(end))
}

/// The module's code at `address`, and how many of its branches go to functions that are not known. `kernel`: where
/// the kernel's own functions are.
pub fn mapping(
    name: &str,
    bytes: &[u8],
    address: u64,
    kernel: &HashMap<String, u64>,
) -> Result<(Mapping, usize), String> {
    let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
    let (mut code, mut places) = (Vec::new(), HashMap::<SectionIndex, u64>::new());
    let sections: Vec<_> = file.sections().filter(runs).collect();
    for section in &sections {
        code.resize(code.len().next_multiple_of(section.align().clamp(1, 4096) as usize), 0xcc);
        places.insert(section.index(), code.len() as u64);
        code.extend(section.data().map_err(|error| error.to_string())?);
    }
    let mut unknown = 0;
    for section in &sections {
        for (offset, relocation) in section.relocations() {
            let RelocationFlags::Elf { r_type: R_X86_64_PC32 | R_X86_64_PLT32 } = relocation.flags() else { continue };
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let symbol = file.symbol_by_index(symbol).map_err(|error| error.to_string())?;
            let at = places[&section.index()].saturating_add(offset) as usize;
            if symbol.name() == Ok("__fentry__") {
                if let Some(call) = at.checked_sub(1).and_then(|call| code.get_mut(call..call + NOP5.len())) {
                    call.copy_from_slice(&NOP5);
                }
                continue;
            }
            let target = match symbol.section_index() {
                Some(inside) => places.get(&inside).map(|place| address.wrapping_add(place + symbol.address())),
                None => symbol.name().ok().and_then(|name| kernel.get(name).copied()),
            };
            let Some(target) = target else {
                // Data of the module are no matter to the flow.
                unknown += usize::from(symbol.section_index().is_none());
                continue;
            };
            let displacement =
                target.wrapping_add(relocation.addend() as u64).wrapping_sub(address.wrapping_add(at as u64));
            if let Some(field) = code.get_mut(at..at + 4) {
                field.copy_from_slice(&(displacement as u32).to_le_bytes());
            }
        }
    }
    let functions: Vec<_> = (file.symbols())
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| {
            let place = places.get(&symbol.section_index()?)?;
            let address = address.wrapping_add(place.wrapping_add(symbol.address()));
            Some(Function { address, size: symbol.size(), name: symbol.name().ok()?.to_owned() })
        })
        .collect();
    if code.is_empty() {
        return Err("it has no code: it is no kernel module".to_owned());
    }
    Ok((elf::mapping(name, address, &code, &functions.iter().collect::<Vec<_>>())?, unknown))
}

/// Code that stays loaded.
fn runs<'d>(section: &impl ObjectSection<'d>) -> bool {
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return false };
    let stays = !section.name().unwrap_or_default().starts_with(".init");
    sh_flags.0 & CODE == CODE && stays
}

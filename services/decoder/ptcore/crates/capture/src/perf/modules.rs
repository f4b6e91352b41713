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

#[cfg(test)]
mod tests {
    use crate::elf::{self, Function};
    use crate::perf::recording::{halves, named, runs, text, words, Folder, Pipe};
    use crate::Options;
    use std::process::Command;

    /// Two sections, of which the first calls into the second and into the kernel.
    const MODULE: &str = "
    .text
    .globl net_work
    .type net_work, @function
net_work:
    call __fentry__
    call helper
    call kernel_work
    ret
    .size net_work, . - net_work
    .section .init.text, \"ax\"
    .fill 64, 1, 0x90
    .section .text.unlikely, \"ax\"
    .balign 16
    .type helper, @function
helper:
    nop
    ret
    .size helper, . - helper
";

    #[test]
    fn vmlinux_and_the_files_of_the_modules_are_the_kernel() {
        let folder = Folder::new("modules");
        let source = folder.add("net.s", MODULE.as_bytes());
        match Command::new("cc").arg("-c").arg(source).arg("-o").arg(folder.0.join("net.ko")).status() {
            Ok(status) => assert!(status.success()),
            Err(error) => return eprintln!("skipped: no C compiler: {error}"),
        }
        let at = |address, name: &str| Function { address, size: 2, name: name.to_owned() };
        let (text_at, work_at) = (at(0xffff_ffff_8100_0000, "_text"), at(0xffff_ffff_8100_0002, "kernel_work"));
        let code = [0x90, 0xc3, 0x90, 0x90, 0xc3];
        let vmlinux = folder.add("vmlinux", &elf::file(text_at.address, &code, &[&text_at, &work_at]));
        let mut pipe = Pipe::new();
        let kernel = |pipe: &mut Pipe, address, offset, name| {
            let place = [halves(&[u32::MAX, 0]), words(&[address, 0x1000, offset])].concat();
            pipe.event(1, 1, &[place, text(name)].concat(), (u32::MAX, 0, 0, 0));
        };
        // Moved by 16 MiB (address space randomisation).
        kernel(&mut pipe, 0xffff_ffff_8200_0000, 0xffff_ffff_8200_0000, "[kernel.kallsyms]_text");
        let module = 0xffff_ffff_c000_0000;
        kernel(&mut pipe, module, 0, "/lib/modules/6.1.0/kernel/net/net.ko");
        kernel(&mut pipe, module + 0x10000, 0, "/lib/modules/6.1.0/kernel/net/gone.ko");
        pipe.enters((7, 7, 10, 0));
        // At the beginning; behind the call of `helper`, which was 10 bytes from it.
        pipe.ran(0, &[(100, 0xffff_ffff_8200_0000), (200, module), (300, module + 10)]);
        let capture = pipe.open(&folder, Options { vmlinux: Some(vmlinux), ..Options::default() });
        let gone = "/lib/modules/6.1.0/kernel/net/gone.ko: the file is not there; a kcore would have its code";
        assert_eq!(capture.warnings, [gone]);
        // nop, call, nop, ret; call, nop, nop, ret.
        assert_eq!(runs(&capture), [(7, vec![2, 4, 4])]);
        assert_eq!(named(&capture, module + 5), "net_work");
        assert_eq!(named(&capture, module + 17), "helper");
    }
}

//! Kernel modules: object files whose code the kernel puts together and relocates when it loads them.
//!
//! Linux, kernel/module/main.c (`layout_sections`, `apply_relocations`) and arch/x86/kernel/module.c. What the kernel
//! patches later (alternatives, static keys, calls that are traced) only a kcore has; the calls of `__fentry__`, which
//! begin nearly every function, are patched at once and always.

use crate::elf::Function;
use crate::spaces::Mapping;
use object::elf::{R_X86_64_PC32, R_X86_64_PLT32};
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags, SectionIndex, SymbolKind,
};
use pt_image::{branch_opcode, Binding, ElfFile, SymbolNames};
use std::collections::HashMap;

const CODE: u64 = object::elf::SHF_ALLOC.0 | object::elf::SHF_EXECINSTR.0;
/// Bytes between sections, which are at multiples of up to a page: of all together.
const MAX_GAPS: usize = 1 << 22;
pub const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Where functions of the kernel are, by name.
pub type Addresses<'b> = HashMap<&'b [u8], u64>;

/// A module's file, and its code as the kernel puts it together at an address.
pub struct Module<'b> {
    bytes: &'b [u8],
    file: ElfFile<'b>,
    names: SymbolNames<'b>,
    address: u64,
    code: Vec<u8>,
    /// Where sections are in the code.
    places: HashMap<SectionIndex, u64>,
}

/// A module's code with the branches that its relocations lead anywhere.
pub struct Linked {
    pub code: Mapping,
    /// Branches to functions of which nothing tells where they were: address and size.
    pub unknown: Vec<(u64, u64)>,
}

impl<'b> Module<'b> {
    pub fn of(bytes: &'b [u8], address: u64) -> Result<Module<'b>, String> {
        let file = pt_image::elf(bytes)?;
        let (mut code, mut places) = (Vec::new(), HashMap::<SectionIndex, u64>::new());
        for section in file.sections().filter(runs) {
            code.resize(code.len().next_multiple_of(section.align().clamp(1, 4096) as usize), 0xcc);
            places.insert(section.index(), code.len() as u64);
            let data = section.data().map_err(|error| error.to_string())?;
            if code.len() + data.len() > bytes.len() + MAX_GAPS {
                return Err("its sections have more bytes than the file".to_owned());
            }
            code.extend(data);
        }
        if code.is_empty() {
            return Err("it has no code: it is no kernel module".to_owned());
        }
        Ok(Module { bytes, names: SymbolNames::of(&file), file, address, code, places })
    }

    /// Bytes of code.
    pub fn size(&self) -> u64 {
        self.code.len() as u64
    }

    /// What other modules may call: name and address.
    pub fn global_functions(&self) -> impl Iterator<Item = (&'b [u8], u64)> + '_ {
        let symbols = self.file.symbols().filter(|symbol| symbol.is_global() && symbol.kind() == SymbolKind::Text);
        symbols.filter_map(|symbol| Some((self.names.name(symbol.index())?, self.place(&symbol)?)))
    }

    /// `known`: where functions of the kernel and of other modules are.
    pub fn linked(mut self, name: &str, known: &Addresses<'_>) -> Result<Linked, String> {
        let unknown = self.relocate(known)?;
        let functions = self.functions()?;
        let code = Mapping::of_code(name, self.address, &self.code, &functions.iter().collect::<Vec<_>>())?;
        Ok(Linked { code, unknown })
    }

    fn relocate(&mut self, known: &Addresses<'_>) -> Result<Vec<(u64, u64)>, String> {
        let (mut unknown, mut relocations) = (Vec::new(), 0);
        for section in self.file.sections().filter(runs) {
            for (offset, relocation) in section.relocations() {
                relocations += 1;
                if relocations > self.bytes.len() {
                    return Err("its relocations have more bytes than the file".to_owned());
                }
                let RelocationFlags::Elf { r_type: R_X86_64_PC32 | R_X86_64_PLT32 } = relocation.flags() else {
                    continue;
                };
                let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
                let callee = self.names.name(symbol);
                let symbol = self.file.symbol_by_index(symbol).map_err(|error| error.to_string())?;
                let at = self.places[&section.index()].saturating_add(offset) as usize;
                let place = self.address.wrapping_add(at as u64);
                if callee == Some(b"__fentry__") {
                    if let Some(call) = at.checked_sub(1).and_then(|call| self.code.get_mut(call..call + NOP5.len())) {
                        call.copy_from_slice(&NOP5);
                    }
                    continue;
                }
                let target = match symbol.section_index() {
                    Some(_) => self.place(&symbol),
                    None => callee.and_then(|name| known.get(name).copied()),
                };
                let Some(target) = target else {
                    // Data are no matter to the flow. Own code that did not stay is at an address that nothing tells.
                    let opcode = branch_opcode(&self.code, at).map(|size| size as u64);
                    unknown.extend(opcode.map(|size| (place.wrapping_sub(size), size + 4)));
                    continue;
                };
                let displacement = target.wrapping_add(relocation.addend() as u64).wrapping_sub(place);
                if let Some(field) = self.code.get_mut(at..at + 4) {
                    field.copy_from_slice(&(displacement as u32).to_le_bytes());
                }
            }
        }
        Ok(unknown)
    }

    fn functions(&self) -> Result<Vec<Function>, String> {
        let (mut functions, mut named_bytes) = (Vec::new(), 0);
        for symbol in self.file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
            let (Some(address), Some(name)) = (self.place(&symbol), self.names.name(symbol.index())) else { continue };
            named_bytes += name.len();
            if named_bytes > self.bytes.len() {
                return Err("its functions' names have more bytes than the file".to_owned());
            }
            let (size, name) = (symbol.size(), String::from_utf8_lossy(name).into_owned());
            functions.push(Function { address, size, name, binding: Binding::of(&symbol) });
        }
        Ok(functions)
    }

    /// Where what the symbol names is, if that is code of the module.
    fn place<'d>(&self, symbol: &impl ObjectSymbol<'d>) -> Option<u64> {
        let place = self.places.get(&symbol.section_index()?)?;
        Some(self.address.wrapping_add(place.wrapping_add(symbol.address())))
    }
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
    use crate::perf::kernel::UNKNOWN;
    use crate::perf::recording::{halves, named, runs, text, words, Folder, Pipe};
    use crate::unpacked::tests::{gzip, zstd};
    use crate::{Capture, Options};
    use object::{Object, ObjectSection};
    use std::collections::HashMap;
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

    /// `None`, with a word on stderr, where there is no C compiler.
    fn build(folder: &Folder) -> Option<Vec<u8>> {
        built(folder, MODULE)
    }

    fn built(folder: &Folder, assembly: &str) -> Option<Vec<u8>> {
        let source = folder.add("net.s", assembly.as_bytes());
        let built = folder.0.join("built");
        match Command::new("cc").args(["-c", "-Wa,--noexecstack"]).arg(source).arg("-o").arg(&built).status() {
            Ok(status) => assert!(status.success()),
            Err(error) => {
                eprintln!("skipped: no C compiler: {error}");
                return None;
            }
        }
        Some(std::fs::read(built).unwrap())
    }

    const MODULE_AT: u64 = 0xffff_ffff_c000_0000;

    /// The kernel ran, moved by 16 MiB (address space randomisation), then the module: at its beginning, and behind the
    /// call of `helper`, which was 10 bytes from it. Further modules are mapped behind it. All are of these build ids.
    fn opened(folder: &Folder, modules: &[(&str, Option<[u8; 20]>)]) -> Capture {
        ran(folder, modules, &[MODULE_AT, MODULE_AT + 10])
    }

    /// The same, but of the modules what runs from these addresses on.
    fn ran(folder: &Folder, modules: &[(&str, Option<[u8; 20]>)], begins: &[u64]) -> Capture {
        let at = |address, name: &str| Function { address, size: 2, name: name.to_owned(), ..Function::default() };
        let (text_at, work_at) = (at(0xffff_ffff_8100_0000, "_text"), at(0xffff_ffff_8100_0002, "kernel_work"));
        let code = [0x90, 0xc3, 0x90, 0x90, 0xc3];
        let vmlinux = folder.add("vmlinux", &elf::file(text_at.address, &code, &[&text_at, &work_at]));
        let mut pipe = Pipe::new();
        let kernel = |pipe: &mut Pipe, address, offset, name| {
            let place = [halves(&[u32::MAX, 0]), words(&[address, 0x1000, offset])].concat();
            pipe.event(1, 1, &[place, text(name)].concat(), (u32::MAX, 0, 0, 0));
        };
        for (name, id) in modules {
            if let Some(id) = id {
                pipe.record(67, 1, &[halves(&[u32::MAX]), id.to_vec(), vec![0; 4], text(name)].concat());
            }
        }
        kernel(&mut pipe, 0xffff_ffff_8200_0000, 0xffff_ffff_8200_0000, "[kernel.kallsyms]_text");
        for (number, (name, _)) in modules.iter().enumerate() {
            kernel(&mut pipe, MODULE_AT + 0x10000 * number as u64, 0, name);
        }
        pipe.enters((7, 7, 10, 0));
        let begins = [&[0xffff_ffff_8200_0000], begins].concat();
        pipe.ran(
            0,
            &begins.into_iter().enumerate().map(|(time, at)| (100 + 100 * time as u64, at)).collect::<Vec<_>>(),
        );
        let mut capture = pipe.open(folder, Options { vmlinux: Some(vmlinux), ..Options::default() });
        // That of vmlinux, which is not as it ran.
        capture.warnings.remove(0);
        capture
    }

    /// nop, call, nop, ret; call, nop, nop, ret.
    const RUN: [u32; 3] = [2, 4, 4];

    #[test]
    fn vmlinux_and_the_files_of_the_modules_are_the_kernel() {
        let folder = Folder::new("modules");
        let Some(module) = build(&folder) else { return };
        folder.add("net.ko", &module);
        let gone = "/lib/modules/6.1.0/kernel/net/gone.ko";
        let capture = opened(&folder, &[("/lib/modules/6.1.0/kernel/net/net.ko", None), (gone, None)]);
        let warning = format!("{gone}: the file is not there; a kcore would have its code");
        assert_eq!(capture.warnings, [warning]);
        assert_eq!(runs(&capture), [(7, RUN.to_vec())]);
        assert_eq!(named(&capture, MODULE_AT + 5), "net_work");
        assert_eq!(named(&capture, MODULE_AT + 17), "helper");
    }

    #[test]
    fn modules_call_functions_of_others_as_far_as_their_files_are_there() {
        let folder = Folder::new("calling-modules");
        let calls = ".text\n.globl send\n.type send, @function\nsend:\nnop\ncall net_work\nret\n";
        let (Some(net), Some(send)) = (build(&folder), built(&folder, calls)) else { return };
        folder.add("send.ko", &send);
        let modules = ["/lib/modules/6.1.0/send.ko", "/lib/modules/6.1.0/net.ko"].map(|name| (name, None));
        // The nop in front of the call.
        let capture = ran(&folder, &modules[..1], &[MODULE_AT]);
        let what = UNKNOWN;
        assert_eq!(capture.warnings, [format!("{}: 1 times {what}", modules[0].0)]);
        assert_eq!(runs(&capture), [(7, vec![2, 1])]);
        assert_eq!(capture.memory().why_no_code(0, MODULE_AT + 1), format!("{}: {what}", modules[0].0));
        folder.add("net.ko", &net);
        let capture = ran(&folder, &modules, &[MODULE_AT]);
        assert_eq!((capture.warnings.as_slice(), runs(&capture)), (&[][..], vec![(7, vec![2, 6])]));
    }

    #[test]
    fn a_call_of_what_was_there_while_the_module_began_leads_to_where_nothing_tells() {
        let folder = Folder::new("beginning-module");
        let calls = ".text\n.globl work\n.type work, @function\nwork:\nnop\ncall setup\nnop\nret\n\
                     .section .init.text, \"ax\"\nsetup:\nnop\nret\n";
        let Some(module) = built(&folder, calls) else { return };
        folder.add("begins.ko", &module);
        let name = "/lib/modules/6.1.0/begins.ko";
        let capture = ran(&folder, &[(name, None)], &[MODULE_AT]);
        assert_eq!(capture.warnings, [format!("{name}: 1 times {UNKNOWN}")]);
        assert_eq!(runs(&capture), [(7, vec![2, 1])]);
        assert_eq!(capture.memory().why_no_code(0, MODULE_AT + 1), format!("{name}: {UNKNOWN}"));
    }

    #[test]
    fn the_file_of_a_module_that_perf_did_not_find_has_the_name_that_the_kernel_has_for_it() {
        let folder = Folder::new("named-module");
        let Some(module) = build(&folder) else { return };
        folder.add("net-core_a-b.ko.gz", &gzip(&module));
        let capture = opened(&folder, &[("[net_core_a_b]", None), ("[gone]", None)]);
        assert_eq!(capture.warnings, ["[gone]: gone.ko: the file is not there; a kcore would have its code"]);
        assert_eq!(runs(&capture), [(7, RUN.to_vec())]);
        assert_eq!(named(&capture, MODULE_AT + 17), "helper");
    }

    #[test]
    fn the_file_of_a_module_may_be_packed() {
        let folder = Folder::new("packed-modules");
        let Some(module) = build(&folder) else { return };
        let built = folder.add("net.ko", &module);
        let xz = Command::new("xz").args(["--check=crc32", "--lzma2=dict=1MiB", "--stdout"]).arg(&built).output();
        std::fs::remove_file(built).unwrap();
        match xz {
            Ok(packed) => drop(folder.add("net.ko.xz", &packed.stdout)),
            Err(error) => eprintln!("not tried: no xz: {error}"),
        }
        folder.add("net.ko.gz", &gzip(&module));
        folder.add("net.ko.zst", &zstd(&module));
        for end in ["gz", "zst", "xz"].into_iter().filter(|end| folder.0.join(format!("net.ko.{end}")).is_file()) {
            let capture = opened(&folder, &[(&format!("/lib/modules/6.1.0/kernel/net/net.ko.{end}"), None)]);
            assert_eq!((capture.warnings.as_slice(), runs(&capture)), (&[][..], vec![(7, RUN.to_vec())]), "{end}");
            assert_eq!(named(&capture, MODULE_AT + 17), "helper");
        }
    }

    #[test]
    fn a_module_that_was_packed_may_have_been_unpacked_for_it() {
        let folder = Folder::new("unpacked-module");
        let Some(module) = build(&folder) else { return };
        folder.add("net.ko", &module);
        let capture = opened(&folder, &[("/lib/modules/6.1.0/kernel/net/net.ko.xz", None)]);
        assert_eq!((capture.warnings.as_slice(), runs(&capture)), (&[][..], vec![(7, RUN.to_vec())]));
    }

    #[test]
    fn the_module_of_another_build_is_not_taken() {
        let folder = Folder::new("other-module");
        let Some(module) = build(&folder) else { return };
        let packed = folder.add("net.ko.gz", &gzip(&module));
        let name = "/lib/modules/6.1.0/kernel/net/net.ko.gz";
        let capture = opened(&folder, &[(name, Some([0x5a; 20]))]);
        let (id, other) = ("5a".repeat(20), packed.display());
        let refusal = format!("build id {id} is wanted, {other} has none; a kcore would have its code");
        assert_eq!(capture.warnings, [format!("{name}: {refusal}")]);
        assert_eq!(capture.memory().why_no_code(0, MODULE_AT), format!("{name}: {refusal}"));
    }

    #[test]
    fn a_module_whose_functions_have_one_long_name_is_refused() {
        let folder = Folder::new("long-names");
        let long = "l".repeat(3000);
        let many: String =
            (0..3000).map(|number| format!("s{number} = net_work\n.type s{number}, @function\n")).collect();
        let Some(mut module) = built(&folder, &format!("{MODULE}{many}{long} = net_work\n")) else { return };
        let section = |bytes: &[u8], name: &str| {
            let file = object::File::parse(bytes).unwrap();
            let (at, size) = file.section_by_name(name).unwrap().file_range().unwrap();
            at as usize..(at + size) as usize
        };
        let strings = section(&module, ".strtab");
        let name = module[strings].windows(long.len()).position(|window| window == long.as_bytes()).unwrap();
        let symbols = section(&module, ".symtab");
        for symbol in module[symbols].chunks_exact_mut(24).skip(1) {
            symbol[..4].copy_from_slice(&(name as u32).to_le_bytes());
        }
        let refused = super::Module::of(&module, MODULE_AT).unwrap().linked("net.ko", &HashMap::new()).err();
        assert_eq!(refused.as_deref(), Some("its functions' names have more bytes than the file"));
    }
}

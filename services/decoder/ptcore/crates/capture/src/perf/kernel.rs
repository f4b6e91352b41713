//! The kernel's code: from a copy of /proc/kcore, or from vmlinux moved to where it ran and the files of its modules.

use super::modules;
use crate::bytes::Bytes;
use crate::elf::{self, Function};
use crate::files::{loaded, search, Files};
use crate::spaces::{Content, Mapping, Spaces, KERNEL};
use crate::{CaptureError, Options};
use object::{Object, ObjectSymbol};
use pt_image::Binary;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Kernel text and modules stand above this.
const TEXT: u64 = 0xffff_ffff_8000_0000;
/// A kcore's part is taken up to this size: text and modules have far less.
const MAX_PART: u64 = 1 << 30;

/// Puts the kernel's code before everything that is told of it later. `mapped`: what perf says is mapped where.
pub fn map(
    spaces: &mut Spaces,
    mapped: &[Mapping],
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<(), CaptureError> {
    let mut mappings: Vec<Mapping> = mapped.to_vec();
    if let Some(path) = &options.kcore {
        mappings.extend(kcore(path, options.kallsyms.as_deref())?);
    } else if let Some(path) = &options.vmlinux {
        let text = mapped.iter().find(|mapping| mapping.name.starts_with("[kernel"));
        let (code, functions) = vmlinux(path, text, options)?;
        mappings.extend(code);
        mappings.extend(loaded_modules(mapped, &functions, options, warnings));
    } else if !mapped.is_empty() {
        warnings.push("no kernel code was given (vmlinux or kcore): what the kernel ran cannot be followed".to_owned());
    }
    spaces.first(KERNEL, mappings);
    Ok(())
}

fn kcore(path: &Path, kallsyms: Option<&Path>) -> Result<Vec<Mapping>, CaptureError> {
    let bytes = Bytes::open(path).map_err(|error| {
        let what = format!("{error}; give a copy, as `perf record --kcore` makes one");
        CaptureError::option(&path.display().to_string(), what)
    })?;
    let refuse = |what: String| CaptureError::option(&path.display().to_string(), what);
    let parts = loaded(&bytes).map_err(refuse)?;
    let functions = match kallsyms {
        Some(path) => functions(path)?,
        None => Vec::new(),
    };
    let mut mappings = Vec::new();
    for part in parts.iter().filter(|part| part.address >= TEXT && part.size > 0 && part.size <= MAX_PART) {
        let from = usize::try_from(part.offset).unwrap_or(usize::MAX);
        let code = bytes.part(from..from.saturating_add(part.size as usize));
        if code.is_empty() {
            continue;
        }
        let end = part.address.saturating_add(code.len() as u64);
        let inside: Vec<_> = functions.iter().filter(|one| (part.address..end).contains(&one.address)).collect();
        mappings.push(elf::mapping("[kernel]", part.address, &code, &inside).map_err(refuse)?);
    }
    if mappings.is_empty() {
        return Err(refuse(format!("no part of the file is loaded at {TEXT:#x} or above: it is no kcore")));
    }
    Ok(mappings)
}

/// Functions of /proc/kallsyms: `address type name [module]`; they reach to the next one.
fn functions(path: &Path) -> Result<Vec<Function>, CaptureError> {
    let text = Bytes::open(path).map_err(|error| CaptureError::unreadable(path, error))?;
    let mut functions: Vec<_> = String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|&address| address != 0)?;
            let kind = words.next()?;
            let name = words.next()?.to_owned();
            matches!(kind, "t" | "T" | "w" | "W").then_some(Function { address, size: 0, name })
        })
        .collect();
    if functions.is_empty() {
        let what = "it holds no address of a function (read as root, with kernel.kptr_restrict at most 1)";
        return Err(CaptureError::option(&path.display().to_string(), what));
    }
    functions.sort_by_key(|function| function.address);
    Ok(functions)
}

/// The code of the modules whose files are there.
fn loaded_modules(
    mapped: &[Mapping],
    kernel: &HashMap<String, u64>,
    options: &Options,
    warnings: &mut Vec<String>,
) -> Vec<Mapping> {
    let mut files = Files::new(&options.symbols);
    let mut found = Vec::new();
    for module in mapped.iter().filter(|mapping| modules::is_module(&mapping.name)) {
        let built = files
            .find(&module.name, "")
            .and_then(|binary| modules::mapping(&module.name, binary.code(0), module.address, kernel));
        match built {
            Ok((mapping, unknown)) => {
                if unknown > 0 {
                    let name = &module.name;
                    warnings
                        .push(format!("{name}: {unknown} branches to functions that no symbol of the kernel names"));
                }
                found.push(mapping);
            }
            Err(reason) => warnings.push(format!("{}: {reason}; a kcore would have its code", module.name)),
        }
    }
    found
}

/// The file's code, moved as far as `_text` was (address space randomisation), and where its functions are then.
fn vmlinux(
    path: &Path,
    text: Option<&Mapping>,
    options: &Options,
) -> Result<(Vec<Mapping>, HashMap<String, u64>), CaptureError> {
    let refuse = |what: String| CaptureError::option(&path.display().to_string(), what);
    let binary =
        Binary::load(path, &search(&options.symbols)).map(Arc::new).map_err(|error| refuse(error.to_string()))?;
    let bytes = binary.code(0);
    let parts = loaded(bytes).map_err(refuse)?;
    let file = object::File::parse(bytes).map_err(|error| refuse(error.to_string()))?;
    let symbol = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.address());
    let own = symbol(text.map_or("_text", |text| text.name.rsplit(']').next().unwrap_or("_text")));
    let own = own.or_else(|| parts.iter().find(|part| part.executable).map(|part| part.address));
    let own = own.ok_or_else(|| refuse("no part of the file is code".to_owned()))?;
    let slide = text.map_or(0, |text| text.address.wrapping_sub(own));
    let mapping = |part: &crate::files::Loaded| Mapping {
        address: part.address.wrapping_add(slide),
        size: part.size.min((bytes.len() as u64).saturating_sub(part.offset)),
        name: "[kernel]".to_owned(),
        content: Content::File { binary: Arc::clone(&binary), offset: part.offset },
    };
    let symbols = file.symbols().filter(|symbol| symbol.is_definition());
    let functions =
        symbols.filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address().wrapping_add(slide))));
    let code = parts.iter().filter(|part| part.executable && part.size > 0).map(mapping).filter(|one| one.size > 0);
    Ok((code.collect(), functions.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::TemporaryFile;
    use pt_flow::CodeMemory;
    use pt_image::{Image, Symbols};

    const CODE: [u8; 4] = [0x90, 0xc3, 0x90, 0xc3];

    fn built(options: &Options, mapped: &[Mapping]) -> (Image, Vec<(u64, u32)>) {
        let mut spaces = Spaces::default();
        let poke = Content::Code([0xcc].as_slice().into());
        let address = 0xffff_ffff_a000_0001;
        spaces.map(KERNEL, 500, Mapping { address, size: 1, name: "[kernel]".to_owned(), content: poke });
        map(&mut spaces, mapped, options, &mut Vec::new()).unwrap();
        let built = spaces.build(KERNEL);
        assert_eq!(built.refused, Vec::<String>::new());
        (built.image, built.epochs)
    }

    fn name(image: &Image, address: u64) -> String {
        let place = image.place(0, address);
        image.describe(place.space, place.function, address).name
    }

    #[test]
    fn a_kcore_holds_the_code_and_kallsyms_the_names_until_the_kernel_changes_it() {
        let kcore = TemporaryFile::new(&elf::file(0xffff_ffff_a000_0000, &CODE, &[])).unwrap();
        let names = "0000000000000000 A fixed\nffffffffa0000000 T first\nffffffffa0000002 t second\t[module]\n";
        let kallsyms = TemporaryFile::new(names.as_bytes()).unwrap();
        let options =
            Options { kcore: Some(kcore.0.clone()), kallsyms: Some(kallsyms.0.clone()), ..Options::default() };
        let (image, epochs) = built(&options, &[]);
        assert_eq!(epochs, [(500, 1)]);
        assert_eq!(image.read(0, 0xffff_ffff_a000_0001).unwrap().bytes[0], 0xc3);
        assert_eq!(image.read(1, 0xffff_ffff_a000_0001).unwrap().bytes[0], 0xcc);
        assert_eq!(name(&image, 0xffff_ffff_a000_0000), "first");
        assert_eq!(name(&image, 0xffff_ffff_a000_0003), "second");
    }

    #[test]
    fn vmlinux_is_moved_to_where_its_text_was() {
        let text = Function { address: 0xffff_ffff_8100_0000, size: 4, name: "_text".to_owned() };
        let vmlinux = TemporaryFile::new(&elf::file(text.address, &CODE, &[&text])).unwrap();
        let options = Options { vmlinux: Some(vmlinux.0.clone()), ..Options::default() };
        let mapped = Mapping {
            address: 0xffff_ffff_a000_0000,
            size: 0x1000,
            name: "[kernel.kallsyms]_text".to_owned(),
            content: Content::Missing { reason: "no file".to_owned() },
        };
        let (image, _) = built(&options, &[mapped]);
        assert_eq!(image.read(0, 0xffff_ffff_a000_0002).unwrap().bytes, &CODE[2..]);
        assert_eq!(name(&image, 0xffff_ffff_a000_0002), "_text");
    }

    #[test]
    fn a_file_that_is_no_kcore_is_refused() {
        let file = TemporaryFile::new(&elf::file(0x1000, &CODE, &[])).unwrap();
        let options = Options { kcore: Some(file.0.clone()), ..Options::default() };
        let error = map(&mut Spaces::default(), &[], &options, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().ends_with("it is no kcore"), "{error}");
    }
}

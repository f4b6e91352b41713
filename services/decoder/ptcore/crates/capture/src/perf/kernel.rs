//! The kernel's code: from a copy of /proc/kcore, or from vmlinux moved to where it ran and the files of its modules.

mod empty_pages;
mod kallsyms;
mod module_files;
mod traced_calls;
mod vmlinux;

use super::modules::Addresses;
use crate::bytes::Bytes;
use crate::elf::Function;
use crate::files::{loaded, Loaded};
use crate::spaces::{Content, Mapping, Spaces, Stretches, KERNEL};
use crate::{CaptureError, Options};
use pt_flow::is_kernel;
use std::collections::HashMap;
use std::path::Path;
use vmlinux::Vmlinux;

#[cfg(test)]
pub use module_files::UNKNOWN;

/// Kernel text and modules stand above this. What system calls enter by, where the kernel hides itself from processes, may
/// stand below (Linux 4.15 to 4.19, `__entry_SYSCALL_64_trampoline`).
const TEXT: u64 = 0xffff_ffff_8000_0000;
/// A kcore's part is taken up to this size: text and modules have far less.
const MAX_PART: u64 = 1 << 30;
/// So many bytes of a kcore stand in several parts: what system calls enter by is mapped for each core.
const MAX_SHARED: usize = 1 << 26;
const NOT_GIVEN: &str = "no kernel code was given (vmlinux or kcore)";
/// apply_alternatives and jump_label_init of Linux.
const AS_BUILT: &str =
    "what the kernel changes of its code at boot and later (alternatives, static keys) is not in the file: \
                        where it ran what is told may be wrong; `perf record --kcore` keeps the code that ran";
const EMPTY: &str = "no code was there when the kcore was copied";
const OTHER: &str = "it is of another machine, or of another boot";

/// What a recording says of the kernel that it was made under.
#[derive(Default)]
pub struct Recorded {
    /// What perf says is mapped where: the kernel itself, and its modules.
    pub mapped: Vec<Mapping>,
    /// Kernel text that stands at another address too, where system calls enter by it: that address, size, and where it
    /// is in the text.
    pub entries: Vec<(u64, u64, u64)>,
    /// Functions that came to the kernel before the recording began, without their code: a copy of the kernel may have it.
    pub symbols: Vec<Mapping>,
    /// Where a symbol of the kernel was.
    pub symbol: Option<(String, u64)>,
    /// Of the kernel, in hex; empty where it is not known.
    pub build_id: String,
    /// Those of what is mapped, by name; empty ones are not known.
    pub build_ids: HashMap<String, String>,
    pub release: String,
}

/// Puts the kernel's code before everything that is told of it later.
pub fn map(
    spaces: &mut Spaces,
    recorded: &Recorded,
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<(), CaptureError> {
    let all_missing = |reason: &str| {
        let mapped = recorded.mapped.iter().map(|mapping| missing(mapping.clone(), reason));
        mapped.chain(recorded.symbols.iter().cloned()).collect()
    };
    let mappings: Vec<Mapping> = if let Some(path) = &options.kcore {
        let mut mappings: Vec<_> = all_missing(&format!("{} has no code there", path.display()));
        mappings.extend(kcore(path, recorded, &functions(recorded, options, warnings)?)?);
        mappings
    } else if let Some(vmlinux) = Vmlinux::find(recorded, options, warnings)? {
        warnings.push(format!("{}: {AS_BUILT}", vmlinux.path().display()));
        let mut mappings: Vec<_> = all_missing("vmlinux has no code there");
        mappings.extend(vmlinux.code());
        mappings.extend(recorded.entries.iter().filter_map(|&entry| vmlinux.entry(entry)));
        mappings.extend(module_files::code(recorded, vmlinux.addresses()?, options, warnings));
        mappings
    } else {
        if !recorded.mapped.is_empty() {
            let wanted = match &*recorded.build_id {
                "" => String::new(),
                id => format!(", and no vmlinux with build id {id} is there"),
            };
            let what = "what the kernel ran cannot be followed";
            warnings.push(format!("{NOT_GIVEN}{wanted}: {what}"));
        }
        all_missing(NOT_GIVEN)
    };
    spaces.first(KERNEL, mappings);
    Ok(())
}

/// Puts what changed of the kernel's code, each with its time, behind what is there of it. Without any all of it is hidden
/// alike: a program that comes back from the kernel goes on with its calls only where nothing of the kernel was followed.
pub fn change(spaces: &mut Spaces, code: Vec<(u64, Mapping)>) {
    let is_known = spaces.have_code(KERNEL);
    for (tsc, mapping) in code {
        let has_code = !matches!(mapping.content, Content::Missing { .. });
        let hidden = has_code && !is_known;
        spaces.map(KERNEL, tsc, if hidden { missing(mapping, NOT_GIVEN) } else { mapping });
    }
}

fn missing(mapping: Mapping, reason: &str) -> Mapping {
    Mapping { content: Content::Missing { reason: reason.to_owned() }, ..mapping }
}

/// What is to be named in a kcore, by address: kallsyms know modules too.
fn functions(
    recorded: &Recorded,
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<Vec<Function>, CaptureError> {
    match (&options.kallsyms, &options.vmlinux) {
        (Some(path), _) => kallsyms::functions(path, recorded),
        (None, Some(_)) => {
            let vmlinux = Vmlinux::find(recorded, options, warnings)?;
            vmlinux.map_or_else(|| Ok(Vec::new()), |vmlinux| vmlinux.functions())
        }
        (None, None) => Ok(Vec::new()),
    }
}

fn kcore(path: &Path, recorded: &Recorded, functions: &[Function]) -> Result<Vec<Mapping>, CaptureError> {
    let bytes = Bytes::open(path).map_err(|error| {
        let what = format!("{error}; give a copy, as `perf record --kcore` makes one");
        CaptureError::option(&path.display().to_string(), what)
    })?;
    let refuse = |what: String| CaptureError::option(&path.display().to_string(), what);
    let parts = loaded(&bytes).map_err(refuse)?;
    let mut mapped = Stretches::default();
    for one in recorded.mapped.iter().filter(|one| is_kernel(one.address) && one.size > 0) {
        mapped.add(one.address, one.address.saturating_add(one.size));
    }
    let mapped = |part: &Loaded| mapped.overlap(part.address, part.address.saturating_add(part.size));
    let code = parts.iter().filter(|part| part.size > 0 && part.size <= MAX_PART);
    let mut mappings = Vec::new();
    let mut room = bytes.len() + MAX_SHARED;
    for part in code.filter(|part| part.address >= TEXT || mapped(part)) {
        let from = usize::try_from(part.offset).unwrap_or(usize::MAX);
        let code = bytes.part(from..from.saturating_add(part.size as usize));
        if code.is_empty() {
            continue;
        }
        let overlap = || refuse("its parts have far more bytes than the file: it is no kcore".to_owned());
        room = room.checked_sub(code.len()).ok_or_else(overlap)?;
        let end = part.address.saturating_add(code.len() as u64);
        let place = |address| functions.partition_point(|one| one.address < address);
        let inside: Vec<_> = functions[place(part.address)..place(end)].iter().collect();
        mappings.push(Mapping::of_code("[kernel]", part.address, &code, &inside).map_err(refuse)?);
        mappings.extend(empty_pages::of(part.address, &code).into_iter().map(|(address, size)| Mapping {
            address,
            size,
            name: "[kernel]".to_owned(),
            content: Content::Missing { reason: EMPTY.to_owned() },
        }));
    }
    if mappings.is_empty() {
        return Err(refuse(format!("no part of the file is loaded at {TEXT:#x} or above: it is no kcore")));
    }
    if let Some((name, address)) = &recorded.symbol {
        let holds =
            |mapping: &Mapping| address.checked_sub(mapping.address).is_some_and(|inside| inside < mapping.size);
        if !mappings.iter().any(holds) {
            return Err(refuse(format!(
                "it has no code at {address:#x}, where the recorded kernel had {name}: {OTHER}"
            )));
        }
    }
    Ok(mappings)
}

#[cfg(test)]
mod tests;

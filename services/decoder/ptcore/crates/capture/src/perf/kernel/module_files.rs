//! The code of the kernel's modules, from their files.

use super::{missing, Addresses, Recorded};
use crate::files::Files;
use crate::perf::modules::{Linked, Module};
use crate::spaces::Mapping;
use crate::Options;
use pt_image::Binary;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;

/// Code of modules is taken up to this size, of all together: a kernel has some tens of megabytes.
const MAX_MODULES: u64 = 1 << 28;
const PACKED: [&str; 3] = [".xz", ".gz", ".zst"];
pub const UNKNOWN: &str = "a branch to a function, and no file of the kernel or of a module tells where it was";
const KCORE: &str = "a kcore would have its code";

/// Of the modules whose files are there, and of the others why not. `known`: where functions of the kernel are.
pub fn code(recorded: &Recorded, known: Addresses<'_>, options: &Options, warnings: &mut Vec<String>) -> Vec<Mapping> {
    let found = found(recorded, options);
    let mut room = MAX_MODULES;
    let modules: Vec<_> = found.iter().map(|(mapping, binary)| (*mapping, read(mapping, binary, &mut room))).collect();
    // Modules call each other, too.
    let mut known: Addresses<'_> = known;
    for (name, address) in modules.iter().flat_map(|(_, module)| module).flat_map(Module::global_functions) {
        known.entry(name).or_insert(address);
    }
    let (mut code, mut told) = (Vec::new(), HashSet::new());
    for (mapping, module) in modules {
        let name = &mapping.name;
        match module.and_then(|module| module.linked(name, &known)) {
            Ok(Linked { code: module, unknown }) => {
                if !unknown.is_empty() {
                    warnings.push(format!("{name}: {} times {UNKNOWN}", unknown.len()));
                }
                code.push(module);
                let branch = |(address, size)| Mapping { address, size, ..missing(mapping.clone(), UNKNOWN) };
                code.extend(unknown.into_iter().map(branch));
            }
            Err(reason) => {
                let reason = format!("{reason}; {KCORE}");
                code.push(missing(mapping.clone(), &reason));
                if told.insert(name) {
                    warnings.push(format!("{name}: {reason}"));
                }
            }
        }
    }
    code
}

/// Each module at each address that it had, and its file.
fn found<'r>(recorded: &'r Recorded, options: &Options) -> Vec<(&'r Mapping, Result<Arc<Binary>, String>)> {
    let (mut files, mut taken) = (Files::new(&options.symbols), HashSet::new());
    let there = by_kernel_name(&options.symbols);
    let modules = recorded.mapped.iter().filter(|module| taken.insert((&module.name, module.address)));
    let file = |module: &'r Mapping| {
        let build_id = recorded.build_ids.get(&module.name).map_or("", String::as_str);
        let names = file_names(&module.name, &there);
        let (first, others) = names.split_first()?;
        let file = others.iter().fold(files.find(first, build_id), |file, name| {
            file.or_else(|refusal| files.find(name, build_id).map_err(|_| refusal))
        });
        // Where that is not what perf says it is told.
        let told = |refusal| if first == &module.name { refusal } else { format!("{first}: {refusal}") };
        Some((module, file.map_err(told)))
    };
    modules.filter_map(file).collect()
}

/// What the file may be called of a module that perf calls so; none of what is no module. `there`: as `by_kernel_name` tells.
fn file_names(name: &str, there: &HashMap<String, BTreeSet<String>>) -> Vec<String> {
    let unpacked = unpacked(name);
    if unpacked.ends_with(".ko") {
        return vec![name.to_owned(), unpacked.to_owned()];
    }
    // Of one that perf found no file of it knows the name that the kernel has for it.
    let own = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).filter(|name| !name.contains('.'));
    let names = |name| iter::once(format!("{name}.ko")).chain(there.get(name).into_iter().flatten().cloned());
    own.into_iter().flat_map(names).collect()
}

/// The names of files of modules in the folders, by the name that the kernel has for the module: there is no `-` in it
/// (modprobe(8)).
fn by_kernel_name(folders: &[PathBuf]) -> HashMap<String, BTreeSet<String>> {
    let mut names: HashMap<_, BTreeSet<_>> = HashMap::new();
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        if let Some(module) = unpacked(&name).strip_suffix(".ko") {
            names.entry(module.replace('-', "_")).or_default().insert(name);
        }
    }
    names
}

fn unpacked(name: &str) -> &str {
    PACKED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

fn read<'b>(mapping: &Mapping, file: &'b Result<Arc<Binary>, String>, room: &mut u64) -> Result<Module<'b>, String> {
    if *room == 0 {
        return Err(format!("the modules before it have {MAX_MODULES} bytes of code"));
    }
    let binary = file.as_ref().map_err(String::clone)?;
    let module = Module::of(binary.code(0), mapping.address)?;
    *room = room.saturating_sub(module.size());
    Ok(module)
}

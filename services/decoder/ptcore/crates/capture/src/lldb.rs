//! Trace bundles of LLDB (`trace.json`): threads or cores, modules, switch records.

mod switches;

use crate::contradictions::Contradictions;
use crate::conversion::Conversion;
use crate::files::{loaded, Files};
use crate::identity::{has_other, is, is_other};
use crate::ids::Impossible;
use crate::json::{parse, Node};
use crate::on_core::Sign;
use crate::spaces::{Content, Mapping, Spaces, KERNEL};
use crate::timeline::attach;
use crate::unpacked::Contents;
use crate::{Bytes, Capture, CaptureError, Kind, Of, Options, Stream, Switch};
use pt_image::Binary;
use pt_packet::find_psb;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use switches::Switches;

/// Where the kernel is loaded when the bundle does not say.
const KERNEL_BASE: u64 = 0xffff_ffff_8100_0000;
const PIDS: u64 = 1 << 32;

/// Whether the text is a bundle's description: an object that names its type.
pub fn describes(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

struct Bundle<'p> {
    folder: &'p Path,
    files: Files,
    spaces: Spaces,
    capture: Capture,
    /// What was read: several threads may name one file.
    contents: Contents,
    /// Files outside of the folder that were read, as the bundle names them.
    outside: BTreeSet<String>,
    /// What records of switches say, by core and time, and those that are left out.
    signs: Vec<(u32, u64, Sign)>,
    impossible: Impossible,
    /// Records of some who ran are not there.
    incomplete: bool,
    /// Why files of threads and cores cannot be used.
    refusals: Vec<CaptureError>,
}

pub fn read(path: &Path, text: &[u8], options: &Options) -> Result<Capture, CaptureError> {
    let value = parse(path, text)?;
    let root = Node::root(path, &value);
    // LLDB up to 14 told what it is in an object of its own, and called the vendor and the traces otherwise.
    let trace = root.find("trace")?.unwrap_or_else(|| root.clone());
    let kind = trace.get("type")?;
    if kind.text()? != "intel-pt" {
        return Err(kind.error(format!("only traces of type intel-pt can be read, not {}", kind.text()?)));
    }
    let mut bundle = Bundle {
        folder: path.parent().unwrap_or(Path::new("")),
        files: Files::new(&options.symbols),
        spaces: Spaces::default(),
        capture: Capture::new(Kind::Lldb),
        contents: Contents::default(),
        outside: BTreeSet::new(),
        signs: Vec::new(),
        impossible: Impossible::default(),
        incomplete: false,
        refusals: Vec::new(),
    };
    bundle.capture.cpu = cpu(&trace.get("cpuInfo")?)?;
    for process in root.elements("processes")? {
        bundle.process(&process)?;
    }
    let kernel = root.find("kernel")?;
    if let Some(kernel) = &kernel {
        bundle.kernel(kernel)?;
    }
    let cpus = root.elements("cpus")?;
    if let Some(told) = root.find("tscPerfZeroConversion")? {
        bundle.capture.conversion = Some(conversion(&told)?);
    }
    if !cpus.is_empty() {
        let conversion = conversion(&root.get("tscPerfZeroConversion")?)?;
        for cpu in cpus {
            bundle.core(&cpu, conversion)?;
        }
    } else if kernel.is_some() {
        return Err(root.error("a kernel's trace is per core: it has no `cpus`"));
    }
    let Bundle { mut capture, spaces, outside, signs, impossible, incomplete, refusals, .. } = bundle;
    if capture.streams.is_empty() {
        let none_named = || root.error("neither `cpus` nor any thread names a trace (`iptTrace`)");
        return Err(refusals.into_iter().next().unwrap_or_else(none_named));
    }
    capture.warnings.extend(refusals.iter().map(|error| format!("{error}: these packets are left out")));
    let contradictions = Contradictions::of(signs.into_iter());
    capture.warnings.extend(impossible.warning().into_iter().chain(contradictions.warning()));
    if let Some(first) = outside.first() {
        let count = outside.len();
        capture
            .warnings
            .push(format!("the bundle names files outside of its folder, which were read ({count}): {first}"));
    }
    let first = capture.streams.iter().find_map(|stream| stream.switches.first());
    capture.config.reference_tsc = first.map_or(0, |switch| switch.tsc);
    // Where records are missing, what looks like the idle thread may be anybody.
    attach(&mut capture, &spaces, kernel.is_none() && !incomplete, options);
    // Cores write around: what one wrote first may not be there.
    capture.stays = None;
    Ok(capture)
}

fn cpu(info: &Node) -> Result<Option<(u16, u8, u8)>, CaptureError> {
    let family = info.get("family")?.integer(1 << 16)? as u16;
    let (model, stepping) = (info.get("model")?.integer(256)? as u8, info.get("stepping")?.integer(256)? as u8);
    let vendor = info.get("vendor")?;
    Ok(matches!(vendor.text()?, "GenuineIntel" | "intel").then_some((family, model, stepping)))
}

fn conversion(node: &Node) -> Result<Conversion, CaptureError> {
    let (mult, shift, zero) = (node.get("timeMult")?, node.get("timeShift")?, node.get("timeZero")?);
    let found = Conversion::new(mult.address()?, shift.address()?, zero.address()?);
    found.ok_or_else(|| node.error("timeMult must be 1 to 2^32 - 1, timeShift below 64"))
}

impl Bundle<'_> {
    /// The file that a node names: within the bundle's folder, or elsewhere, as LLDB allows it.
    fn file(&mut self, named: &Node) -> Result<PathBuf, CaptureError> {
        let path = self.folder.join(named.text()?);
        let path = self.inside(&path).unwrap_or(path);
        if self.is_outside(&path) {
            self.outside.insert(named.text()?.to_owned());
        }
        Ok(path)
    }

    /// Where in the folder a file is that is named by its whole path: the kernel's, of which a copy is among the modules, and all
    /// files of LLDB up to 14, also of a folder that was moved since.
    fn inside(&self, named: &Path) -> Option<PathBuf> {
        let whole = named.strip_prefix("/").ok()?;
        let copy = self.folder.join("modules").join(whole);
        if copy.is_file() || named.exists() {
            return Some(copy).filter(|copy| copy.is_file());
        }
        let mut parts = whole.components();
        let ends = std::iter::from_fn(|| parts.next().map(|_| parts.as_path()));
        ends.map(|end| self.folder.join(end)).find(|path| path.is_file())
    }

    /// What that file holds; `None` where it cannot be read: other threads and cores still can.
    fn content(&mut self, named: &Node, path: &Path) -> Result<Option<Bytes>, CaptureError> {
        let refusal = match self.contents.read(path) {
            Ok(content) => return Ok(Some(content)),
            Err(CaptureError::Unreadable { path, error }) if error.kind() == ErrorKind::NotFound => {
                named.error(format!("{}: {error}", path.display()))
            }
            Err(error) if error.is_of_content() => error,
            Err(error) => return Err(error),
        };
        self.refusals.push(refusal);
        Ok(None)
    }

    /// Also by way of a link. What is not there is nowhere.
    fn is_outside(&self, path: &Path) -> bool {
        let folder = if self.folder == Path::new("") { Path::new(".") } else { self.folder };
        folder.canonicalize().is_ok_and(|folder| path.canonicalize().is_ok_and(|path| !path.starts_with(folder)))
    }

    fn process(&mut self, process: &Node) -> Result<(), CaptureError> {
        let pid = process.get("pid")?.integer(PIDS)? as u32;
        for module in process.elements("modules")? {
            self.module(pid, &module)?;
        }
        for thread in process.elements("threads")? {
            let tid = thread.get("tid")?.integer(PIDS)? as u32;
            let Some(trace) = thread.find("iptTrace")?.or(self.saved(&thread)?) else { continue };
            self.stream(&trace, format!("thread {tid}"), Of::Thread { pid, tid }, Vec::new())?;
        }
        Ok(())
    }

    /// What LLDB up to 14 called the trace of a thread: it named that of each, and wrote those that there were.
    fn saved<'j>(&mut self, thread: &Node<'j>) -> Result<Option<Node<'j>>, CaptureError> {
        let Some(trace) = thread.find("traceFile")? else { return Ok(None) };
        let there = self.file(&trace)?.exists();
        if !there {
            self.capture.warnings.push(format!("{} is not there: its thread was not traced", trace.text()?));
        }
        Ok(Some(trace).filter(|_| there))
    }

    fn stream(&mut self, trace: &Node, name: String, of: Of, switches: Vec<Switch>) -> Result<(), CaptureError> {
        let path = self.file(trace)?;
        let Some(data) = self.content(trace, &path)? else { return Ok(()) };
        // A bundle that someone else made might name any file.
        if self.is_outside(&path) && find_psb(&data, 0).is_none() {
            return Err(trace.error("the file is outside of the bundle's folder, and holds no Processor Trace packets"));
        }
        let ran = matches!(of, Of::Thread { .. }) || switches.iter().any(|switch| self.spaces.knows(switch.pid));
        if data.is_empty() && ran {
            self.capture.warnings.push(trace.error(format!("{} is empty", path.display())).to_string());
        }
        self.capture.streams.push(Stream { switches, ..Stream::new(name, data, of) });
        Ok(())
    }

    fn module(&mut self, pid: u32, module: &Node) -> Result<(), CaptureError> {
        let name = module.get("systemPath")?.text()?;
        let base = module.get("loadAddress")?.address()?;
        let id = match module.find("uuid")? {
            Some(id) => id.text()?.replace('-', "").to_ascii_lowercase(),
            None => String::new(),
        };
        let file = match module.find("file")? {
            // One that is gone may be where other binaries are looked for.
            Some(file) => Some(self.file(&file)?).filter(|path| path.exists()),
            None => None,
        };
        let binary = match &file {
            // Where a file is named it is meant, whatever its id.
            Some(path) => self.files.open(path).inspect(|binary| {
                if is_other(binary, &id) {
                    self.capture.warnings.push(format!("{name}: uuid {id} is wanted, {}", has_other(binary, &id)));
                }
            }),
            None => self.beside(name, &id).map_or_else(|| self.files.find(name, &id), Ok),
        };
        let parts = binary.and_then(|binary| Ok((parts(&binary, base)?, binary)));
        let (parts, binary) = match parts {
            Ok(found) => found,
            Err(why) => {
                self.capture.warnings.push(match file {
                    Some(_) => module.error(why).to_string(),
                    None => format!("{name} at {base:#x}: {why}"),
                });
                return Ok(());
            }
        };
        let end = binary.code(0).len() as u64;
        for Part { address, size, offset } in parts {
            let there = size.min(end.saturating_sub(offset));
            if there > 0 {
                let content = Content::File { binary: Arc::clone(&binary), offset };
                self.spaces.map(pid, 0, Mapping { address, size: there, name: name.to_owned(), content });
            }
            if there < size {
                let reason =
                    format!("{} is cut off: of its code {there} of {size} bytes are there", binary.path().display());
                self.capture.warnings.push(module.error(&reason).to_string());
                let content = Content::Missing { reason };
                let (address, size) = (address.wrapping_add(there), size - there);
                self.spaces.map(pid, 0, Mapping { address, size, name: name.to_owned(), content });
            }
        }
        Ok(())
    }

    /// The module of a relative path that stands in the bundle's folder itself, as LLDB looks for those that name no file.
    fn beside(&mut self, name: &str, id: &str) -> Option<Arc<Binary>> {
        let path = Some(self.folder.join(name)).filter(|path| Path::new(name).is_relative() && path.is_file())?;
        let binary = if self.is_outside(&path) { None } else { self.files.open(&path).ok() };
        binary.filter(|binary| id.is_empty() || is(binary, id))
    }

    fn kernel(&mut self, kernel: &Node) -> Result<(), CaptureError> {
        let file = kernel.get("file")?;
        let base = match kernel.find("loadAddress")? {
            Some(address) => address.address()?,
            None => KERNEL_BASE,
        };
        let path = self.file(&file)?;
        let binary = self.files.open(&path).map_err(|error| file.error(error))?;
        for Part { address, size, offset } in parts(&binary, base).map_err(|error| file.error(error))? {
            let content = Content::File { binary: Arc::clone(&binary), offset };
            self.spaces.map(KERNEL, 0, Mapping { address, size, name: "[kernel]".to_owned(), content });
        }
        Ok(())
    }

    fn core(&mut self, cpu: &Node, conversion: Conversion) -> Result<(), CaptureError> {
        let id = cpu.get("id")?.integer(PIDS)? as u32;
        let named = cpu.get("contextSwitchTrace")?;
        let records = self.file(&named)?;
        let Some(content) = self.content(&named, &records)? else { return Ok(()) };
        let told = match Switches::read(&records, &content, conversion, id, &mut self.impossible) {
            Ok(told) => told,
            // What stands in it is not told of a file that someone else's bundle might name.
            Err(_) if self.is_outside(&records) => {
                return Err(named.error("the file is outside of the bundle's folder, and holds no records of perf"));
            }
            Err(error) => {
                self.refusals.push(error);
                return Ok(());
            }
        };
        if told.signs.is_empty() && !self.spaces.knows(KERNEL) {
            let what =
                format!("{} tells of no switch: nobody knows whose the packets of core {id} are", records.display());
            self.capture.warnings.push(named.error(what).to_string());
        }
        self.capture.warnings.extend(told.warning(id));
        self.incomplete |= told.incomplete;
        self.signs.extend(told.signs.into_iter().map(|(tsc, sign)| (id, tsc, sign)));
        self.stream(&cpu.get("iptTrace")?, format!("core {id}"), Of::Core(id), told.on_core.switches().1)
    }
}

struct Part {
    address: u64,
    size: u64,
    offset: u64,
}

/// The parts of a file that is loaded so that the first of its program headers is at `base`, as LLDB means it
/// (ObjectFileELF::GetBaseAddress). That of the kernel's processor data, at 0, is another.
fn parts(binary: &Binary, base: u64) -> Result<Vec<Part>, String> {
    let parts = loaded(binary.code(0))?;
    let first = parts.first().ok_or("no part of the file is loaded")?.address;
    Ok(parts
        .iter()
        .filter(|part| part.executable && part.size > 0)
        .map(|part| Part {
            address: part.address.wrapping_sub(first).wrapping_add(base),
            size: part.size,
            offset: part.offset,
        })
        .collect())
}

#[cfg(test)]
mod tests;

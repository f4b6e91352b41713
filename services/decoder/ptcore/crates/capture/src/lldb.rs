//! Trace bundles of LLDB (`trace.json`): threads or cores, modules, switch records.

use crate::conversion::Conversion;
use crate::fields::Fields;
use crate::files::{loaded, Files};
use crate::json::Node;
use crate::on_core::{OnCore, Sign};
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
}

pub fn read(path: &Path, text: &[u8], options: &Options) -> Result<Capture, CaptureError> {
    let value = serde_json::from_slice(text).map_err(|error| CaptureError::Json {
        path: path.to_owned(),
        place: format!("line {} column {}", error.line(), error.column()),
        what: error.to_string(),
    })?;
    let root = Node::root(path, &value);
    let kind = root.get("type")?;
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
    };
    bundle.capture.cpu = cpu(&root.get("cpuInfo")?)?;
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
    if bundle.capture.streams.is_empty() {
        return Err(root.error("neither `cpus` nor any thread names a trace (`iptTrace`)"));
    }
    let Bundle { mut capture, spaces, outside, .. } = bundle;
    if let Some(first) = outside.first() {
        let count = outside.len();
        capture
            .warnings
            .push(format!("the bundle names files outside of its folder, which were read ({count}): {first}"));
    }
    let first = capture.streams.iter().find_map(|stream| stream.switches.first());
    capture.config.reference_tsc = first.map_or(0, |switch| switch.tsc);
    attach(&mut capture, &spaces, kernel.is_none(), options);
    // Cores write around: what one wrote first may not be there.
    capture.stays = None;
    Ok(capture)
}

fn cpu(info: &Node) -> Result<Option<(u16, u8, u8)>, CaptureError> {
    let family = info.get("family")?.integer(1 << 16)? as u16;
    let (model, stepping) = (info.get("model")?.integer(256)? as u8, info.get("stepping")?.integer(256)? as u8);
    let vendor = info.get("vendor")?;
    Ok((vendor.text()? == "GenuineIntel").then_some((family, model, stepping)))
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
        if self.is_outside(&path) {
            self.outside.insert(named.text()?.to_owned());
        }
        Ok(path)
    }

    /// What that file holds.
    fn content(&mut self, named: &Node, path: &Path) -> Result<Bytes, CaptureError> {
        self.contents.read(path).map_err(|error| match error {
            CaptureError::Unreadable { path, error } if error.kind() == ErrorKind::NotFound => {
                named.error(format!("{}: {error}", path.display()))
            }
            error => error,
        })
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
            let Some(trace) = thread.find("iptTrace")? else { continue };
            self.stream(&trace, format!("thread {tid}"), Of::Thread { pid, tid }, Vec::new())?;
        }
        Ok(())
    }

    fn stream(&mut self, trace: &Node, name: String, of: Of, switches: Vec<Switch>) -> Result<(), CaptureError> {
        let path = self.file(trace)?;
        let data = self.content(trace, &path)?;
        // A bundle that someone else made might name any file.
        if self.is_outside(&path) && find_psb(&data, 0).is_none() {
            return Err(trace.error("the file is outside of the bundle's folder, and holds no Processor Trace packets"));
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
                if !id.is_empty() && !binary.build_id().is_empty() && binary.build_id() != id {
                    let warning = format!("{name}: uuid {id} is wanted, {} has {}", path.display(), binary.build_id());
                    self.capture.warnings.push(warning);
                }
            }),
            None => self.files.find(name, &id),
        };
        let parts = binary.and_then(|binary| Ok((parts(&binary, base)?, binary)));
        let (parts, binary) = match parts {
            Ok(found) => found,
            Err(why) if file.is_some() => return Err(module.error(why)),
            Err(why) => {
                self.capture.warnings.push(format!("{name} at {base:#x}: {why}"));
                return Ok(());
            }
        };
        for Part { address, size, offset } in parts {
            let content = Content::File { binary: Arc::clone(&binary), offset };
            self.spaces.map(pid, 0, Mapping { address, size, name: name.to_owned(), content });
        }
        Ok(())
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
        let switches = switches(&records, &self.content(&named, &records)?, conversion).map_err(|error| {
            // What stands in it is not told of a file that someone else's bundle might name.
            let other = || named.error("the file is outside of the bundle's folder, and holds no records of perf");
            if self.is_outside(&records) {
                other()
            } else {
                error
            }
        })?;
        self.stream(&cpu.get("iptTrace")?, format!("core {id}"), Of::Core(id), switches)
    }
}

struct Part {
    address: u64,
    size: u64,
    offset: u64,
}

/// The parts of a file that is loaded so that its lowest part begins at `base`.
fn parts(binary: &Binary, base: u64) -> Result<Vec<Part>, String> {
    let bytes = binary.code(0);
    let parts = loaded(bytes)?;
    let lowest = parts.first().ok_or("no part of the file is loaded")?.address;
    Ok(parts
        .iter()
        .filter(|part| part.executable && part.size > 0)
        .map(|part| Part {
            address: part.address.wrapping_sub(lowest).wrapping_add(base),
            size: part.size.min((bytes.len() as u64).saturating_sub(part.offset)),
            offset: part.offset,
        })
        .filter(|part| part.size > 0)
        .collect())
}

const RECORD_SWITCH_CPU_WIDE: u32 = 15;
const MISC_SWITCH_OUT: u16 = 1 << 13;

/// PERF_RECORD_SWITCH_CPU_WIDE records whose sample id is {pid, tid, time} (perf_event_open(2)).
fn switches(path: &Path, data: &[u8], conversion: Conversion) -> Result<Vec<Switch>, CaptureError> {
    let mut fields = Fields::new(data, 0);
    let (mut core, mut last) = (OnCore::default(), 0);
    while fields.left() > 0 {
        let start = fields.at();
        let damaged = |what: String| CaptureError::damaged(path, start, what);
        let short = |short: crate::fields::Short| CaptureError::damaged(path, short.at, short.to_string());
        let (kind, misc, size) =
            (fields.u32().map_err(short)?, fields.u16().map_err(short)?, fields.u16().map_err(short)?);
        let Some(body) = size.checked_sub(8) else {
            return Err(damaged(format!("a record of kind {kind} says its size is {size}; its head alone has 8")));
        };
        let body = fields.bytes(body.into()).map_err(short)?;
        if kind != RECORD_SWITCH_CPU_WIDE {
            continue;
        }
        let mut body = Fields::new(body, 8);
        let record = (|| Ok((body.u32()?, body.u32()?, body.u64()?)))();
        let (pid, tid, time) = record.map_err(|short: crate::fields::Short| damaged(short.to_string()))?;
        let tsc = conversion.ticks(time);
        if last > tsc {
            return Err(damaged(format!("the switch at TSC {tsc} comes after that at {last}")));
        }
        last = tsc;
        core.saw(tsc, Sign::of_switch((pid, tid), misc & MISC_SWITCH_OUT != 0));
    }
    Ok(core.switches().1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_leads_to_no_file_that_holds_something_else_and_lacks_what_is_gone() {
        let home = std::env::temp_dir().join(format!("pt-capture-bundle-{}", std::process::id()));
        let folder = home.join("bundle");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(home.join("secret"), "root:$6$secret:1:0").unwrap();
        std::fs::write(home.join("packets"), pt_packet::PSB).unwrap();
        std::os::unix::fs::symlink(home.join("secret"), folder.join("linked")).unwrap();
        let gone = r#"{"file": "gone", "systemPath": "/gone/program", "loadAddress": 4096}"#;
        let opened = |cores: &str, trace: &str| {
            let text = format!(
                r#"{{"type": "intel-pt", "cpuInfo": {{"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4}},
                "tscPerfZeroConversion": {{"timeMult": 1, "timeShift": 0, "timeZero": "0"}}, "cpus": [{cores}],
                "processes": [{{"pid": 1, "modules": [{gone}], "threads": [{{"tid": 1, "iptTrace": "{trace}"}}]}}]}}"#
            );
            read(&folder.join("trace.json"), text.as_bytes(), &Options::default())
        };
        let secret = home.join("secret");
        for named in ["../secret", "linked", secret.to_str().unwrap()] {
            let refused = opened("", named).map(drop).unwrap_err().to_string();
            assert!(
                refused.ends_with("is outside of the bundle's folder, and holds no Processor Trace packets"),
                "{refused}"
            );
            let core = format!(r#"{{"id": 0, "contextSwitchTrace": "{named}", "iptTrace": "../packets"}}"#);
            let refused = opened(&core, "../packets").map(drop).unwrap_err().to_string();
            assert!(refused.ends_with("is outside of the bundle's folder, and holds no records of perf"), "{refused}");
        }
        let missing = opened("", "gone").map(drop).unwrap_err().to_string();
        assert!(
            missing.contains("trace.json: processes[0].threads[0].iptTrace: ") && missing.contains("gone: No such")
        );
        let capture = opened("", "../packets").unwrap();
        let told = "the bundle names files outside of its folder, which were read (1): ../packets";
        let missing = "/gone/program at 0x1000: the file is not there";
        assert_eq!(capture.warnings, [missing, told]);
        std::fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_thread_that_has_ended_leaves_without_a_name() {
        let record = |out: bool, pid: i32, tid: i32, time: u64| {
            let misc = if out { MISC_SWITCH_OUT } else { 0 };
            let who = [0, 0, pid, tid].map(i32::to_le_bytes).concat();
            [&RECORD_SWITCH_CPU_WIDE.to_le_bytes()[..], &misc.to_le_bytes(), &[32, 0], &who, &time.to_le_bytes()]
                .concat()
        };
        let records = [record(false, 7, 9, 10), record(true, -1, -1, 20), record(false, -1, -1, 30)].concat();
        let switches = switches(Path::new("45"), &records, Conversion { mult: 1, shift: 0, zero: 0 }).unwrap();
        let told: Vec<_> = switches.iter().map(|one| (one.tsc, one.pid, one.tid, one.enters)).collect();
        assert_eq!(told, [(10, 7, 9, true), (20, 7, 9, false), (30, 0, 0, true)]);
    }
}

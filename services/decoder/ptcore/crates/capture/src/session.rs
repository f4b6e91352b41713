//! A session of permille as its archive holds it (docs/design/0002): the folder of one session in an object store of
//! files, with the binaries beside it.

mod binaries;
mod digest;
mod generated;
mod missing;
mod packet_options;
mod who_ran;

use crate::jit::{Generated, Timeline, What};
use crate::json::{parse, Node};
use crate::unpacked::Contents;
use crate::{
    divide, Bytes, Capture, CaptureError, Divided, Epochs, Kind, Of, Options, Stream, SwitchRecords, View, KERNEL,
};
use binaries::Binaries;
use missing::lost_offsets;
use packet_options::config;
use pt_image::{Binary, Image, ImageError, Search, MAX_EPOCH};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use who_ran::{by_switches, by_turns, epochs};

const VERSION: u64 = 1;
const PIDS: u64 = 1 << 32;

/// Whether the text is a session's manifest.
pub fn describes(text: &[u8]) -> bool {
    let says = |name: &[u8]| text.windows(name.len()).take(1 << 16).any(|window| window == name);
    text.starts_with(b"{") && says(b"\"session_id\"") && says(b"\"backend\"")
}

struct Archive {
    /// The folder of the session, and the root of the store, to which keys are relative.
    folder: PathBuf,
    root: PathBuf,
    binaries: Binaries,
    /// Those that stand in the code file, by offset and size.
    inside: HashMap<(u64, u64), Result<Arc<Binary>, String>>,
    /// What was read: several segments may name one object.
    contents: Contents,
    warnings: Vec<String>,
    /// Why segments cannot be used.
    refusals: Vec<CaptureError>,
    /// What processes told of the code that they wrote, by pid.
    generated: HashMap<u32, Generated>,
    /// Cores were recorded: times tell which change holds from where on.
    by_time: bool,
}

pub fn read(path: &Path, text: &[u8], options: &Options) -> Result<Capture, CaptureError> {
    let value = parse(path, text)?;
    let manifest = Node::root(path, &value);
    let version = manifest.get("version")?;
    if version.address()? != VERSION {
        return Err(version.error(format!("version {} is not known, {VERSION} is", version.address()?)));
    }
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let root = folder.join("..").join("..");
    let (inside, contents, generated) = (HashMap::new(), Contents::default(), HashMap::new());
    let binaries = Binaries::new(&options.symbols);
    let (warnings, refusals, by_time) = (Vec::new(), Vec::new(), false);
    let mut archive = Archive { folder, root, binaries, inside, contents, warnings, refusals, generated, by_time };
    let mut capture = Capture::new(Kind::Session);
    let pt = manifest.get("pt")?;
    let number = |name: &str, below: u64| pt.get(name)?.integer(below);
    capture.cpu =
        Some((number("family", 1 << 16)? as u16, number("model", 256)? as u8, number("stepping", 256)? as u8));
    capture.config = config(&pt)?;
    if let Some(clock) = manifest.find("clock")? {
        capture.config.reference_tsc = clock.get("tsc0")?.address()?;
    }

    let kinds: Result<Vec<_>, _> = manifest.elements("segments")?.iter().map(kind_of).collect();
    archive.by_time = kinds?.contains(&"core");
    let (generated, missing) = generated::read(&manifest, |entry| archive.file(entry))?;
    (archive.generated, archive.warnings) = (generated, missing);
    let code = archive.needed(&manifest.get("code")?)?;
    let maps = archive.path(&manifest.get("maps")?.get("key")?)?;
    let text = archive.needed(&manifest.get("maps")?)?;
    let value = parse(&maps, &text)?;
    let (mut images, mut changes) = (HashMap::new(), Epochs::new());
    for process in Node::root(&maps, &value).elements("processes")? {
        let pid = process.get("pid")?.integer(PIDS)? as u32;
        let (image, epochs) = archive.image(pid, &process, &code)?;
        capture.images.push(image);
        images.insert(pid, capture.images.len() - 1);
        changes.insert(pid, epochs);
    }
    capture.images.push(Image::new());
    let nobody = capture.images.len() - 1;
    capture.kernel = images.get(&KERNEL).copied();
    // What several threads left on one core is one object.
    let (mut known, mut overwritten) = (HashSet::new(), false);
    let backend = manifest.find("backend")?.map_or(Ok(""), |backend| backend.text())?;
    // Of other imports a core's stream may be in pieces, or have overwritten what the records tell of.
    let told = if backend.starts_with("imported:") { says(&manifest, "follows_threads")? } else { archive.by_time };
    let switches = if told { Some(archive.switches(&manifest)?) } else { None };
    let mut lost = lost_offsets(&manifest)?;
    for segment in manifest.elements("segments")? {
        if let Some(name) = segment.find("thread_name")? {
            let [pid, tid] = [segment.get("pid")?.integer(PIDS)? as u32, segment.get("tid")?.integer(PIDS)? as u32];
            capture.names.insert((pid, tid), name.text()?.to_owned());
        }
        let key = segment.get("key")?.text()?;
        if !known.insert(key) {
            continue;
        }
        let turns = segment.elements("turns")?;
        if !turns.is_empty() {
            let data = archive.packets(&segment)?;
            let mut stream = by_turns(&segment, &turns, data, &images, nobody, &mut capture.views)?;
            stream.lost = lost.remove(key).unwrap_or_default();
            if let (Of::Core(core), Some((_, records))) = (stream.of, &switches) {
                stream.switches = records.of(core);
            }
            capture.streams.push(stream);
            continue;
        }
        if let ("core", Some((_, records))) = (kind_of(&segment)?, &switches) {
            let core = segment.get("core")?.integer(PIDS)? as u32;
            let data = archive.packets(&segment)?;
            let divided = divide(&data, &capture.config, records, core, &changes);
            let (total, doubts) = (divided.total, doubts(&divided));
            let told = |(count, what)| format!("core {core}: {count} of {total} changes of thread or mappings: {what}");
            archive.warnings.extend(doubts.map(told));
            overwritten |= says(&segment, "overwritten")?;
            let mut lost = lost.remove(key).unwrap_or_default();
            lost.extend(says(&segment, "full")?.then_some(data.len()));
            let (name, of) = (format!("core {core}"), Of::Core(core));
            let stream = Stream { image: nobody, lost, switches: records.of(core), ..Stream::new(name, data, of) };
            capture.streams.push(by_switches(stream, divided, &images, &mut capture.views));
            continue;
        }
        let (pid, tid) = (segment.get("pid")?.integer(PIDS)? as u32, segment.get("tid")?.integer(PIDS)? as u32);
        let image = images.get(&pid).copied().unwrap_or(nobody);
        let data = archive.packets(&segment)?;
        let mut stream = Stream::new(format!("thread {tid}"), data, Of::Thread { pid, tid });
        (stream.image, stream.lost) = (image, lost.remove(key).unwrap_or_default());
        stream.epochs = epochs(&segment, View { pid, tid, image, epoch: 0, kernel: 0, stay: 0 }, &mut capture.views)?;
        let lost = segment.find("lost_bytes")?.map_or(Ok(0), |lost| lost.address())?;
        if lost > 0 {
            archive.warnings.push(format!("thread {tid}: {lost} bytes found no room in its buffer"));
        }
        capture.streams.push(stream);
    }
    let switches = switches.filter(|(dropped, _)| *dropped == 0 && !overwritten);
    capture.stays = switches.map(|(_, records)| records.stays());
    for thread in manifest.elements("threads")? {
        let (tid, name) = (thread.get("tid")?.integer(PIDS)? as u32, thread.get("name")?.text()?);
        // Once recorders did not tell the process: whoever had the number is called so.
        let pids: BTreeSet<u32> = match thread.find("pid")? {
            Some(pid) => [pid.integer(PIDS)? as u32].into(),
            None => capture.views.iter().filter(|view| view.tid == tid).map(|view| view.pid).collect(),
        };
        capture.names.extend(pids.into_iter().map(|pid| ((pid, tid), name.to_owned())));
    }
    if !archive.refusals.is_empty() && capture.streams.iter().all(|stream| stream.data.is_empty()) {
        return Err(archive.refusals.swap_remove(0));
    }
    for note in manifest.elements("notes")? {
        capture.warnings.push(note.text()?.to_owned());
    }
    let noted: HashSet<_> = capture.warnings.iter().cloned().collect();
    capture.warnings.extend(archive.warnings.into_iter().filter(|warning| !noted.contains(warning)));
    capture.warnings.extend(archive.refusals.iter().map(|error| format!("{error}: its packets are left out")));
    Ok(capture)
}

fn kind_of<'j>(segment: &Node<'j>) -> Result<&'j str, CaptureError> {
    segment.find("kind")?.map_or(Ok(""), |kind| kind.text())
}

fn says(node: &Node, what: &str) -> Result<bool, CaptureError> {
    node.find(what)?.map_or(Ok(false), |is| is.truth())
}

fn epoch(change: &Node) -> Result<u32, CaptureError> {
    Ok(change.get("epoch")?.integer(u64::from(MAX_EPOCH) + 1)? as u32)
}

/// From which TSC on which epoch of a process's image holds; those that hold from the beginning are left out.
fn times_of_epochs(process: &Node) -> Result<Vec<(u64, u32)>, CaptureError> {
    let mut times = Vec::new();
    for change in process.elements("changes")? {
        let tsc = change.find("tsc")?.map_or(Ok(0), |node| node.address())?;
        if tsc > 0 {
            times.push((tsc, epoch(&change)?));
        }
    }
    times.sort_unstable();
    times.dedup();
    Ok(times)
}

/// How many of its turns may be elsewhere, and why.
fn doubts(divided: &Divided) -> impl Iterator<Item = (usize, &'static str)> + use<> {
    let counts = [(divided.ambiguous, "several places fit"), (divided.coarse, "only clock packets tell")];
    counts.into_iter().filter(|&(count, _)| count > 0)
}

/// So many bytes of the code file from where the change says.
fn inside(change: &Node, code: &Bytes, size: u64) -> Result<Bytes, CaptureError> {
    let from = change.find("code_offset")?.map_or(Ok(0), |node| node.address())?;
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let bytes = code.part(from..from.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)));
    if bytes.len() as u64 != size {
        let there = code.len();
        return Err(change.error(format!("{size} bytes from {from} of the code file, which has {there}")));
    }
    Ok(bytes)
}

impl Archive {
    /// The path of an object. A session that was copied alone has its objects in its own folder.
    fn path(&self, key: &Node) -> Result<PathBuf, CaptureError> {
        let path = Path::new(key.text()?);
        if path.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(key.error(format!("{} is no key of an object", path.display())));
        }
        let own = self.folder.join(path.components().skip(2).collect::<PathBuf>());
        Ok(if path.starts_with("raw") && own.is_file() { own } else { self.root.join(path) })
    }

    /// How many switch records found no room, and the others.
    fn switches(&mut self, manifest: &Node) -> Result<(u64, SwitchRecords), CaptureError> {
        let switches = manifest.get("switches")?;
        let dropped = switches.find("dropped")?.map_or(Ok(0), |dropped| dropped.address())?;
        let records = SwitchRecords::read(&self.needed(&switches)?);
        self.warnings.extend(records.warnings());
        Ok((dropped, records))
    }

    /// The content of an entry's object, as it was recorded.
    fn file(&mut self, entry: &Node) -> Result<Bytes, CaptureError> {
        let path = self.path(&entry.get("key")?)?;
        let bytes = self.contents.read(&path)?;
        digest::require(entry, &path, &bytes)?;
        Ok(bytes)
    }

    /// That of one that all streams need: with a warning where it is not as it was recorded.
    fn needed(&mut self, entry: &Node) -> Result<Bytes, CaptureError> {
        let path = self.path(&entry.get("key")?)?;
        let bytes = self.contents.read(&path)?;
        if let Err(error) = digest::require(entry, &path, &bytes) {
            self.warnings.push(format!("{error}: what it tells may be wrong"));
        }
        Ok(bytes)
    }

    /// Those of the segment. One that cannot be used has none: the others still can.
    fn packets(&mut self, segment: &Node) -> Result<Bytes, CaptureError> {
        match self.file(segment) {
            Err(error) if error.is_of_content() => {
                self.refusals.push(error);
                Ok(Vec::new().into())
            }
            read => read,
        }
    }

    /// All changes of a process, in the order of their epochs, and from which TSC on which of them holds.
    fn image(&mut self, pid: u32, process: &Node, code: &Bytes) -> Result<(Image, Vec<(u64, u32)>), CaptureError> {
        let mut changes = Vec::new();
        for change in process.elements("changes")? {
            changes.push((epoch(&change)?, change));
        }
        changes.sort_by_key(|&(epoch, _)| epoch);
        let mut image = Image::new();
        let Some(generated) = self.generated.remove(&pid) else {
            for (epoch, change) in changes {
                let changed = self.change(&mut image, epoch, &change, code, None)?;
                changed.map_err(|error| change.error(error.to_string()))?;
            }
            return Ok((image, times_of_epochs(process)?));
        };
        let told: Result<Vec<_>, _> = changes.iter().map(|(epoch, change)| generated::told(*epoch, change)).collect();
        let stood = |number: usize| {
            let change: &Node = &changes.get(number)?.1;
            if change.get("event").ok()?.text().ok()? != "code" {
                return None;
            }
            inside(change, code, change.get("size_bytes").ok()?.address().ok()?).ok()
        };
        let Timeline { steps, epochs } =
            if self.by_time { generated.by_time(&told?, stood) } else { generated.by_epochs(&told?) };
        generated.name(&mut image);
        for (epoch, what) in steps {
            match what {
                What::Change { number, address, size } => {
                    let change = &changes[number].1;
                    let changed = self.change(&mut image, epoch, change, code, Some((address, size)))?;
                    changed.map_err(|error| change.error(error.to_string()))?;
                }
                What::Load { number } => {
                    // What cannot be there is no function.
                    let _ = generated.load(&mut image, epoch, number, !self.by_time);
                }
            }
        }
        Ok((image, epochs))
    }

    fn change(
        &mut self,
        image: &mut Image,
        epoch: u32,
        change: &Node,
        code: &Bytes,
        part: Option<(u64, u64)>,
    ) -> Result<Result<(), ImageError>, CaptureError> {
        let (begin, whole) = (change.get("address")?.address()?, change.get("size_bytes")?.address()?);
        let (address, size) = part.unwrap_or((begin, whole));
        let skipped = address - begin;
        let number = |name: &str| change.find(name)?.map_or(Ok(0), |node| node.address());
        let offset = || Ok::<_, CaptureError>(number("offset")?.wrapping_add(skipped));
        let name = change.find("path")?.map_or(Ok(""), |node| node.text())?;
        Ok(match change.get("event")?.text()? {
            "unmap" => image.unmap(epoch, address, size),
            "code" => {
                let bytes = inside(change, code, whole)?;
                image.code(epoch, address, bytes[skipped as usize..][..size as usize].to_vec())
            }
            _ if number("code_size")? > 0 => {
                let bytes = inside(change, code, number("code_size")?)?;
                let place = (number("code_offset")?, number("code_size")?);
                let load = || Binary::of(Path::new(name), bytes.shared(), &Search::default());
                let load = || load().map(Arc::new).map_err(|error| error.to_string());
                match self.inside.entry(place).or_insert_with(load) {
                    Ok(binary) => image.map(epoch, address, size, offset()?, binary, name),
                    Err(reason) => image.missing(epoch, address, size, name, reason),
                }
            }
            _ => match self.binary(change)? {
                Some(Ok(binary)) => image.map(epoch, address, size, offset()?, &binary, name),
                Some(Err(reason)) => {
                    self.warnings.push(format!("{name}: {reason}"));
                    image.missing(epoch, address, size, name, &reason)
                }
                None => {
                    let told = change.find("missing")?.map_or(Ok(""), |reason| reason.text())?;
                    let reason = if told.is_empty() { "it was not recorded" } else { told };
                    image.missing(epoch, address, size, name, reason)
                }
            },
        })
    }

    fn binary(&mut self, change: &Node) -> Result<Option<Result<Arc<Binary>, String>>, CaptureError> {
        let Some(key) = change.find("binary")?.filter(|key| key.text().is_ok_and(|text| !text.is_empty())) else {
            return Ok(None);
        };
        let path = self.path(&key)?;
        let said = |name| change.find(name)?.map_or(Ok(""), |node| node.text());
        let (mapped, build_id) = (said("path")?, said("build_id")?);
        let loaded = self.binaries.find(key.text()?, &path, mapped, build_id, &mut self.warnings);
        Ok(Some(loaded))
    }
}

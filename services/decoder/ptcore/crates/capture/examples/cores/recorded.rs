//! What was recorded, wherever it is: in an archive of `kmod/qemu/archive.h`, or in an object store.

use pt_capture::{Capture, Of, Switch, SwitchRecords};
use pt_image::Image;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

pub type Files<'a> = HashMap<String, &'a [u8]>;

/// What is in a folder: `struct archived`, a name, a size, the bytes up to a multiple of 8.
pub fn unpack<'a>(archive: &'a [u8], folder: &str) -> Files<'a> {
    let (mut files, mut at) = (HashMap::new(), 0);
    loop {
        let name = archive[at..at + 56].split(|&byte| byte == 0).next().unwrap_or_default();
        if name.is_empty() {
            return files;
        }
        let size = u64::from_le_bytes(archive[at + 56..at + 64].try_into().expect("eight bytes")) as usize;
        let name = String::from_utf8_lossy(name);
        if let Some(name) = name.strip_prefix(folder).and_then(|name| name.strip_prefix('/')) {
            files.insert(name.to_owned(), &archive[at + 64..at + 64 + size]);
        }
        at += 64 + size.next_multiple_of(8);
    }
}

/// The code of each process, as it stood in its memory: files `code-PID-ADDRESS`. The kernel's is that of process 0.
pub fn images_of(files: &Files) -> BTreeMap<u32, Image> {
    let mut images: BTreeMap<u32, Image> = BTreeMap::new();
    for (name, bytes) in files {
        let Some((pid, address)) = name.strip_prefix("code-").and_then(|name| name.split_once('-')) else { continue };
        let address = u64::from_str_radix(address, 16).expect("an address");
        let image = images.entry(pid.parse().expect("a pid")).or_default();
        image.code(0, address, bytes.to_vec()).expect("code");
    }
    images
}

/// From which TSC on which epoch of a process's code holds, by process.
pub type Epochs = HashMap<u32, Vec<(u64, u32)>>;

/// The code of each process, and when another one was in its place.
pub struct Code<'a> {
    pub images: BTreeMap<u32, &'a Image>,
    pub epochs: Epochs,
}

/// What was recorded, wherever it is.
pub struct Recorded<'a> {
    pub cores: Vec<CoreRecorded<'a>>,
    pub code: Code<'a>,
    /// Of each core: what the module counted.
    pub session: String,
    /// Thread and thread pointer, one a line.
    pub pointers: String,
}

pub struct CoreRecorded<'a> {
    pub packets: &'a [u8],
    pub switches: Vec<Switch>,
    pub full: bool,
    /// A snapshot that has lost its beginning.
    pub overwritten: bool,
}

pub fn of_files<'a>(files: &Files<'a>, images: &'a BTreeMap<u32, Image>) -> Recorded<'a> {
    let session = String::from_utf8_lossy(files["session.txt"]).into_owned();
    let core = |(number, line): (usize, &str)| {
        let core = line.split(' ').nth(1).and_then(|core| core.parse().ok()).expect("a core");
        CoreRecorded {
            packets: files[&*format!("core-{number}.pt")],
            switches: SwitchRecords::read(files[&*format!("core-{number}.switches")]).of(core),
            full: line.ends_with("full 1"),
            overwritten: false,
        }
    };
    let cores = session.lines().enumerate().map(core).collect();
    let pointers = String::from_utf8_lossy(files["threads.txt"]).into_owned();
    let code = Code { images: images.iter().map(|(&pid, image)| (pid, image)).collect(), epochs: Epochs::new() };
    Recorded { cores, code, session, pointers }
}

/// A session as its controller stored it: whose code it is only the views of its streams say.
pub fn of_session<'a>(folder: &Path, capture: &'a Capture) -> Recorded<'a> {
    let manifest: serde_json::Value =
        serde_json::from_str(&text(folder, "manifest.json")).expect("the manifest is JSON");
    let records = SwitchRecords::read(&std::fs::read(folder.join("switches.bin")).expect("switches.bin"));
    let segments = manifest["segments"].as_array().expect("segments");
    let (mut cores, mut session) = (Vec::new(), String::new());
    for (stream, segment) in capture.streams.iter().zip(segments) {
        let Of::Core(core) = stream.of else { panic!("{} is not of a core", stream.name) };
        let full = segment["full"].as_bool().expect("full");
        let overwritten = segment["overwritten"].as_bool().unwrap_or_default();
        session += &format!("core {core} bytes {} full {}", stream.data.len(), u8::from(full));
        session += if overwritten { " overwritten 1" } else { "" };
        for (name, counter) in [("on", "operations_on"), ("off", "operations_off"), ("retargets", "retargets")] {
            // The kernel's own driver counts none of them.
            session +=
                &segment["counters"][counter].as_u64().map(|times| format!(" {name} {times}")).unwrap_or_default();
        }
        session.push('\n');
        cores.push(CoreRecorded { packets: &stream.data, switches: records.of(core), full, overwritten });
    }
    let images = capture.views.iter().map(|view| (view.pid, &capture.images[view.image])).collect();
    Recorded {
        cores,
        code: Code { images, epochs: epochs_of(folder) },
        session,
        pointers: text(folder, "pointers.txt"),
    }
}

fn epochs_of(folder: &Path) -> Epochs {
    let maps: serde_json::Value = serde_json::from_str(&text(folder, "maps.json")).expect("maps.json is JSON");
    let number = |value: &serde_json::Value, name: &str| value[name].as_u64().expect("a number");
    let process = |process: &serde_json::Value| {
        let changes = process["changes"].as_array().expect("changes").iter();
        let mut times: Vec<_> = changes.map(|one| (number(one, "tsc"), number(one, "epoch") as u32)).collect();
        // What came to a free place was always there.
        times.retain(|&(tsc, _)| tsc > 0);
        times.dedup();
        (number(process, "pid") as u32, times)
    };
    maps["processes"].as_array().expect("processes").iter().map(process).collect()
}

pub fn text(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

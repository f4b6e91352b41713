//! What was recorded, wherever it is: in an archive of `kmod/qemu/archive.h`, or in an object store.

use pt_capture::{divide, Capture, Epochs, Of, SwitchRecords, View};
use pt_flow::Config;
use pt_image::Image;
use std::collections::{BTreeMap, HashMap, HashSet};
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

/// What was recorded, wherever it is.
pub struct Recorded<'a> {
    pub cores: Vec<CoreRecorded<'a>>,
    pub config: Config,
    /// Of views by number.
    pub images: Vec<&'a Image>,
    pub processes: usize,
    pub with_kernel: bool,
    /// Of each core: what the module counted.
    pub session: String,
    /// Thread and thread pointer, one a line.
    pub pointers: String,
}

pub struct CoreRecorded<'a> {
    pub packets: &'a [u8],
    /// From which offset on who ran which code.
    pub turns: Vec<(usize, View)>,
    pub full: bool,
    /// A snapshot that has lost its beginning.
    pub overwritten: bool,
}

/// `images`: by pid.
pub fn of_files<'a>(files: &Files<'a>, images: &'a BTreeMap<u32, Image>) -> Recorded<'a> {
    let config = Config {
        mtc_freq: 3,
        tsc_ctc_ratio: (64, 1),
        nominal_ratio: 20,
        stop_at_last_packet: true,
        ..Config::default()
    };
    let session = String::from_utf8_lossy(files["session.txt"]).into_owned();
    let cores: Vec<_> = session.lines().enumerate().collect();
    let switches = |number: usize| files[&*format!("core-{number}.switches")];
    let records =
        SwitchRecords::read(&cores.iter().flat_map(|&(number, _)| switches(number)).copied().collect::<Vec<_>>());
    let core = |&(number, line): &(usize, &str)| {
        let core = line.split(' ').nth(1).and_then(|core| core.parse().ok()).expect("a core");
        let packets = files[&*format!("core-{number}.pt")];
        let image = |pid| images.keys().position(|known| *known == pid).unwrap_or(0);
        let turn = |(offset, view): (usize, View)| (offset, View { image: image(view.pid), ..view });
        let divided = divide(packets, &config, &records, core, &Epochs::new());
        let turns = divided.turns.into_iter().map(turn).collect();
        CoreRecorded { packets, turns, full: line.ends_with("full 1"), overwritten: false }
    };
    let cores = cores.iter().map(core).collect();
    let pointers = String::from_utf8_lossy(files["threads.txt"]).into_owned();
    let with_kernel = images.contains_key(&0);
    let processes = images.len() - usize::from(with_kernel);
    Recorded { cores, config, images: images.values().collect(), processes, with_kernel, session, pointers }
}

/// A session as its controller stored it.
pub fn of_session<'a>(folder: &Path, capture: &'a Capture) -> Recorded<'a> {
    let manifest: serde_json::Value =
        serde_json::from_str(&text(folder, "manifest.json")).expect("the manifest is JSON");
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
        let turn = |&(offset, number): &(usize, u32)| (offset, capture.views[number as usize]);
        let turns = stream.epochs.iter().map(turn).collect();
        cores.push(CoreRecorded { packets: &stream.data, turns, full, overwritten });
    }
    let processes = capture.views.iter().map(|view| view.pid).filter(|&pid| pid != 0).collect::<HashSet<_>>().len();
    let config = Config { stop_at_last_packet: true, ..capture.config };
    let (images, pointers) = (capture.images.iter().collect(), text(folder, "pointers.txt"));
    Recorded { cores, config, images, processes, with_kernel: capture.kernel.is_some(), session, pointers }
}

pub fn text(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

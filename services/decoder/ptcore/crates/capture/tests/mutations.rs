//! Damaged recordings: an error or a capture, nothing else.

use crate::support::{reference_data, Told};
use pt_capture::{open, Options};
use pt_flow::Flow;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How many damaged copies of each recording are opened, or threads made up: `PERMILLE_MUTATIONS`, or few.
pub fn rounds(usual: u64) -> u64 {
    std::env::var("PERMILLE_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % below.max(1)
    }
}

/// A few bytes changed, numbers made extreme, the end cut off, a part doubled.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(6) {
        // Heads and tables stand at the beginning.
        let reach = if random.below(2) == 0 { bytes.len().min(4096) } else { bytes.len() };
        let at = random.below(reach);
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
            3 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0),
            4 => bytes.iter_mut().skip(at & !7).skip(4).take(4).for_each(|byte| *byte = 0x7f),
            5 if bytes.len() > 64 && random.below(4) == 0 => bytes.truncate(at.max(16)),
            _ => {
                let end = (at + random.below(64)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
        }
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pt-capture-mutations-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn survive(path: &Path, options: &Options) {
    let Ok(capture) = open(path, options) else { return };
    let memory = capture.memory();
    let mut flow = Flow::new(&memory);
    for stream in &capture.streams {
        assert!(stream.epochs.iter().all(|&(_, view)| (view as usize) < capture.views.len()));
        assert!(stream.epochs.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let part = &stream.data[..stream.data.len().min(4096)];
        flow.decode(part, &capture.config, &stream.epochs, &mut Told::default());
    }
}

/// Opens damaged copies of `file`; everything else of its folder stays as it is.
fn mutate(name: &str, folder: &Path, file: &str, content: &[u8], options: &Options) {
    let work = Folder::new(name);
    for entry in std::fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), work.0.join(entry.file_name())).unwrap();
    }
    let target = work.0.join(file);
    let opened = if file.ends_with(".pevent") { work.0.join("pt.bin") } else { target.clone() };
    let mut random = Random(name.len() as u64);
    for _ in 0..rounds(150) {
        let mut bytes = content.to_vec();
        damage(&mut bytes, &mut random);
        let _ = std::fs::remove_file(&target);
        std::fs::write(&target, &bytes).unwrap();
        survive(&opened, options);
    }
}

#[test]
fn perf_data() {
    let Some(data) = reference_data() else { return };
    let folder = data.join("pt/perf");
    let content = std::fs::read(folder.join("perf.data.intel_pt-4.14")).unwrap();
    mutate("perf", &folder, "perf.data.intel_pt-4.14", &content, &Options::default());
}

#[test]
fn loose_records() {
    let Some(data) = reference_data() else { return };
    let folder = data.join("pt/dynamorio");
    for file in ["primary.sideband.pevent", "secondary.sideband.pevent"] {
        let content = std::fs::read(folder.join(file)).unwrap();
        mutate(file, &folder, file, &content, &Options::default());
    }
}

#[test]
fn descriptions() {
    let Some(data) = reference_data() else { return };
    let folder = data.join("pt/lldb/intelpt-trace");
    let content = std::fs::read(folder.join("trace_2threads.json")).unwrap();
    mutate("lldb", &folder, "trace_2threads.json", &content, &Options::default());
}

#[test]
fn kernels() {
    let Some(data) = reference_data() else { return };
    let perf = data.join("pt/perf/perf.data.intel_pt-4.14");
    let content = std::fs::read(data.join("pt/lldb/intelpt-multi-core-trace/modules/m.out")).unwrap();
    let work = Folder::new("kernel");
    let target = work.0.join("vmlinux");
    let mut random = Random(5);
    for round in 0..rounds(150) / 5 {
        let mut bytes = content.clone();
        damage(&mut bytes, &mut random);
        let _ = std::fs::remove_file(&target);
        std::fs::write(&target, &bytes).unwrap();
        let file = Some(target.clone());
        let options = match round % 3 {
            0 => Options { vmlinux: file, ..Options::default() },
            1 => Options { kcore: file, ..Options::default() },
            _ => Options { kcore: file.clone(), kallsyms: file, ..Options::default() },
        };
        survive(&perf, &options);
    }
}

#[test]
fn griffin_containers() {
    let Some(data) = reference_data() else { return };
    let file = std::fs::File::open(data.join("pt/griffin/ovf-01-ben.griffin.gz")).unwrap();
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(file).take(1 << 16).read_to_end(&mut content).unwrap();
    let empty = Folder::new("empty");
    mutate("griffin", &empty.0, "x.griffin", &content, &Options::default());
}

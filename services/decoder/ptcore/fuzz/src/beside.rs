//! An input that holds a recording and what stands beside it, as a folder of files in memory.

use pt_capture::RawImage;
use std::fs;
use std::path::{Path, PathBuf};

/// In front of each file of an input; the byte behind says which one it is. What stands in front of all is the recording.
pub const FILE: &[u8] = &[0xf1, 0x1e, 0xf1, 0x1e];

/// What an input may hold, by number.
pub const NAMES: &[&str] = &[
    "data.0",
    "jit-7.dump",
    "perf-7.map",
    "kcore_dir/kcore",
    "kcore_dir/kallsyms",
    "vmlinux",
    "net.ko",
    "work",
    "loose.sideband.pevent",
    "switches",
    "maps",
    "code",
    IMAGE,
    "images",
];

/// Code that `images` says where it stood: options as the command line has them, one a line.
pub const IMAGE: &str = "image";

/// A folder that is gone with this.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        let folder = Path::new("/dev/shm").join(format!("pt-fuzz-{}", std::process::id()));
        fs::create_dir_all(folder.join("kcore_dir")).expect("a folder in memory");
        Folder(folder)
    }

    /// Holds the files of this input and nothing else from now on; returns the recording.
    pub fn hold(&self, input: &[u8]) -> PathBuf {
        let mut parts = split(input);
        let recording = self.0.join("data");
        fs::write(&recording, parts.next().unwrap_or_default()).expect("room in memory");
        for name in NAMES {
            let _ = fs::remove_file(self.0.join(name));
        }
        for part in parts {
            let Some((&number, bytes)) = part.split_first() else { continue };
            fs::write(self.file(usize::from(number)), bytes).expect("room in memory");
        }
        recording
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file of that name, if the input has it.
    pub fn found(&self, name: &str) -> Option<PathBuf> {
        Some(self.0.join(name)).filter(|path| path.is_file())
    }

    /// What options say of the code, which is nowhere else than in this folder.
    pub fn images(&self) -> Vec<RawImage> {
        let options = fs::read_to_string(self.0.join("images")).unwrap_or_default();
        let images = options.lines().filter_map(|line| line.parse().ok());
        images.map(|image| RawImage { file: self.0.join(IMAGE), ..image }).collect()
    }

    fn file(&self, number: usize) -> PathBuf {
        self.0.join(NAMES[number % NAMES.len()])
    }
}

impl Default for Folder {
    fn default() -> Self {
        Folder::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn split(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let end = input.windows(FILE.len()).position(|bytes| bytes == FILE);
        over = end.is_none();
        let part = &input[..end.unwrap_or(input.len())];
        input = &input[end.map_or(input.len(), |end| end + FILE.len())..];
        Some(part)
    })
}

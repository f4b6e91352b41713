//! Programs built by the compilers of this machine. A test whose tools are absent says so and ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own for each test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pt-image-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path.canonicalize().unwrap())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs a tool here; it must succeed.
    pub fn run(&self, tool: &str, arguments: &[&str]) {
        let output = self.attempt(tool, arguments);
        assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn attempt(&self, tool: &str, arguments: &[&str]) -> Output {
        Command::new(tool).args(arguments).current_dir(&self.0).env("GOTOOLCHAIN", "local").output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An ELF file without its section headers: e_shoff, e_shnum and e_shstrndx are 0.
pub fn without_headers(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let [offset, count] = if bytes[4] == 2 { [0x28..0x30, 0x3c..0x40] } else { [0x20..0x24, 0x30..0x34] };
    bytes[offset].fill(0);
    bytes[count].fill(0);
    bytes
}

/// Whether all tools are there; says which is not, and where it is from.
pub fn have(tools: &[(&str, &str)]) -> bool {
    tools.iter().all(|(tool, package)| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
        if !found {
            eprintln!("skipped: {tool} is not installed (package {package})");
        }
        found
    })
}

pub const GCC: (&str, &str) = ("gcc", "gcc");
pub const CLANG: (&str, &str) = ("clang++", "clang");
pub const OBJDUMP: (&str, &str) = ("objdump", "binutils");
pub const OBJCOPY: (&str, &str) = ("objcopy", "binutils");
pub const DWP: (&str, &str) = ("dwp", "binutils");
pub const LLVM_DWP: (&str, &str) = ("llvm-dwp", "llvm");
pub const XZ: (&str, &str) = ("xz", "xz-utils");
pub const DWZ: (&str, &str) = ("dwz", "dwz");
pub const GO: (&str, &str) = ("go", "golang-go");

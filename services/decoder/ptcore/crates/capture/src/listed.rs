//! The code of a capture as a session archive keeps it (docs/design/0007-import.md): changes by process, binaries, and
//! one file of the code that no binary backs.

use crate::{Capture, KERNEL};
use pt_image::{Binary, Standing};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// What a change puts there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    Nothing,
    /// A mapping of a binary, by its place in `Listed::binaries`.
    Binary {
        number: usize,
        offset: u64,
        name: String,
    },
    /// A mapping of an ELF file that stands in the code file.
    Inside {
        at: u64,
        size: u64,
        offset: u64,
        name: String,
    },
    /// Bytes of the code file.
    Bytes {
        at: u64,
    },
    Missing {
        name: String,
        reason: String,
    },
}

/// A change of the image of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChange {
    pub epoch: u32,
    pub address: u64,
    pub size: u64,
    pub code: Code,
}

/// The code of all processes of a capture.
#[derive(Default)]
pub struct Listed {
    /// By pid, the kernel's half as [`KERNEL`]; in the order of epochs.
    pub processes: Vec<(u32, Vec<ListedChange>)>,
    pub binaries: Vec<Arc<Binary>>,
}

/// Lists the code of all processes, and writes the code file.
pub fn list(capture: &Capture, code: &mut dyn Write) -> io::Result<Listed> {
    let mut images: Vec<_> = capture.views.iter().map(|view| (view.pid, view.image)).collect();
    images.extend(capture.kernel.map(|kernel| (KERNEL, kernel)));
    images.sort_unstable();
    images.dedup_by_key(|&mut (pid, _)| pid);
    let mut lister = Lister { code, at: 0, listed: Listed::default(), binaries: HashMap::new(), kept: HashMap::new() };
    for (pid, image) in images {
        let changes = capture.images[image].changes();
        let listed: io::Result<Vec<_>> = changes
            .into_iter()
            .map(|pt_image::Change { epoch, address, size, what }| {
                Ok(ListedChange { epoch, address, size, code: lister.code(what)? })
            })
            .collect();
        lister.listed.processes.push((pid, listed?));
    }
    Ok(lister.listed)
}

struct Lister<'w> {
    code: &'w mut dyn Write,
    at: u64,
    listed: Listed,
    /// Place of each binary in the list.
    binaries: HashMap<*const Binary, usize>,
    /// Place in the code file of bytes, by where and how many they are in memory.
    kept: HashMap<(*const u8, usize), u64>,
}

impl Lister<'_> {
    fn code(&mut self, what: Standing<'_>) -> io::Result<Code> {
        Ok(match what {
            Standing::Nothing => Code::Nothing,
            Standing::Missing { name, reason } => Code::Missing { name: name.to_owned(), reason: reason.to_owned() },
            Standing::Code(bytes) => Code::Bytes { at: self.keep(bytes)? },
            // Made only so that code has names: no other session will ever need it.
            Standing::File { binary, offset, name } if binary.build_id().is_empty() && name.starts_with('[') => {
                let bytes = binary.code(0);
                Code::Inside { at: self.keep(bytes)?, size: bytes.len() as u64, offset, name: name.to_owned() }
            }
            Standing::File { binary, offset, name } => {
                let binaries = &mut self.listed.binaries;
                let number = *self.binaries.entry(Arc::as_ptr(binary)).or_insert_with(|| {
                    binaries.push(Arc::clone(binary));
                    binaries.len() - 1
                });
                Code::Binary { number, offset, name: name.to_owned() }
            }
        })
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let key = (bytes.as_ptr(), bytes.len());
        if let Some(&at) = self.kept.get(&key) {
            return Ok(at);
        }
        let at = self.at;
        self.code.write_all(bytes)?;
        self.at += bytes.len() as u64;
        self.kept.insert(key, at);
        Ok(at)
    }
}

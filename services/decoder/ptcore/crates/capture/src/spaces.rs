//! Address spaces of processes over time, from what was mapped when.

mod remapped;
mod stretches;

use crate::elf::{self, Function};
use crate::perf_map::PerfMap;
use pt_image::{Binary, Image, ImageError};
use std::collections::HashMap;
use std::sync::Arc;

pub use stretches::Stretches;

/// What stands at the addresses of a mapping.
#[derive(Clone)]
pub enum Content {
    /// Bytes of the file from the offset on.
    File {
        binary: Arc<Binary>,
        offset: u64,
    },
    Code(Arc<[u8]>),
    /// No code is known, and none may have been there.
    Missing {
        reason: String,
    },
    /// Code that nobody could read.
    Unread {
        reason: String,
    },
    /// Memory without a file, in which code is written at run time: it has names at most.
    Unnamed {
        names: Arc<PerfMap>,
        /// The program may write there as it is told.
        writable: bool,
        reason: String,
    },
}

impl Content {
    pub fn is_code(&self) -> bool {
        matches!(self, Content::File { .. } | Content::Code(_))
    }

    /// From its beginning on; there may be more of a file.
    pub fn code(&self) -> &[u8] {
        match self {
            Content::File { binary, offset } => binary.code(*offset),
            Content::Code(bytes) => bytes,
            Content::Missing { .. } | Content::Unread { .. } | Content::Unnamed { .. } => &[],
        }
    }
}

/// The name of code that was told in a jitdump.
pub const JIT: &str = "[jit]";

/// A stretch of addresses (bytes) and what stands there.
#[derive(Clone)]
pub struct Mapping {
    pub address: u64,
    pub size: u64,
    pub name: String,
    pub content: Content,
}

impl Mapping {
    /// Code with names: the image knows names by ELF files alone, so the code becomes one.
    pub fn of_code(name: &str, address: u64, code: &[u8], functions: &[&Function]) -> Result<Mapping, String> {
        let content = if functions.is_empty() {
            Content::Code(code.into())
        } else {
            let binary = elf::binary(name, &[(address, code)], functions)?;
            Content::File { binary, offset: elf::code_at(1) }
        };
        Ok(Mapping { address, size: code.len() as u64, name: name.to_owned(), content })
    }
}

#[derive(Clone)]
enum Change {
    Map(Mapping),
    /// A new program: nothing of the old one is left.
    Exec,
    /// The pid is used again, for a child of this one.
    Fork(u32),
}

#[derive(Default)]
struct Space {
    /// By time; TSC ticks, 0 for what was there before.
    changes: Vec<(u64, Change)>,
    /// Forked from whom, when.
    parent: Option<(u32, u64)>,
}

/// Stands for a pid: what all address spaces share.
pub const KERNEL: u32 = u32::MAX;

/// All processes by pid.
#[derive(Default)]
pub struct Spaces(HashMap<u32, Space>);

/// An image, and from which TSC on which of its epochs holds.
pub struct Built {
    pub image: Image,
    pub epochs: Vec<(u64, u32)>,
    /// Mappings that could not be, in words.
    pub refused: Vec<String>,
    /// How many mappings it was made of.
    pub changes: usize,
}

/// Forks of forks are followed this far.
const MAX_ANCESTORS: usize = 64;
/// Changes of one address space are taken up to about this many.
const MAX_LINE: usize = 1 << 20;
/// So many functions of perf maps are named in one image.
const MAX_NAMED: usize = 1 << 20;

impl Spaces {
    pub fn map(&mut self, pid: u32, tsc: u64, mapping: Mapping) {
        self.0.entry(pid).or_default().changes.push((tsc, Change::Map(mapping)));
    }

    /// These were there before everything else that is told of the process.
    pub fn first(&mut self, pid: u32, mappings: Vec<Mapping>) {
        if !mappings.is_empty() {
            let first = mappings.into_iter().map(|mapping| (0, Change::Map(mapping)));
            self.0.entry(pid).or_default().changes.splice(0..0, first);
        }
    }

    pub fn exec(&mut self, pid: u32, tsc: u64) {
        self.0.entry(pid).or_default().changes.push((tsc, Change::Exec));
    }

    /// The child begins with what its parent has then, also where its pid was that of another before.
    pub fn fork(&mut self, parent: u32, child: u32, tsc: u64) {
        let space = self.0.entry(child).or_default();
        if space.changes.is_empty() && space.parent.is_none() {
            space.parent = Some((parent, tsc));
        } else {
            space.changes.push((tsc, Change::Fork(parent)));
        }
    }

    pub fn knows(&self, pid: u32) -> bool {
        self.0.contains_key(&pid)
    }

    /// Whether any code of it is there.
    pub fn have_code(&self, pid: u32) -> bool {
        let changes = self.0.get(&pid).into_iter().flat_map(|space| &space.changes);
        changes.into_iter().any(|(_, change)| matches!(change, Change::Map(mapping) if mapping.content.is_code()))
    }

    /// The image of a process; an unknown one's is empty.
    pub fn build(&self, pid: u32) -> Built {
        let mut builder = Builder::default();
        let mut line = Vec::new();
        if !self.line(pid, u64::MAX, &mut Vec::new(), &mut line) {
            builder
                .refused
                .push(format!("more than {MAX_ANCESTORS} forks lead to it: what it has from earlier ones is left out"));
        }
        let changes = line.len();
        if changes >= MAX_LINE {
            builder.refused.push(format!("more than {MAX_LINE} changes of its memory: later ones are left out"));
        }
        remapped::take_for_files(&mut line);
        for (tsc, change) in line {
            if let Err(error) = builder.take(tsc, change) {
                builder.refused.push(error);
            }
        }
        if builder.named == MAX_NAMED {
            builder.refused.push(format!("of perf maps {MAX_NAMED} functions are named: further ones have no names"));
        }
        Built { image: builder.image, epochs: builder.epochs, refused: builder.refused, changes }
    }

    /// Adds the changes of a process until a time, with those of its ancestors up to the forks. `descendants`: whose
    /// ancestors are being followed, each until when: one may have the pid of an ancestor that had ended. Whether all forks were.
    fn line(&self, pid: u32, until: u64, descendants: &mut Vec<(u32, u64)>, line: &mut Vec<(u64, Change)>) -> bool {
        let Some(space) = self.0.get(&pid) else { return true };
        if descendants.len() >= MAX_ANCESTORS {
            return false;
        }
        if line.len() >= MAX_LINE || descendants.contains(&(pid, until)) {
            return true;
        }
        let mut whole = true;
        descendants.push((pid, until));
        let fork = space.parent.map(|(parent, tsc)| (tsc, Change::Fork(parent)));
        // Records come by core: what had the pid before may be read behind the fork.
        let reused = |&&(forked, _): &&(u64, Change)| space.changes.iter().any(|&(tsc, _)| (1..forked).contains(&tsc));
        let later = fork.as_ref().filter(reused);
        let mut own: Vec<_> = space.changes.iter().chain(later).filter(|&&(tsc, _)| tsc <= until).collect();
        own.sort_by_key(|&&(tsc, _)| tsc);
        // Of those who had the pid before, only the last is of interest to a descendant.
        let forks = |change: &&(u64, Change)| matches!(change.1, Change::Fork(_) | Change::Exec);
        let last = if descendants.len() == 1 { None } else { own.iter().rposition(forks) };
        if let (Some((parent, tsc)), None, None) = (space.parent, later, last) {
            whole &= self.line(parent, tsc.min(until), descendants, line);
        }
        for (tsc, change) in &own[last.unwrap_or(0)..] {
            if line.len() >= MAX_LINE {
                break;
            }
            match change {
                Change::Fork(parent) => {
                    line.push((*tsc, Change::Exec));
                    let mut inherited = Vec::new();
                    whole &= self.line(*parent, *tsc, descendants, &mut inherited);
                    line.extend(inherited.into_iter().map(|(_, change)| (*tsc, change)));
                }
                change => line.push((*tsc, change.clone())),
            }
        }
        descendants.pop();
        whole
    }
}

#[derive(Default)]
struct Builder {
    image: Image,
    epoch: u32,
    epochs: Vec<(u64, u32)>,
    /// Stretches with known code.
    mapped: Stretches,
    /// Stretches with code that nobody could read.
    unread: Stretches,
    /// Stretches of what jitdumps told.
    told: Stretches,
    /// Stretches of memory without a file, whatever was told of it.
    unnamed: Stretches,
    /// How many functions of perf maps are named.
    named: usize,
    refused: Vec<String>,
}

impl Builder {
    fn take(&mut self, tsc: u64, change: Change) -> Result<(), String> {
        match change {
            Change::Exec | Change::Fork(_) => {
                self.next_epoch(tsc);
                (self.told, self.unnamed) = Default::default();
                for (start, end) in self.mapped.take().chain(self.unread.take()) {
                    self.image.unmap(self.epoch, start, end - start).map_err(|error| error.to_string())?;
                }
                Ok(())
            }
            Change::Map(mapping) => {
                let name = mapping.name.clone();
                self.map(tsc, mapping).map_err(|error| format!("{name}: {error}"))
            }
        }
    }

    fn map(&mut self, tsc: u64, mapping: Mapping) -> Result<(), ImageError> {
        let Mapping { address, size, ref name, .. } = mapping;
        let bad = ImageError::BadRange { address, size };
        let end = address.checked_add(size).filter(|_| size > 0).ok_or(bad)?;
        if let Content::Unnamed { names, reason, .. } = mapping.content {
            return self.unnamed(tsc, (address, end), name, &names, &reason);
        }
        if name == JIT {
            self.told.add(address, end);
        } else {
            self.told.remove(address, end);
            self.unnamed.remove(address, end);
        }
        self.place(tsc, mapping)
    }

    /// A program that writes code tells anew where its memory is whenever that gets or loses the right to be written: what
    /// is known of the code stays, as in perf (tools/perf/util/jitdump.c of Linux, jit_process).
    fn unnamed(
        &mut self,
        tsc: u64,
        (start, end): (u64, u64),
        name: &str,
        names: &PerfMap,
        reason: &str,
    ) -> Result<(), ImageError> {
        if self.unnamed.hold(start, end) {
            return Ok(());
        }
        self.unnamed.add(start, end);
        let (first, last) = self.told.bounds(start, end).unwrap_or((end, end));
        for (from, to) in [(start, first), (last, end)].into_iter().filter(|(from, to)| from < to) {
            let missing = |address, size, name: &str, reason: String| Mapping {
                address,
                size,
                name: name.to_owned(),
                content: Content::Missing { reason },
            };
            self.place(tsc, missing(from, to - from, name, reason.to_owned()))?;
            let within = names.within(from..to);
            for function in within.into_iter().take(MAX_NAMED - self.named) {
                self.named += 1;
                let size = function.size.min(to - function.address);
                self.place(tsc, missing(function.address, size, &function.name, names.why_no_code()))?;
            }
        }
        Ok(())
    }

    /// Where nothing stood nothing ran, and what is missing can wait for what turns up: only what takes the place of
    /// known code, or of code that nobody could read, begins an epoch.
    fn place(&mut self, tsc: u64, mapping: Mapping) -> Result<(), ImageError> {
        let Mapping { address, size, name, content } = mapping;
        let bad = ImageError::BadRange { address, size };
        let end = address.checked_add(size).filter(|_| size > 0).ok_or(bad)?;
        let is_unread = matches!(content, Content::Unread { .. });
        // A jitdump's code is that of the memory, also where that is a file's.
        let reads = !is_unread && name != JIT && self.unread.overlap(address, end);
        if self.mapped.overlap(address, end) || reads {
            self.next_epoch(tsc);
        }
        let is_code = content.is_code();
        match content {
            Content::File { binary, offset } => self.image.map(self.epoch, address, size, offset, &binary, &name)?,
            Content::Code(bytes) => self.image.code(self.epoch, address, bytes.to_vec())?,
            Content::Missing { reason } | Content::Unread { reason } | Content::Unnamed { reason, .. } => {
                self.image.missing(self.epoch, address, size, &name, &reason)?
            }
        }
        if is_code {
            self.mapped.add(address, end);
        }
        if is_unread {
            self.unread.add(address, end);
        } else {
            self.unread.remove(address, end);
        }
        Ok(())
    }

    fn next_epoch(&mut self, tsc: u64) {
        if self.mapped.is_empty() && self.unread.is_empty() {
            return;
        }
        match self.epochs.last() {
            Some(&(last, _)) if last >= tsc => {}
            _ if tsc == 0 => {}
            _ => {
                self.epoch += 1;
                self.epochs.push((tsc, self.epoch));
            }
        }
    }
}

#[cfg(test)]
mod tests;

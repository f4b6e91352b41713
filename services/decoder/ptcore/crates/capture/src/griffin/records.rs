//! What the records of a container say, thread by thread and process by process.

use super::placed::{place, Pages};
use crate::fields::{Fields, Short};
use crate::ids;
use std::collections::{BTreeMap, BTreeSet};

const BUFFER: u32 = 0;
const PROCESS: u32 = 1;
const THREAD: u32 = 2;
const IMAGE: u32 = 3;
const XPAGE: u32 = 4;
const UNMAP: u32 = 5;
const FORK: u32 = 6;
const SECTION: u32 = 7;
const THREAD_END: u32 = 8;
/// System calls, of a later version.
const AUDIT: u32 = 9;

/// Size of a thread's name.
const NAME: u64 = 16;

/// Forks of forks are followed this far.
const MAX_ANCESTORS: usize = 64;

#[derive(Default)]
pub struct Records<'d> {
    /// By tid and process: another one may take the number over.
    pub threads: BTreeMap<(u32, u32), Thread<'d>>,
    /// By process: the pages of one program that it executed after another.
    pub programs: BTreeMap<u32, Vec<Pages<'d>>>,
    /// By process and tid.
    pub names: BTreeMap<(u32, u32), String>,
    /// Processes that were told of.
    told: BTreeSet<u32>,
    /// By child and the program that it began with: a process and which of its programs that ran.
    parents: BTreeMap<(u32, usize), (u32, usize)>,
    /// How often code took the place of other code.
    pub replaced: u64,
    /// Records of kinds that are not known, by kind.
    pub unknown: BTreeMap<u32, u64>,
}

/// The packets of a thread.
#[derive(Default)]
pub struct Thread<'d> {
    /// By program that its process executed; not all need have packets.
    pub parts: Vec<Part<'d>>,
    /// To which of them its buffers belong now.
    at: usize,
}

pub struct Part<'d> {
    pub program: usize,
    /// By sequence number.
    pub buffers: BTreeMap<u64, &'d [u8]>,
}

impl<'d> Thread<'d> {
    fn begins(&mut self, program: usize) {
        if self.parts.last().is_none_or(|last| last.program != program) {
            self.parts.push(Part { program, buffers: BTreeMap::new() });
        }
    }

    /// Buffers are counted anew for each program, and written some time after its begin is told: the first one is known by its
    /// number (`pt_on_execve` of Griffin's arch/x86/kernel/pt.c).
    fn take(&mut self, sequence: u64, packets: &'d [u8]) {
        let buffers = &self.parts[self.at].buffers;
        let first = buffers.first_key_value().is_some_and(|(&first, _)| sequence < first);
        if (first || buffers.contains_key(&sequence)) && self.at + 1 < self.parts.len() {
            self.at += 1;
        }
        self.parts[self.at].buffers.insert(sequence, packets);
    }
}

/// Why a record is left out.
pub enum Refusal {
    Short(Short),
    Impossible(String),
}

impl From<Short> for Refusal {
    fn from(short: Short) -> Self {
        Refusal::Short(short)
    }
}

/// The number of a process or a thread.
fn id(fields: &mut Fields<'_>) -> Result<u32, Refusal> {
    let number = fields.u64()?;
    ids::possible(number).ok_or_else(|| Refusal::Impossible(format!("no system has a process or thread {number}")))
}

impl<'d> Records<'d> {
    pub fn take(&mut self, kind: u32, body: &'d [u8]) -> Result<(), Refusal> {
        let mut fields = Fields::new(body, 0);
        match kind {
            BUFFER => {
                let (pid, tid) = (id(&mut fields)?, id(&mut fields)?);
                let (sequence, size) = (fields.u64()?, fields.u64()?);
                let packets = fields.bytes(size)?;
                let program = self.program(pid);
                let thread = self.threads.entry((tid, pid)).or_default();
                if thread.parts.is_empty() {
                    thread.begins(program);
                }
                thread.take(sequence, packets);
            }
            PROCESS => {
                let (pid, size) = (id(&mut fields)?, fields.u64()?);
                let name = Fields::new(fields.bytes(size)?, 0).text();
                self.names.insert((pid, pid), name);
                let programs = self.programs.entry(pid).or_default();
                let again = !self.told.insert(pid);
                if again || programs.is_empty() {
                    programs.push(Pages::new());
                }
            }
            THREAD => {
                let (pid, tid) = (id(&mut fields)?, id(&mut fields)?);
                let program = self.program(pid);
                self.threads.entry((tid, pid)).or_default().begins(program);
                // Of a later version.
                if let Ok(name) = fields.bytes(NAME) {
                    self.names.entry((pid, tid)).or_insert_with(|| Fields::new(name, 0).text());
                }
            }
            XPAGE => {
                let (pid, base, size) = (id(&mut fields)?, fields.u64()?, fields.u64()?);
                let bytes = fields.bytes(size)?;
                if base.checked_add(size).is_none() {
                    return Err(Refusal::Impossible(format!(
                        "{size} bytes from {base:#x} on reach beyond all addresses"
                    )));
                }
                let programs = self.programs.entry(pid).or_default();
                if programs.is_empty() {
                    programs.push(Pages::new());
                }
                let pages = programs.last_mut().expect("one at least");
                self.replaced += u64::from(place(pages, base, bytes));
            }
            FORK => {
                let (parent, _, child, _) = (id(&mut fields)?, fields.u64()?, id(&mut fields)?, fields.u64()?);
                let of_parent = (parent, self.program(parent));
                self.born(child);
                self.parents.insert((child, self.program(child)), of_parent);
            }
            // Code is known by its pages, the end of a thread by its packets.
            IMAGE | UNMAP | SECTION | THREAD_END | AUDIT => {}
            _ => *self.unknown.entry(kind).or_default() += 1,
        }
        Ok(())
    }

    /// One that has the number of a process that was forked before takes nothing over from it: that one has ended, and leaves no
    /// buffer to be written late.
    fn born(&mut self, child: u32) {
        if self.parents.range((child, 0)..=(child, usize::MAX)).next().is_none() {
            return;
        }
        self.told.remove(&child);
        let programs = self.programs.entry(child).or_default();
        programs.resize(programs.len().max(1) + 1, Pages::new());
        let program = programs.len() - 1;
        for (_, thread) in self.threads.iter_mut().filter(|((_, pid), _)| *pid == child) {
            thread.begins(program);
            thread.at = thread.parts.len() - 1;
        }
    }

    pub fn have_packets(&self) -> bool {
        self.threads.values().flat_map(|thread| &thread.parts).any(|part| !part.buffers.is_empty())
    }

    /// Which of its programs a process runs.
    fn program(&self, pid: u32) -> usize {
        self.programs.get(&pid).map_or(0, |programs| programs.len().saturating_sub(1))
    }

    /// The pages of a program, and behind them those of the processes that it was forked from.
    pub fn line(&self, pid: u32, program: usize) -> Vec<&Pages<'d>> {
        let (mut seen, mut line, mut next) = (BTreeSet::new(), Vec::new(), Some((pid, program)));
        while let Some((pid, program)) = next.filter(|&of| line.len() <= MAX_ANCESTORS && seen.insert(of)) {
            line.extend(self.programs.get(&pid).and_then(|programs| programs.get(program)));
            next = self.parents.get(&(pid, program)).copied();
        }
        line
    }

    /// The programs of a process; one that nothing is told of has one.
    pub fn programs(&self, pid: u32) -> usize {
        self.program(pid) + 1
    }

    /// Bytes of all processes that ran, with what they inherit.
    pub fn inherited(&self) -> usize {
        let pids: BTreeSet<u32> = self.threads.keys().map(|&(_, pid)| pid).collect();
        let programs = pids.into_iter().flat_map(|pid| (0..self.programs(pid)).map(move |program| (pid, program)));
        let pages = programs.flat_map(|(pid, program)| self.line(pid, program));
        pages.flat_map(BTreeMap::values).map(|bytes| bytes.len()).sum()
    }
}

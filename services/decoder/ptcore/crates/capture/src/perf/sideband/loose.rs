//! Files of records alone, beside packets in a file of their own: whose packets these are, and what the records say of them.

use super::losses::lost_at;
use super::{is_of, Sideband};
use crate::perf::file::is_file;
use crate::perf::layouts::Layouts;
use crate::perf::record::kind;
use crate::perf::records::Records;
use crate::perf::running::first_of;
use crate::spaces::{Mapping, KERNEL};
use crate::unpacked::content;
use crate::{Capture, CaptureError, Of, Options, Stays, Stream};
use pt_flow::is_kernel;
use pt_packet::{find_psb, PSB};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The core whose records a file has by its name, as the scripts of libipt call it: `perf.data-sideband-cpu3.pevent`.
pub fn core_named(name: &str) -> Option<u32> {
    name.rsplit_once("-sideband-cpu")?.1.strip_suffix(".pevent")?.parse().ok()
}

/// What begins like something else that people have beside packets.
fn what_else(data: &[u8]) -> Option<&'static str> {
    match data {
        _ if is_file(data) => Some("a whole recording of perf, which is decoded by itself"),
        [0x7f, b'E', b'L', b'F', ..] => Some("an ELF file"),
        _ if data.starts_with(&PSB) => Some("Processor Trace packets"),
        _ => None,
    }
}

/// Adds what loose files of records say to a stream of raw packets (`Options::sideband`), whose process has `code` too.
pub fn attach_loose(capture: &mut Capture, code: Vec<Mapping>, options: &Options) -> Result<(), CaptureError> {
    let mut sideband = Sideband::new(options, None);
    let cores = sideband.read(capture, &options.sideband)?;
    let timed = sideband.conversion.is_some();
    // The kernel's is there whoever runs, and without anyone too.
    let (kernel, code): (Vec<_>, Vec<_>) = code.into_iter().partition(|mapping| is_kernel(mapping.address));
    for mapping in kernel {
        sideband.spaces.map(KERNEL, 0, mapping);
    }
    capture.warnings.extend(sideband.running.warnings(timed));
    for stream in &mut capture.streams {
        sideband.belongs(stream, cores.as_deref().filter(|_| timed), &mut capture.warnings);
        sideband.lacks(stream, &mut capture.warnings);
        let switches = stream.begins.iter().chain(&stream.switches);
        let mut ran: BTreeSet<_> = switches.map(|switch| switch.pid).filter(|&pid| pid != 0).collect();
        if let Of::Thread { pid, .. } = stream.of {
            ran.insert(pid);
        }
        for pid in ran {
            for mapping in &code {
                sideband.spaces.map(pid, 0, mapping.clone());
            }
        }
    }
    sideband.finish(capture, None)?;
    // What threads did on other cores is not there.
    capture.stays = None;
    Ok(())
}

impl Sideband<'_> {
    /// Takes all records. Returns the cores that they are of, those first that files are named for, where they are not of a thread.
    fn read(&mut self, capture: &mut Capture, paths: &[PathBuf]) -> Result<Option<Vec<u32>>, CaptureError> {
        let (mut all, mut cores, mut of_cores) = (Vec::new(), Vec::new(), false);
        for path in paths {
            let data = content(path)?;
            if let Some(what) = what_else(&data) {
                let why = format!("{what}, no file of perf's records alone");
                return Err(CaptureError::Unknown { path: path.to_owned(), why });
            }
            let mut records = Records::default();
            records.read(path, &data, 0..data.len(), 0)?;
            self.conversion = self.conversion.or(records.conversion);
            if let Some(info) = records.info {
                capture.config = info.config(None);
                self.filters = std::mem::take(&mut records.filters);
            }
            capture.warnings.append(&mut records.warnings);
            let core = path.file_name().and_then(|name| core_named(&name.to_string_lossy()));
            let layouts = Layouts::of(records.each(&data), core);
            capture.warnings.extend(layouts.doubt.iter().map(|doubt| format!("{}: {doubt}", path.display())));
            // Those of a thread's own switches are others (SWITCH).
            of_cores |= core.is_some() || records.each(&data).any(|record| record.kind == kind::SWITCH_CPU_WIDE);
            cores.extend(core);
            all.push((data, records, layouts));
        }
        for (data, records, layouts) in &all {
            for record in records.each(data) {
                self.record(&record, layouts.get(&record));
            }
        }
        if cores.is_empty() {
            cores = self.running.cores();
        }
        Ok(of_cores.then_some(cores))
    }

    /// Whose the stream is, and who ran.
    fn belongs(&mut self, stream: &mut Stream, cores: Option<&[u32]>, warnings: &mut Vec<String>) {
        let size = stream.size() as u64;
        let cores = cores.unwrap_or_default();
        if let Some(core) = self.core(cores, size, warnings) {
            let (begins, switches) = self.running.take(core, || false);
            if !switches.is_empty() {
                warnings.extend(self.running.unknown());
                let mut seen: Vec<_> = begins.iter().chain(&switches).map(|&switch| (core, switch)).collect();
                for &other in cores.iter().filter(|&&other| other != core) {
                    seen.extend(self.running.take(other, || false).1.into_iter().map(|switch| (other, switch)));
                }
                self.stays = Some(Stays::of(seen.into_iter()));
                (stream.of, stream.begins, stream.switches) = (Of::Core(core), begins, switches);
                return;
            }
        }
        stream.of = self.thread(size, warnings);
    }

    /// Where the kernel says that it lacks packets.
    fn lacks(&self, stream: &mut Stream, warnings: &mut Vec<String>) {
        let filled_up = self.running.buffers.filled_up(stream.of, stream.size() as u64) as usize;
        let data = &stream.data;
        let place = |at: u64| {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(data.len());
            // Each part that perf took is filled up, and behind what was lost packets begin anew.
            let until = at.saturating_add(filled_up + PSB.len()).min(data.len());
            find_psb(&data[at..until], 0).map_or(at, |psb| at + psb)
        };
        let mut lost: Vec<_> =
            self.cut.iter().filter(|(id, _)| is_of(id, stream.of)).map(|&(_, at)| place(at)).collect();
        lost.sort_unstable();
        lost.dedup();
        if !lost.is_empty() {
            warnings.push(lost_at(&stream.name, &lost));
        }
        stream.lost = lost;
    }

    /// Whose packets these are, of so many bytes, by what the kernel says that it handed out, or by the order of the files.
    fn core(&self, cores: &[u32], size: u64, warnings: &mut Vec<String>) -> Option<u32> {
        let mut of_size = cores.iter().copied().filter(|&core| self.running.buffers.is_of_core(core, size));
        if let (Some(core), None) = (of_size.next(), of_size.next()) {
            return Some(core);
        }
        let first = *cores.first()?;
        if cores.len() > 1 {
            warnings.push(format!(
                "the records are of cores {}, and do not say whose the packets are: they are taken for those of core {first}; \
                 give the records of another core first (--sideband)",
                first_of(cores, u32::to_string)
            ));
        }
        Some(first)
    }

    /// The same of a thread.
    fn thread(&self, size: u64, warnings: &mut Vec<String>) -> Of {
        let pids = &self.running.pids;
        let known = |tid: u32| Of::Thread { pid: pids.get(&tid).copied().unwrap_or(tid), tid };
        if let Some(tid) = self.running.buffers.of_thread(size).filter(|&tid| tid != 0) {
            return known(tid);
        }
        let traced: BTreeSet<_> = self.traced.iter().collect();
        let has_code = |&(_, pid): &(&u32, &u32)| self.spaces.knows(*pid);
        let mut threads: Vec<_> = pids.iter().filter(has_code).map(|(&tid, _)| tid).collect();
        if threads.is_empty() {
            threads.extend(pids.keys().filter(|&&tid| tid != 0));
        }
        let of = match (self.traced.last(), threads.first()) {
            (Some(&(pid, tid)), _) => Of::Thread { pid, tid },
            (None, Some(&tid)) => known(tid),
            (None, None) => Of::Thread { pid: 0, tid: 0 },
        };
        let count = if traced.is_empty() { threads.len() } else { traced.len() };
        if let (Of::Thread { pid, tid }, 2..) = (of, count) {
            warnings.push(format!(
                "the records are of {count} threads, and do not say whose the packets are: they are taken for those of thread {tid} \
                 of process {pid}; give the records of one alone (--sideband)"
            ));
        }
        of
    }
}

#[cfg(test)]
mod tests;

//! Records of the kernel to address spaces, switches and streams.

mod loose;
mod losses;
mod mapped;

use super::address_filters::AddressFilters;
use super::attributes::{Attributes, SampleId};
use super::kernel_changes::KernelChanges;
use super::outsiders::Outsiders;
use super::portable::Portables;
use super::pt_info::Switches;
use super::record::{kind, Event, Record};
use super::records::Records;
use super::running::Running;
use super::thread_names::ThreadNames;
use super::untimed::Untimed;
use super::written::Written;
use super::{bpf, kernel};
use crate::elf::Function;
use crate::files::Files;
use crate::on_core::{Sign, Who};
use crate::spaces::{Content, Mapping, Spaces, KERNEL};
use crate::timeline::attach_with;
use crate::vdso;
use crate::{Bytes, Capture, CaptureError, Conversion, Of, Options, Stays, Stream, Switch};
use losses::Losses;
use pt_flow::is_kernel;
use pt_packet::find_psb;
use std::collections::{BTreeMap, HashMap};

pub use loose::{attach_loose, core_named};

/// PERF_AUX_FLAG_TRUNCATED: packets were lost behind.
const AUX_TRUNCATED: u64 = 1;
/// PERF_AUX_FLAG_PARTIAL: at times tracing was not begun, as where KVM had the processor. The packets are whole, and say where tracing
/// is disabled (arch/x86/events/intel/pt.c of Linux, pt_config_start).
const AUX_PARTIAL: u64 = 4;
/// PERF_AUX_FLAG_OVERWRITE: the buffer is written around. The record's offset is a place in the buffer, which other packets
/// took since, and its size that of the buffer (arch/x86/events/intel/pt.c of Linux, pt_event_stop).
const AUX_OVERWRITE: u64 = 2;

struct Sideband<'o> {
    options: &'o Options,
    files: Files,
    portables: Portables,
    build_ids: HashMap<String, String>,
    bpf: bpf::Programs,
    filters: AddressFilters,
    conversion: Option<Conversion>,
    /// The time of the first record that has one, 0 before; TSC ticks.
    first: u64,
    spaces: Spaces,
    running: Running,
    names: ThreadNames,
    /// Kernel offsets behind which packets are lost, by core and thread.
    cut: Vec<(SampleId, u64)>,
    /// How often packets were lost in buffers that are written around.
    cut_somewhere: u64,
    /// Records of the kernel that say that it did not trace all the time.
    partial: u64,
    lost: u64,
    /// Files that could not be used, with the reason and how often they were mapped.
    missing: BTreeMap<(String, String), u64>,
    damaged: u64,
    kernel: kernel::Recorded,
    kernel_changes: KernelChanges,
    /// Records of kinds that are not known, by kind.
    unknown: BTreeMap<u32, u64>,
    /// Processes whose mappings perf did not read to their end.
    unread: u64,
    /// It was recorded under the kernel that runs here.
    same_kernel: bool,
    written: Written<'o>,
    untimed: Untimed,
    /// Processes and threads for which tracing began, in the order of the records.
    traced: Vec<Who>,
    outsiders: Outsiders,
    /// The cores that threads were on, where the streams do not tell them.
    stays: Option<Stays>,
}

/// Turns all records of a recording into a capture.
pub fn fill(capture: &mut Capture, data: &Bytes, mut records: Records, options: &Options) -> Result<(), CaptureError> {
    let info = records.info;
    let attribute = info.and_then(|info| info.attribute(&records.attributes.all).copied());
    if let Some(info) = info {
        capture.config = info.config(attribute.as_ref());
    }
    capture.cpu = records.features.cpu;
    let joined = records.join(data, options.beginnings)?;
    let mut sideband = Sideband::new(options, records.conversion);
    sideband.same_kernel = vdso::is_running(&records.features.os_release);
    sideband.kernel.release = std::mem::take(&mut records.features.os_release);
    capture.warnings.extend(records.features.warning());
    sideband.build_ids = std::mem::take(&mut records.features.build_ids);
    sideband.bpf = std::mem::take(&mut records.features.bpf);
    sideband.filters = std::mem::take(&mut records.filters);
    sideband.unknown = std::mem::take(&mut records.unknown);
    let switches = info.map_or(Switches::Untold, |info| info.switches);
    if switches == Switches::Samples {
        records.attributes.sched_switch = records.features.sched_switch;
    }
    for record in records.each(data) {
        sideband.record(&record, &records.attributes);
    }
    sideband.running.all_told();
    capture.warnings.extend(sideband.running.warnings(sideband.conversion.is_some()));
    let of_cores = joined.iter().any(|joined| joined.cpu.is_some());
    capture.warnings.extend(records.scope_warnings(of_cores));
    if of_cores {
        capture.warnings.extend(sideband.running.doubt(switches, records.attributes.sched_switch.is_some()));
    }
    let snapshots = info.is_some_and(|info| info.snapshots);
    for joined in joined {
        let of = joined.of(|tid| sideband.running.pids.get(&tid).copied().unwrap_or(tid));
        let cut = sideband.cut.iter().filter(|(id, _)| is_of(id, of)).map(|&(_, at)| joined.place(at));
        let handed_out = sideband.running.buffers.end(of).filter(|_| !snapshots);
        let losses = Losses::of(&joined, cut, handed_out);
        capture.warnings.extend(losses.warnings);
        let (begins, switches) = match of {
            Of::Core(cpu) => sideband.running.take(cpu, || find_psb(&joined.data, 0).is_some()),
            Of::Thread { .. } => (None, Vec::new()),
        };
        capture.streams.push(Stream {
            begins,
            switches,
            lost: losses.places,
            ..Stream::of_size(joined.size, joined.name, joined.data, of)
        });
    }
    capture.warnings.extend(sideband.running.unknown());
    capture.warnings.append(&mut records.warnings);
    if capture.streams.is_empty() {
        let why = match info {
            _ if records.foreign => "another hardware trace alone",
            Some(_) => "its event was there and left no packets",
            None => "no AUXTRACE records",
        };
        capture.warnings.push(format!("perf recorded no Processor Trace ({why}): use `perf record -e intel_pt//`"));
    }
    let user_only = attribute.is_some_and(|attribute| attribute.excludes_kernel());
    // It may have been told where a thread was meanwhile.
    let lost = sideband.lost > 0 || sideband.partial > 0;
    sideband.finish(capture, Some(user_only))?;
    if lost || !records.have_all_cores() {
        capture.stays = None;
    }
    Ok(())
}

impl<'o> Sideband<'o> {
    fn new(options: &'o Options, conversion: Option<Conversion>) -> Self {
        Sideband {
            options,
            files: Files::new(&options.symbols),
            portables: Portables::default(),
            build_ids: HashMap::new(),
            bpf: bpf::Programs::default(),
            filters: AddressFilters::default(),
            conversion,
            first: 0,
            spaces: Spaces::default(),
            running: Running::default(),
            names: ThreadNames::default(),
            cut: Vec::new(),
            cut_somewhere: 0,
            partial: 0,
            lost: 0,
            missing: BTreeMap::new(),
            damaged: 0,
            kernel: kernel::Recorded::default(),
            kernel_changes: KernelChanges::default(),
            unknown: BTreeMap::new(),
            unread: 0,
            same_kernel: false,
            written: Written::new(&options.symbols),
            untimed: Untimed::default(),
            traced: Vec::new(),
            outsiders: Outsiders::default(),
            stays: None,
        }
    }

    fn ticks(&self, id: &SampleId) -> u64 {
        match (self.conversion, id.time) {
            (Some(conversion), Some(time)) if time != 0 => conversion.ticks(time),
            _ => 0,
        }
    }

    fn record(&mut self, record: &Record<'_>, attributes: &Attributes) {
        if record.kind > kind::LAST_OF_KERNEL {
            *self.unknown.entry(record.kind).or_default() += 1;
        }
        self.unread += u64::from(record.ends_early());
        match record.event(attributes) {
            Ok((event, id)) => self.event(event, id),
            Err(_) => self.damaged += 1,
        }
    }

    fn event(&mut self, event: Event, id: SampleId) {
        let tsc = self.ticks(&id);
        if self.first == 0 {
            self.first = tsc;
        }
        if self.outsiders.saw(&event, &id) {
            return;
        }
        match event {
            Event::Mmap { executable: false, .. } | Event::Other => {}
            Event::Mmap { pid, kernel, writable, address, size, offset, name, build_id, .. } => {
                let told = self.told_build_id(&name, address).cloned();
                let build_id = told.filter(|_| build_id.is_empty()).unwrap_or(build_id);
                if kernel {
                    self.kernel.build_ids.insert(name.clone(), build_id.clone());
                    // `[kernel.kallsyms]_text`: in place of the offset stands where that symbol was.
                    if let Some((file, symbol)) = name.split_once(']').filter(|_| name.starts_with("[kernel")) {
                        if !symbol.is_empty() && is_kernel(offset) {
                            self.kernel.symbol = Some((symbol.to_owned(), offset));
                        }
                        let by_file = self.build_ids.get(&format!("{file}]")).cloned().unwrap_or_default();
                        self.kernel.build_id = if build_id.is_empty() { by_file } else { build_id };
                    }
                    // In place of the offset stands where the code is that is there (machine__create_extra_kernel_map).
                    if name == "__entry_SYSCALL_64_trampoline" && is_kernel(offset) {
                        self.kernel.entries.push((address, size, offset));
                    }
                    let content = Content::Missing { reason: String::new() };
                    self.kernel.mapped.push(Mapping { address, size, name, content });
                } else {
                    if tsc == 0 {
                        self.untimed.map(pid, address, size, &name);
                    }
                    self.filters.map(address, size, offset, &name);
                    self.map(pid, tsc, (address, size, offset), writable, &name, &build_id);
                }
            }
            Event::Comm { pid, tid, exec, name } => {
                if exec {
                    self.spaces.exec(pid, tsc);
                    self.written.exec(pid);
                    self.untimed.exec(pid);
                }
                if self.running.knows(id.cpu, (pid, tid)) && exec {
                    self.running.saw(id.cpu, tsc, Sign::Execs((pid, tid)));
                }
                self.names.comm(tsc, (pid, tid), name);
            }
            Event::Fork { pid, parent, tid, parent_tid, inherits } => {
                if pid != parent && inherits {
                    self.spaces.fork(parent, pid, tsc);
                    self.written.fork(parent, pid, tsc);
                }
                self.running.knows(id.cpu, (pid, tid));
                self.names.fork(tsc, (pid, tid), (parent, parent_tid));
            }
            Event::ItraceStart { pid, tid } => {
                if self.running.knows(id.cpu, (pid, tid)) {
                    if self.traced.last() != Some(&(pid, tid)) {
                        self.traced.push((pid, tid));
                    }
                    self.running.saw(id.cpu, tsc, Sign::Traced((pid, tid)));
                }
            }
            Event::Switch { out, .. } => self.running.switched(&id, tsc, out),
            Event::SchedSwitch { leaves, enters } => self.running.sampled(id.cpu, tsc, leaves, enters),
            Event::Aux { offset, size, flags } => {
                let end = offset.saturating_add(size);
                self.running.buffers.handed_out(&id, tsc, end, flags & AUX_OVERWRITE != 0);
                self.partial += u64::from(flags & AUX_PARTIAL != 0);
                if flags & AUX_TRUNCATED != 0 {
                    match flags & AUX_OVERWRITE {
                        0 => self.cut.push((id, end)),
                        _ => self.cut_somewhere += 1,
                    }
                }
            }
            Event::Lost { count } => self.lost = self.lost.saturating_add(count),
            Event::Ksymbol { address, size, out_of_line, gone, name } => {
                let function = Function { address, size: size.into(), name, ..Function::default() };
                self.kernel_changes.function(tsc, function, out_of_line, gone);
            }
            Event::TextPoke { address, old, new } => self.kernel_changes.poke(tsc, address, old, new),
            Event::Exit { pid, tid } => {
                if id.tid == Some(tid) {
                    self.running.saw(id.cpu, tsc, Sign::Exits((pid, tid)));
                }
            }
        }
    }

    /// `user_only`: whether the kernel was not traced, where that is known.
    fn finish(mut self, capture: &mut Capture, user_only: Option<bool>) -> Result<(), CaptureError> {
        capture.conversion = self.conversion;
        capture.config.reference_tsc = self.first;
        capture.config.filter = std::mem::take(&mut self.filters).finish(&mut capture.warnings);
        let changed = std::mem::take(&mut self.kernel_changes).finish(&self.bpf);
        // perf asks for changes of the kernel's code where it traces the kernel.
        let changed_code = changed.code.iter().any(|(_, mapping)| mapping.content.is_code());
        self.kernel.symbols = changed.symbols;
        kernel::map(&mut self.spaces, &self.kernel, self.options, &mut capture.warnings)?;
        kernel::change(&mut self.spaces, changed.code);
        capture.names.extend(self.names.last());
        capture.warnings.append(&mut self.written.warnings);
        capture.warnings.extend(self.written.doubts());
        for ((name, reason), times) in &self.missing {
            capture.warnings.push(format!("{name}, mapped {times} times: {reason}"));
        }
        if self.cut_somewhere > 0 {
            let what = "in buffers that are written around: where is not told";
            capture.warnings.push(format!("packets were lost {} times {what}", self.cut_somewhere));
        }
        if self.partial > 0 {
            let what = "in which it did not trace all the time: virtual machines ran, for instance";
            capture.warnings.push(format!("the kernel tells of {} stretches {what}", self.partial));
        }
        capture.warnings.extend(self.untimed.doubt());
        capture.warnings.extend(self.outsiders.warning());
        self.outsiders.leave_out(&mut self.spaces);
        // Where it is not known nothing is told of a kernel without code, as if it had not been traced.
        let traces_kernel = changed_code || self.spaces.have_code(KERNEL);
        let user_only = user_only.unwrap_or(!traces_kernel) && !self.outsiders.are_there();
        if self.lost > 0 {
            capture.warnings.push(format!("{} records of the kernel were lost", self.lost));
        }
        for (kind, count) in &self.unknown {
            let what = "what they say is left out";
            capture.warnings.push(format!("{count} records are of kind {kind}, which is not known here: {what}"));
        }
        if self.unread > 0 {
            let what = "record with a larger --proc-map-timeout";
            capture.warnings.push(format!("perf gave up to read what {} processes had mapped: {what}", self.unread));
        }
        if self.damaged > 0 {
            capture.warnings.push(format!("{} records are shorter than what they should hold", self.damaged));
        }
        if self.conversion.is_none() && !capture.streams.is_empty() {
            let of_cores = capture.streams.iter().any(|stream| matches!(stream.of, Of::Core(_)));
            let way_out = "; where the kernel does not know it (no cap_user_time_zero: its clock is another one than the TSC), record \
                           given threads with --per-thread";
            let what = "the recording does not say how its clock and the TSC belong together: nothing is split by time";
            capture.warnings.push(format!("{what}{}", if of_cores { way_out } else { "" }));
            for stream in &mut capture.streams {
                stream.begins = only_process(&stream.switches, user_only);
                stream.switches.clear();
            }
        }
        let stays = self.stays.take().unwrap_or_else(|| Stays::of_streams(&capture.streams));
        attach_with(capture, &self.spaces, stays, user_only, self.options);
        Ok(())
    }
}

/// Whether the record is of this core or thread.
fn is_of(id: &SampleId, of: Of) -> bool {
    match of {
        Of::Core(cpu) => id.cpu == Some(cpu),
        Of::Thread { tid, .. } => id.tid == Some(tid),
    }
}

/// The first thread of a core that has threads of one process only: its image holds for all of them. `user_only`: the
/// idle thread left no packets.
fn only_process(switches: &[Switch], user_only: bool) -> Option<Switch> {
    let mut told = switches.iter().filter(|switch| !(user_only && switch.tid == 0));
    let first = *told.next()?;
    told.all(|switch| switch.pid == first.pid).then_some(first)
}

#[cfg(test)]
mod tests;

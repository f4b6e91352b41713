//! One record of perf and what it says (perf_event_open(2), tools/perf/Documentation/perf.data-file-format.txt).

use super::attributes::{Attributes, SampleId};
use super::samples::Sample;
use crate::fields::{Fields, Short};
use pt_image::hex;

pub const HEAD: usize = 8;

/// A record as it stands in the file.
#[derive(Clone, Copy)]
pub struct Record<'d> {
    pub kind: u32,
    pub misc: u16,
    /// Behind the head.
    pub body: &'d [u8],
}

pub mod kind {
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const AUX: u32 = 11;
    pub const ITRACE_START: u32 = 12;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    pub const KSYMBOL: u32 = 17;
    pub const TEXT_POKE: u32 = 20;
    /// The last one of the kernel that is known: CALLCHAIN_DEFERRED of Linux 6.19, which like others tells nothing of code.
    pub const LAST_OF_KERNEL: u32 = 22;
    pub const HEADER_ATTR: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const BUILD_ID: u32 = 67;
    pub const ID_INDEX: u32 = 69;
    pub const AUXTRACE_INFO: u32 = 70;
    pub const AUXTRACE: u32 = 71;
    pub const AUXTRACE_ERROR: u32 = 72;
    pub const TIME_CONV: u32 = 79;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
    /// The last one of perf that is known: SCHEDSTAT_DOMAIN.
    pub const LAST: u32 = 86;
    /// Records from here on are perf's own: no sample id stands behind them.
    pub const USER: u32 = 64;
}

const MISC_MODE: u16 = 7;
const MODE_KERNEL: u16 = 1;
const MODE_GUEST_KERNEL: u16 = 4;
const MODE_GUEST_USER: u16 = 5;
/// perf did not read the mappings of a process to their end.
const MISC_PROC_MAP_PARSE_TIMEOUT: u16 = 1 << 12;
/// MMAP_DATA, COMM_EXEC, FORK_EXEC, SWITCH_OUT: one bit, by kind.
const MISC_13: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
/// A BPF filter left them out: they were not wanted (tools/lib/perf/include/perf/event.h of Linux).
const MISC_LOST_SAMPLES_BPF: u16 = 1 << 15;
/// PERF_RECORD_KSYMBOL_TYPE_OOL.
const KSYMBOL_OUT_OF_LINE: u16 = 2;

/// What the kernel tells about processes, in the order and with the names of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Mmap {
        pid: u32,
        kernel: bool,
        executable: bool,
        /// The process may write there; `false` also where that is not told.
        writable: bool,
        address: u64,
        size: u64,
        offset: u64,
        name: String,
        build_id: String,
    },
    Comm {
        pid: u32,
        tid: u32,
        exec: bool,
        name: String,
    },
    Fork {
        pid: u32,
        parent: u32,
        tid: u32,
        parent_tid: u32,
        /// It begins with the memory of its parent; otherwise its own is told.
        inherits: bool,
    },
    Exit {
        pid: u32,
        tid: u32,
    },
    Switch {
        out: bool,
        /// The tid of the thread on the other side, where records of all threads tell it.
        other: Option<u32>,
    },
    /// Tids.
    SchedSwitch {
        leaves: u32,
        enters: u32,
    },
    Aux {
        offset: u64,
        size: u64,
        flags: u64,
    },
    ItraceStart {
        pid: u32,
        tid: u32,
    },
    Lost {
        count: u64,
    },
    Ksymbol {
        address: u64,
        size: u32,
        /// Of the kernel's own making (a trampoline, a copy of an instruction): its code is told by records of changes.
        out_of_line: bool,
        gone: bool,
        name: String,
    },
    TextPoke {
        address: u64,
        old: Vec<u8>,
        new: Vec<u8>,
    },
    /// Tells nothing about code or threads.
    Other,
}

impl<'d> Record<'d> {
    /// The record at the offset; `None` at the end of the data.
    pub fn at(data: &'d [u8], offset: usize) -> Result<Option<Record<'d>>, String> {
        let mut fields = Fields::new(data, offset);
        if fields.left() == 0 {
            return Ok(None);
        }
        let text = |short: Short| format!("the head of a record: {short}");
        let kind = fields.u32().map_err(text)?;
        let (misc, size) = (fields.u16().map_err(text)?, fields.u16().map_err(text)?);
        let Some(size) = usize::from(size).checked_sub(HEAD) else {
            return Err(format!("a record of kind {kind} says its size is {size}; its head alone has {HEAD}"));
        };
        let body = fields.bytes(size as u64);
        let body = body.map_err(|short| format!("a record of kind {kind}: {short}"))?;
        Ok(Some(Record { kind, misc, body }))
    }

    /// Of a switch: the thread is left.
    pub fn is_switch_out(&self) -> bool {
        self.misc & MISC_13 != 0
    }

    /// The event and its sample id.
    pub fn event(&self, attributes: &Attributes) -> Result<(Event, SampleId), Short> {
        let id = match self.kind {
            kind::SAMPLE => return self.sample(attributes),
            kind if kind < kind::USER => attributes.sample_id(self.body),
            _ => SampleId::default(),
        };
        if self.is_of_guest() {
            return Ok((Event::Other, id));
        }
        let mut fields = Fields::new(self.body, 0);
        let flag = self.misc & MISC_13 != 0;
        let event = match self.kind {
            kind::MMAP | kind::MMAP2 => self.mmap(&mut fields)?,
            kind::COMM => {
                let (pid, tid) = (fields.u32()?, fields.u32()?);
                Event::Comm { pid, tid, exec: flag, name: fields.text() }
            }
            kind::FORK => {
                let (pid, parent, tid, parent_tid) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
                Event::Fork { pid, parent, tid, parent_tid, inherits: !flag }
            }
            kind::EXIT => {
                let (pid, _parent) = (fields.u32()?, fields.u32()?);
                Event::Exit { pid, tid: fields.u32()? }
            }
            kind::SWITCH => Event::Switch { out: flag, other: None },
            kind::SWITCH_CPU_WIDE => {
                let _pid = fields.u32()?;
                Event::Switch { out: flag, other: Some(fields.u32()?) }
            }
            kind::AUX => Event::Aux { offset: fields.u64()?, size: fields.u64()?, flags: fields.u64()? },
            kind::ITRACE_START => Event::ItraceStart { pid: fields.u32()?, tid: fields.u32()? },
            kind::LOST => {
                fields.u64()?;
                Event::Lost { count: fields.u64()? }
            }
            kind::LOST_SAMPLES if self.misc & MISC_LOST_SAMPLES_BPF != 0 => Event::Other,
            kind::LOST_SAMPLES => Event::Lost { count: fields.u64()? },
            kind::KSYMBOL => {
                let (address, size, out_of_line) = (fields.u64()?, fields.u32()?, fields.u16()? == KSYMBOL_OUT_OF_LINE);
                Event::Ksymbol { address, size, out_of_line, gone: fields.u16()? & 1 != 0, name: fields.text() }
            }
            kind::TEXT_POKE => {
                let (address, old, new) = (fields.u64()?, fields.u16()?, fields.u16()?);
                let old = fields.bytes(old.into())?.to_vec();
                Event::TextPoke { address, old, new: fields.bytes(new.into())?.to_vec() }
            }
            _ => Event::Other,
        };
        Ok((event, id))
    }

    /// It tells of a virtual machine, whose pids and addresses are not those of its host: `perf kvm`, `perf inject
    /// --guest-data`.
    pub fn is_of_guest(&self) -> bool {
        matches!(self.misc & MISC_MODE, MODE_GUEST_KERNEL | MODE_GUEST_USER)
    }

    /// Further mappings of its process were not recorded.
    pub fn ends_early(&self) -> bool {
        matches!(self.kind, kind::MMAP | kind::MMAP2) && self.misc & MISC_PROC_MAP_PARSE_TIMEOUT != 0
    }

    fn sample(&self, attributes: &Attributes) -> Result<(Event, SampleId), Short> {
        let Sample { id, tracepoint, raw, .. } = Sample::read(self.body, attributes)?;
        let switch = attributes.sched_switch.filter(|event| tracepoint == Some(event.id) && !self.is_of_guest());
        let event = switch.and_then(|event| event.read(&self.body[raw]));
        let event = event.map(|(leaves, enters)| Event::SchedSwitch { leaves, enters });
        Ok((event.unwrap_or(Event::Other), id))
    }

    fn mmap(&self, fields: &mut Fields<'d>) -> Result<Event, Short> {
        let pid = fields.u32()?;
        fields.u32()?;
        let (address, size, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let kernel = pid == u32::MAX || self.misc & MISC_MODE == MODE_KERNEL;
        let (mut executable, mut writable, mut build_id) = (self.misc & MISC_13 == 0, false, String::new());
        if self.kind == kind::MMAP2 {
            let identity = fields.bytes(24)?;
            if self.misc & MISC_MMAP_BUILD_ID != 0 {
                build_id = hex(&identity[4..][..usize::from(identity[0]).min(20)]);
            }
            const PROT_WRITE: u32 = 2;
            const PROT_EXEC: u32 = 4;
            const S_IFREG: u32 = 0o100_000;
            // Of the kernel and its modules perf says no protection (tools/perf/util/synthetic-events.c), of generated code in its
            // place the mode of the file that it was written to (tools/perf/util/jitdump.c).
            let protection = fields.u32()?;
            executable = protection & (PROT_EXEC | S_IFREG) != 0 || kernel;
            writable = protection & (PROT_WRITE | S_IFREG) == PROT_WRITE;
            fields.u32()?;
        }
        Ok(Event::Mmap { pid, kernel, executable, writable, address, size, offset, name: fields.text(), build_id })
    }
}

#[cfg(test)]
mod tests {
    use crate::elf;
    use crate::perf::recording::{halves, runs, text, words, Folder, Pipe, NOP_RET, USER};
    use crate::Options;

    #[test]
    fn generated_code_is_mapped_with_the_mode_of_its_file() {
        for (protection, instructions) in [(0o100_600, 2), (0o100_644, 2), (5, 2), (3, 0)] {
            let folder = Folder::new("mode");
            folder.add("jitted-7-1.so", &elf::file(USER, &NOP_RET, &[]));
            let mut pipe = Pipe::new();
            let place = [words(&[USER, 4, elf::code_at(1)]), vec![0; 24], halves(&[protection, 2])].concat();
            let id = (7, 7, 5, 0);
            pipe.event(10, 2, &[halves(&[7, 7]), place, text("/tmp/jitted-7-1.so")].concat(), id);
            pipe.enters((7, 7, 10, 0));
            pipe.ran(0, &[(100, USER)]);
            assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![instructions])], "{protection:o}");
        }
    }
}

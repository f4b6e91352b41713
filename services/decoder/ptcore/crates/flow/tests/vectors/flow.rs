//! Flow listings: instructions and events, one a line.

use super::packets::wake_name;
use super::{address, hexadecimal, Case, Listing, Verdict};
use crate::support::Sections;
use pt_flow::{
    AddressFilter, Block, CodeMemory, CodeSlice, Config, DisableKind, Execution, Flow, Loss, Notice, NoticeKind,
    Reason, Sink,
};
use pt_packet::{Packet, Reader};
use std::collections::BTreeMap;

pub fn compare(case: &Case, listing: &Listing) -> Verdict {
    let (memory, epochs) = memory(case);
    let config = Config {
        errata: listing.errata(),
        filter: filter(case),
        resume_at_address: true,
        stop_at_last_packet: true,
        ..Config::default()
    };
    let mut told = Listed::default();
    Flow::new(&memory).decode(&case.stream, &config, &epochs, &mut told);
    told.flush();
    if let Some(count) = listing.lines.iter().find_map(|line| line.strip_prefix("insn:")) {
        let count: usize = count.trim().trim_end_matches('.').parse().unwrap();
        let instructions = told.lines.iter().filter(|line| matches!(line, Line::Instruction { .. })).count();
        if instructions != count {
            return Err(format!("{instructions} instructions, listed are {count}"));
        }
    }
    if !listing.lines.iter().any(|line| address(line.trim_start_matches("? ")).is_some() || line.starts_with('[')) {
        return if listing.lines.is_empty() == told.lines.is_empty() || !listing.lines.is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}, listed is nothing", told.lines))
        };
    }
    let expected = expected(listing);
    let found: Vec<_> = told.lines.iter().filter(|line| listed(line, &expected)).cloned().collect();
    for (number, expected) in expected.iter().enumerate() {
        match found.get(number) {
            Some(found) if same(found, expected) => {}
            found => return Err(format!("line {number}: {found:?}, listed as {expected:?}; all: {:?}", told.lines)),
        }
    }
    // libipt stops at an error; here is told what packets say behind it.
    let is_event = |line: &Line| matches!(line, Line::Event { .. });
    if matches!(expected.last(), Some(Line::Error { .. })) && found[expected.len()..].iter().all(is_event) {
        return Ok(());
    }
    match found.get(expected.len()) {
        Some(more) => Err(format!("{more:?} is not listed")),
        None => Ok(()),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Instruction {
        address: u64,
        speculative: bool,
    },
    /// What comes first in the brackets, and the rest by name.
    Event {
        name: String,
        rest: BTreeMap<String, String>,
    },
    Error {
        address: u64,
        kind: &'static str,
    },
}

fn event(name: &str, rest: &[(&str, String)]) -> Line {
    let rest = rest.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Line::Event { name: name.to_owned(), rest }
}

/// Everything the listing says about code and events.
fn expected(listing: &Listing) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in &listing.lines {
        let (speculative, field) = line.strip_prefix("? ").map_or((false, line.as_str()), |rest| (true, rest));
        if let Some(address) = address(field) {
            lines.push(Line::Instruction { address, speculative });
            continue;
        }
        let Some(inner) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) else { continue };
        if inner.contains("sideband ") || inner.starts_with("context:") || inner.contains("config error:") {
            continue;
        }
        if let Some((place, text)) = inner.split_once("error: ") {
            // An error again at the same place while decoding resumes is one with the first.
            if place.ends_with("resync ") {
                continue;
            }
            let at = place.split([',', ':']).nth(1).map_or(0, |at| hexadecimal(at.trim()));
            let kind = error_kind(text);
            // The instruction that cannot be followed is listed there, and is no part of the flow here.
            if kind == "mismatch" && lines.last() == Some(&Line::Instruction { address: at, speculative: false }) {
                lines.pop();
            }
            lines.push(Line::Error { address: at, kind });
            continue;
        }
        let inner = inner.split_once("  ").filter(|(time, _)| address(time).is_some()).map_or(inner, |(_, rest)| rest);
        if matches!(inner, "tick" | "block" | "end of trace") {
            continue;
        }
        let mut parts = inner.split(", ");
        let name = parts.next().unwrap_or_default().to_owned();
        let rest = parts
            .map(|part| part.split_once(": ").unwrap_or((part, "")))
            .map(|(name, value)| (name.into(), value.into()));
        lines.push(Line::Event { name, rest: rest.collect() });
    }
    lines
}

fn error_kind(text: &str) -> &'static str {
    match text {
        "no memory mapped at this address" => "no code",
        "trace stream does not match query" => "mismatch",
        "bad status update" => "status",
        "unexpected packet context" => "packet",
        _ => "?",
    }
}

fn listed(line: &Line, expected: &[Line]) -> bool {
    // Not every listing was made with all kinds of events.
    let optional = |prefix: &str| {
        matches!(line, Line::Event { name, .. } if name.starts_with(prefix))
            && !expected.iter().any(|line| matches!(line, Line::Event { name, .. } if name.starts_with(prefix)))
    };
    !optional("interrupts ") && !optional("cbr:")
}

fn same(found: &Line, expected: &Line) -> bool {
    match (found, expected) {
        (Line::Event { name, rest }, Line::Event { name: listed, rest: listed_rest }) => {
            let bare = |rest: &BTreeMap<String, String>| -> Vec<String> {
                rest.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| name.clone()).collect()
            };
            name == listed
                && bare(rest) == bare(listed_rest)
                && listed_rest.iter().all(|(name, value)| rest.get(name) == Some(value))
        }
        // Where packets do not fit each other, nothing is said about code.
        (Line::Error { kind: "packet", .. }, Line::Error { kind: "packet", .. }) => true,
        _ => found == expected,
    }
}

/// Takes the flow down as a listing.
#[derive(Default)]
struct Listed {
    lines: Vec<Line>,
    speculative: bool,
    standing: bool,
    /// An abort ends a transaction.
    pending: Vec<Line>,
}

impl Listed {
    fn flush(&mut self) {
        self.lines.append(&mut self.pending);
    }
}

fn hex(value: u64) -> String {
    format!("{value:016x}")
}

impl Sink for Listed {
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        let speculative = self.speculative;
        self.lines.extend(block.addresses().map(|address| Line::Instruction { address, speculative }));
    }

    fn enabled(&mut self, ip: u64, resumed: bool, _tsc: u64) {
        if !std::mem::take(&mut self.standing) {
            self.lines.push(event(if resumed { "resumed" } else { "enabled" }, &[("ip", hex(ip))]));
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, _tsc: u64) {
        let mut rest = vec![];
        if kind == DisableKind::Asynchronous {
            rest.push(("at", hex(at)));
        }
        rest.extend(target.map(|ip| ("ip", hex(ip))));
        self.lines.push(event("disabled", &rest));
    }

    fn interrupt(&mut self, from: u64, to: u64, _tsc: u64) {
        self.lines.push(event("interrupt", &[("from", hex(from)), ("to", hex(to))]));
    }

    fn loss(&mut self, loss: &Loss) {
        let kind = match loss.reason {
            Reason::BeforeFirstPsb => return,
            Reason::NoCode => "no code",
            Reason::BadStatus => "status",
            Reason::UnexpectedPacket(_) if loss.address == 0 => "packet",
            Reason::UnexpectedPacket(name) if name == "CFE" || name == "EVD" => "packet",
            _ => "mismatch",
        };
        self.lines.push(Line::Error { address: loss.address, kind });
    }

    fn overflow(&mut self, _offset: usize, _from: Option<u64>, _tsc: u64) {
        self.speculative = false;
        self.lines.push(event("overflow", &[]));
    }

    fn notice(&mut self, notice: &Notice, _tsc: u64) {
        if let NoticeKind::Transaction { active, .. } = notice.kind {
            self.speculative = active;
        }
        if notice.kind == NoticeKind::Standing {
            self.standing = true;
        }
        if notice.status {
            return;
        }
        let mut rest: Vec<_> = notice.ip.map(|ip| ("ip", hex(ip))).into_iter().collect();
        let name = match notice.kind {
            NoticeKind::Standing | NoticeKind::Uncertainty(_) => return,
            NoticeKind::ExecutionMode(Execution::Bits16) => "exec mode: 16-bit".to_owned(),
            NoticeKind::ExecutionMode(Execution::Bits32) => "exec mode: 32-bit".to_owned(),
            NoticeKind::ExecutionMode(Execution::Bits64) => "exec mode: 64-bit".to_owned(),
            NoticeKind::InterruptFlag(flag) => format!("interrupts {}", if flag { "enabled" } else { "disabled" }),
            NoticeKind::Paging { cr3, non_root } => {
                rest.push(("cr3", hex(cr3)));
                rest.extend(non_root.then(|| ("nr", String::new())));
                "paging".to_owned()
            }
            NoticeKind::Vmcs { base } => {
                rest.push(("base", hex(base)));
                "vmcs".to_owned()
            }
            NoticeKind::Transaction { aborted: true, .. } => "aborted".to_owned(),
            NoticeKind::Transaction { active: true, .. } => "begin transaction".to_owned(),
            NoticeKind::Transaction { .. } => "committed".to_owned(),
            NoticeKind::PtWrite { payload, .. } => format!("ptwrite: {payload:x}"),
            NoticeKind::ExecutionStop => "exstop".to_owned(),
            NoticeKind::Mwait { hints, extensions } => format!("mwait {hints:x} {extensions:x}"),
            NoticeKind::PowerEntry { state, sub_state, hardware } => {
                let hardware = if hardware { " hw" } else { "" };
                format!("pwre c{}.{}{hardware}", (state + 1) & 15, (sub_state + 1) & 15)
            }
            NoticeKind::PowerExit { last, deepest, wake } => {
                format!("pwrx {}: c{} (c{})", wake_name(wake), (last + 1) & 15, (deepest + 1) & 15)
            }
            NoticeKind::CoreBusRatio(ratio) => format!("cbr: {ratio:x}"),
            NoticeKind::Maintenance(payload) => format!("mnt: {payload:x}"),
            NoticeKind::TraceStop => "stopped".to_owned(),
            NoticeKind::Interrupt { vector, address } => {
                rest.extend(address.map(|address| ("cr2", hex(address))));
                format!("interrupt {vector}")
            }
            NoticeKind::SoftwareInterrupt { vector } => format!("swintr {vector}"),
            NoticeKind::Iret => "iret".to_owned(),
            NoticeKind::Smi => "smi".to_owned(),
            NoticeKind::Rsm => "rsm".to_owned(),
            NoticeKind::Sipi { vector } => format!("sipi: {vector:x}"),
            NoticeKind::Init => "init".to_owned(),
            NoticeKind::VmEntry => "vmentry".to_owned(),
            NoticeKind::VmExit { vector, reason, qualification } => {
                rest.extend(vector.map(|vector| ("intr", vector.to_string())));
                rest.extend(reason.map(|reason| ("vmxr", hex(reason))));
                rest.extend(qualification.map(|qualification| ("vmxq", hex(qualification))));
                "vmexit".to_owned()
            }
            NoticeKind::Shutdown => "shutdown".to_owned(),
            NoticeKind::UserInterrupt { vector } => format!("uintr {vector}"),
            NoticeKind::UserIret => "uiret".to_owned(),
            NoticeKind::SystemCall => "syscall".to_owned(),
            // Not listed.
            NoticeKind::OtherEvent { .. } => return,
            NoticeKind::Trigger { number, multiple } => {
                rest.extend(multiple.then(|| ("mult", String::new())));
                format!("trig {number:02x}")
            }
        };
        self.lines.push(event(&name, &rest));
    }
}

/// Code by epoch.
struct Epochs(Vec<Sections>);

impl CodeMemory for Epochs {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        let slice = self.0.get(epoch as usize)?.read(epoch, address)?;
        Some(CodeSlice { generation: slice.generation << 8 | u64::from(epoch), ..slice })
    }
}

/// The traced range of the cases that have one: all but what lies outside of the first 256 bytes.
fn filter(case: &Case) -> AddressFilter {
    let ranges = if case.name.starts_with("skl014") && !case.name.contains("no_filter") {
        [Some((0x1000, 0x10ff)), None, None, None]
    } else {
        [None; 4]
    };
    AddressFilter { ranges }
}

/// The code image: at the address where the first code of the stream is, or where perf's records map it.
fn memory(case: &Case) -> (Epochs, Vec<(usize, u32)>) {
    let records = &case.packets[0].lines;
    if records.iter().any(|line| line.contains("PERF_RECORD_ITRACE_START")) {
        return mapped(case, records);
    }
    let base = if code_addresses(&case.stream).iter().any(|&ip| ip >> 20 == 1) { 0x10_0000 } else { 0x1000 };
    let mut sections = Sections::default();
    if !case.code.is_empty() {
        sections.0.insert(base, case.code.clone());
    }
    (Epochs(vec![sections]), vec![])
}

fn code_addresses(stream: &[u8]) -> Vec<u64> {
    Reader::new(stream)
        .map_while(Result::ok)
        .filter_map(|(_, packet)| match packet {
            Packet::Fup(ip) | Packet::TipPge(ip) | Packet::Tip(ip) => ip.resolve(0),
            _ => None,
        })
        .collect()
}

/// Maps as the listing tells them between the packets: `PERF_RECORD_MMAP PID/TID, ADDRESS, SIZE, OFFSET, FILE`.
fn mapped(case: &Case, records: &[String]) -> (Epochs, Vec<(usize, u32)>) {
    let mut bytes = BTreeMap::<(u64, u64), u8>::new();
    let (mut running, mut changed, mut switched) = (0, false, false);
    let (mut epochs, mut memories) = (vec![], vec![Sections::default()]);
    for line in records {
        let Some(at) = line.find("PERF_RECORD_") else {
            // The thread changes where tracing is enabled again.
            if switched && !line.contains("tip.pge") {
                continue;
            }
            if let (true, Some(offset)) = (changed, line.split_whitespace().next().and_then(address)) {
                epochs.push((offset as usize, memories.len() as u32));
                memories.push(sections(&bytes, running));
                (changed, switched) = (false, false);
            }
            continue;
        };
        changed = true;
        let fields: Vec<_> = line[at..].split([' ', ',', '/', '{', '}']).filter(|field| !field.is_empty()).collect();
        let pid = |at: usize| fields[at].parse::<u64>().unwrap();
        match fields[0] {
            "PERF_RECORD_MMAP" => {
                let [address, size, from] = [3, 4, 5].map(|at| hexadecimal(fields[at]));
                let pid = if address >> 63 != 0 { KERNEL } else { pid(1) };
                for at in 0..size {
                    if let Some(&byte) = case.code.get((from + at) as usize) {
                        bytes.insert((pid, address + at), byte);
                    }
                }
            }
            "PERF_RECORD_ITRACE_START" => running = pid(1),
            // The record of a switch for a whole processor names the thread on the other side.
            "PERF_RECORD_SWITCH.IN" | "PERF_RECORD_SWITCH_CPU_WIDE.OUT" => (running, switched) = (pid(1), true),
            "PERF_RECORD_COMM.EXEC" => bytes.retain(|&(owner, _), _| owner != pid(1)),
            _ => {}
        }
    }
    (Epochs(memories), epochs)
}

const KERNEL: u64 = u64::MAX;

fn sections(bytes: &BTreeMap<(u64, u64), u8>, running: u64) -> Sections {
    let mut sections = Sections::default();
    let mut last = None::<(u64, u64)>;
    for (&(_, address), &byte) in bytes.iter().filter(|((owner, _), _)| *owner == running || *owner == KERNEL) {
        let start = match last {
            Some((start, next)) if next == address => start,
            _ => address,
        };
        sections.0.entry(start).or_default().push(byte);
        last = Some((start, address.wrapping_add(1)));
    }
    sections
}

//! Packet listings.

use super::{address, Case, Listing, Verdict};
use pt_packet::{Compression, ErrorKind, Execution, Ip, Packet, Reader};

/// Lines that are about perf's records or about time: other parts compare those.
fn foreign(line: &str) -> bool {
    line.contains("PERF_RECORD_")
        || line.contains("calibration error:")
        || line.contains("error updating time:")
        || line.contains("error printing time:")
        || line.contains("error: unknown cpu") && line.contains("errata")
}

pub fn compare(case: &Case, listing: &Listing) -> Verdict {
    let mut reader = Reader::with_errata(&case.stream, listing.errata());
    let lines: Vec<_> =
        listing.lines.iter().filter(|line| is_packet(line) || line.contains("error decoding")).collect();
    if lines.first().and_then(|line| offset(line)).is_none_or(|first| first != 0) {
        reader.synchronize();
    }
    let mut last_ip = 0;
    let mut lines = lines.into_iter().peekable();
    loop {
        let at = reader.offset();
        let packet = match reader.read() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(error) => {
                let line = lines.next().map_or("", String::as_str);
                if error.kind != ErrorKind::Unknown
                    || !line.starts_with(&format!("[{:x}: error decoding", error.offset))
                {
                    return Err(format!("{error}, listed as {line:?}"));
                }
                reader.resynchronize();
                continue;
            }
        };
        let resolved = address_of(&packet).and_then(|ip| ip.resolve(last_ip));
        last_ip = if packet == Packet::Psb { 0 } else { resolved.unwrap_or(last_ip) };
        let fields = fields(&packet);
        let Some(line) = lines.peek() else {
            if optional(case, &packet) {
                continue;
            }
            return Err(format!("{packet:?} at {at:#x} is not listed"));
        };
        match fits(line, at, &fields, &packet, resolved) {
            Ok(()) => {
                lines.next();
            }
            Err(_) if optional(case, &packet) => {}
            Err(why) => return Err(format!("at {at:#x} {packet:?}, listed as {line:?}: {why}")),
        }
    }
    lines.next().map_or(Ok(()), |line| Err(format!("nothing for {line:?}")))
}

/// Padding is not always listed, CYC not where the case says so.
fn optional(case: &Case, packet: &Packet) -> bool {
    *packet == Packet::Pad || matches!(packet, Packet::Cyc(_)) && case.name.contains("no_cyc")
}

const NAMES: &[&str] = &[
    "pad",
    "psb",
    "psbend",
    "tnt.8",
    "tnt.64",
    "tip",
    "tip.pge",
    "tip.pgd",
    "fup",
    "pip",
    "mode.exec",
    "mode.tsx",
    "stop",
    "cbr",
    "tsc",
    "mtc",
    "tma",
    "cyc",
    "vmcs",
    "ovf",
    "mnt",
    "ptw",
    "exstop",
    "mwait",
    "pwre",
    "pwrx",
    "cfe",
    "evd",
    "trig",
    "<invalid>",
];

fn is_packet(line: &str) -> bool {
    !foreign(line) && line.split_whitespace().take(3).any(|field| NAMES.contains(&field))
}

fn offset(line: &str) -> Option<u64> {
    address(line.split_whitespace().next()?)
}

fn address_of(packet: &Packet) -> Option<Ip> {
    match *packet {
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => Some(ip),
        _ => None,
    }
}

fn fits(line: &str, at: usize, fields: &[String], packet: &Packet, resolved: Option<u64>) -> Result<(), String> {
    let mut listed: Vec<_> = line.split_whitespace().collect();
    if let Some(offset) = address(listed[0]) {
        if offset != at as u64 {
            return Err("another offset".into());
        }
        listed.remove(0);
    }
    // The bytes of the packet, where they are listed.
    if !NAMES.contains(&listed[0]) {
        listed.remove(0);
    }
    if listed.len() < fields.len() || listed.iter().zip(fields).any(|(listed, field)| listed != field) {
        return Err(format!("expected {fields:?}"));
    }
    for note in listed[fields.len()..].chunks(2) {
        let value = note.get(1).copied().unwrap_or_default();
        let fits = match note[0] {
            "ip" => resolved == address(value),
            "cr3" => matches!(packet, Packet::Pip { cr3, .. } if Some(*cr3) == address(value)),
            "vmcs" => matches!(packet, Packet::Vmcs(base) if Some(*base) == address(value)),
            "em" => match packet {
                Packet::ModeExec { mode: Execution::Bits16, .. } => value == "16-bit",
                Packet::ModeExec { mode: Execution::Bits32, .. } => value == "32-bit",
                Packet::ModeExec { mode: Execution::Bits64, .. } => value == "64-bit",
                _ => false,
            },
            // Time is compared with the flow.
            "tsc" | "fcr" => true,
            _ => false,
        };
        if !fits {
            return Err(format!("{} {value} does not fit", note[0]));
        }
    }
    Ok(())
}

/// The packet in the words of the listings.
fn fields(packet: &Packet) -> Vec<String> {
    let ip = if let Packet::Pip { .. } = packet { None } else { address_of(packet) };
    let text = match *packet {
        Packet::Pad => "pad".into(),
        Packet::Psb => "psb".into(),
        Packet::Psbend => "psbend".into(),
        Packet::Tnt { bits, count } => {
            let size = if count <= 6 { 8 } else { 64 };
            let bits: String = (0..count).rev().map(|bit| if bits >> bit & 1 != 0 { '!' } else { '.' }).collect();
            format!("tnt.{size} {bits}")
        }
        Packet::Tip(_) => "tip".into(),
        Packet::TipPge(_) => "tip.pge".into(),
        Packet::TipPgd(_) => "tip.pgd".into(),
        Packet::Fup(_) => "fup".into(),
        Packet::Pip { cr3, non_root } => format!("pip {cr3:x}{}", if non_root { ", nr" } else { "" }),
        Packet::ModeExec { mode, interrupt_flag } => {
            let size = match mode {
                Execution::Bits16 => "",
                Execution::Bits32 => "cs.d",
                Execution::Bits64 => "cs.l",
            };
            let comma = if interrupt_flag && !size.is_empty() { "," } else { "" };
            format!("mode.exec {size}{comma} {}", if interrupt_flag { "if" } else { "" })
        }
        Packet::ModeTsx { in_transaction, aborted } => {
            format!("mode.tsx {} {}", if in_transaction { "intx" } else { "" }, if aborted { "abrt" } else { "" })
        }
        Packet::TraceStop => "stop".into(),
        Packet::Cbr { ratio } => format!("cbr {ratio:x}"),
        Packet::Tsc(ticks) => format!("tsc {ticks:x}"),
        Packet::Mtc(ctc) => format!("mtc {ctc:x}"),
        Packet::Tma { ctc, fast_counter } => format!("tma {ctc:x}, {fast_counter:x}"),
        Packet::Cyc(cycles) => format!("cyc {cycles:x}"),
        Packet::Vmcs(base) => format!("vmcs {base:x}"),
        Packet::Ovf => "ovf".into(),
        Packet::Mnt(payload) => format!("mnt {payload:x}"),
        Packet::Ptw { payload, size, fup } => {
            format!("ptw {}: {payload:x}{}", u8::from(size == 8), if fup { ", ip" } else { "" })
        }
        Packet::Exstop { fup } => format!("exstop {}", if fup { "ip" } else { "" }),
        Packet::Mwait { hints, extensions } => format!("mwait {hints:08x}, {extensions:08x}"),
        Packet::Pwre { state, sub_state, hardware } => {
            format!("pwre c{}.{}{}", next(state), next(sub_state), if hardware { ", hw" } else { "" })
        }
        Packet::Pwrx { last, deepest, wake } => {
            format!("pwrx {}: c{}, c{}", wake_name(wake), next(last), next(deepest))
        }
        Packet::Cfe { kind, vector, fup } => {
            let name = CFE.get(usize::from(kind)).filter(|name| !name.is_empty()).copied().unwrap_or("unknown");
            let vector = if matches!(kind, 1 | 5 | 9 | 12 | 14) {
                if kind == 5 {
                    format!(": {vector:x}")
                } else {
                    format!(": {vector}")
                }
            } else {
                String::new()
            };
            format!("cfe {kind}{vector}{} type {name}", if fup { ", ip" } else { "" })
        }
        Packet::Evd { kind, payload } => {
            let name = ["cr2", "vmxq", "vmxr"].get(usize::from(kind)).copied().unwrap_or("unknown");
            format!("evd {kind}: {payload:x} type {name}")
        }
        Packet::Trig { number, instructions, multiple, fup } => {
            let mut text = format!("trig {number:02x}");
            text += if fup { ", ip" } else { "" };
            text += if multiple { ", mult" } else { "" };
            text + &instructions.map_or(String::new(), |count| format!(", icnt: {count}"))
        }
        Packet::Invalid => "<invalid>".into(),
        Packet::Bbp { .. } | Packet::Bip { .. } | Packet::Bep { .. } => packet.name().into(),
    };
    let mut fields: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    fields.extend(ip.into_iter().flat_map(listed_ip));
    fields
}

/// C-states as the listings count them.
fn next(state: u8) -> u8 {
    (state + 1) & 15
}

pub fn wake_name(wake: u8) -> &'static str {
    match wake {
        1 => "int",
        4 => "st",
        8 => "hw",
        _ => "?",
    }
}

const CFE: &[&str] = &[
    "",
    "intr",
    "iret",
    "smi",
    "rsm",
    "sipi",
    "init",
    "vmentry",
    "vmexit",
    "vmexit_intr",
    "shutdown",
    "",
    "uintr",
    "uiret",
    "swintr",
    "syscall",
];

fn listed_ip(ip: Ip) -> [String; 2] {
    let payload = ip.payload;
    let digits = match ip.compression {
        Compression::Suppressed => "?".repeat(16),
        Compression::Update16 => format!("{}{payload:04x}", "?".repeat(12)),
        Compression::Update32 => format!("{}{payload:08x}", "?".repeat(8)),
        Compression::SignExtend48 => format!("{:016x}", ip.resolve(0).unwrap_or(0)),
        Compression::Update48 => format!("????{payload:012x}"),
        Compression::Full => format!("{payload:016x}"),
    };
    [format!("{}:", ip.compression as u8), digits]
}

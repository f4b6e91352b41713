//! The packet layer.

use super::Equal;
use pt_flow::{Config, Execution};
use pt_packet::{ErrorKind, Ip, Packet, Reader};

pub fn compare(lines: &mut dyn Iterator<Item = String>, stream: &[u8], config: &Config) -> Result<Equal, String> {
    let mut equal = Equal::default();
    let mut reader = Reader::with_errata(stream, config.errata);
    let mut synchronized = reader.synchronize();
    while synchronized.is_some() {
        loop {
            let offset = reader.offset();
            let told = match reader.read() {
                Ok(None) => break,
                Ok(Some(packet)) => line(&packet),
                Err(error) => {
                    equal.errors += 1;
                    match error.kind {
                        ErrorKind::Unknown => "error unknown opcode".to_owned(),
                        ErrorKind::Truncated => "error reached end of trace stream".to_owned(),
                    }
                }
            };
            let listed = lines.next().unwrap_or_default();
            // A bad opcode and a bad payload have names of their own there.
            let listed = listed.replace("error unknown packet", "error unknown opcode");
            if listed != format!("{offset:x} {told}") {
                return Err(format!("packet {}: libipt {listed:?}, here \"{offset:x} {told}\"", equal.packets));
            }
            if told.starts_with("error") {
                break;
            }
            equal.packets += 1;
        }
        synchronized = reader.resynchronize();
    }
    match lines.next() {
        Some(more) => Err(format!("behind packet {}: libipt {more:?}, here nothing", equal.packets)),
        None => Ok(equal),
    }
}

fn with_ip(name: &str, ip: Ip) -> String {
    format!("{name} {:x} {:x}", ip.compression as u8, ip.payload)
}

fn line(packet: &Packet) -> String {
    match *packet {
        Packet::Tip(ip) => with_ip("tip", ip),
        Packet::TipPge(ip) => with_ip("tip.pge", ip),
        Packet::TipPgd(ip) => with_ip("tip.pgd", ip),
        Packet::Fup(ip) => with_ip("fup", ip),
        Packet::Tnt { bits, count } => format!("tnt {count:x} {bits:x}"),
        Packet::ModeExec { mode, .. } => format!("mode.exec {}", mode_number(mode)),
        Packet::ModeTsx { in_transaction, aborted } => {
            format!("mode.tsx {} {}", u8::from(in_transaction), u8::from(aborted))
        }
        Packet::Pip { cr3, non_root } => format!("pip {cr3:x} {}", u8::from(non_root)),
        Packet::Vmcs(base) => format!("vmcs {base:x}"),
        Packet::Cbr { ratio } => format!("cbr {ratio:x}"),
        Packet::Tsc(ticks) => format!("tsc {ticks:x}"),
        Packet::Tma { ctc, fast_counter } => format!("tma {ctc:x} {fast_counter:x}"),
        Packet::Mtc(crystal) => format!("mtc {crystal:x}"),
        Packet::Cyc(cycles) => format!("cyc {cycles:x}"),
        Packet::TraceStop => "stop".to_owned(),
        Packet::Mnt(payload) => format!("mnt {payload:x}"),
        Packet::Exstop { fup } => format!("exstop {}", u8::from(fup)),
        Packet::Mwait { hints, extensions } => format!("mwait {hints:x} {extensions:x}"),
        Packet::Pwre { state, sub_state, hardware } => {
            format!("pwre {state:x} {sub_state:x} {}", u8::from(hardware))
        }
        Packet::Pwrx { last, deepest, wake } => {
            format!("pwrx {last:x} {deepest:x} {} {} {}", wake & 1, wake >> 2 & 1, wake >> 3 & 1)
        }
        Packet::Ptw { payload, size, fup } => format!("ptw {size:x} {payload:x} {}", u8::from(fup)),
        Packet::Invalid => "unknown".to_owned(),
        other => other.name().to_lowercase(),
    }
}

/// libipt's number of a mode (`enum pt_exec_mode`).
pub fn mode_number(mode: Execution) -> u8 {
    match mode {
        Execution::Bits16 => 1,
        Execution::Bits32 => 2,
        Execution::Bits64 => 3,
    }
}

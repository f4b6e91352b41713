//! The packets of a stream.

use crate::notice::bits;
use crate::{Form, Lines, Row, Value};
use pt_packet::{find_psb, Compression, Errata, Ip, Packet, Reader};
use std::fmt::Write;

/// Writes the packets of the stream whose offset is wanted, from the first PSB on: nothing says where packets begin
/// before it. After bytes that are none it goes on at the next PSB.
pub fn packets(data: &[u8], errata: Errata, stream: &str, wanted: impl Fn(usize) -> bool, lines: &mut Lines<'_>) {
    let mut reader = Reader::with_errata(data, errata);
    let mut addresses = Addresses::default();
    let first = find_psb(data, 0).unwrap_or(data.len());
    if first > 0 && wanted(0) {
        write_error(lines, stream, 0, first, NO_PSB);
    }
    reader.seek(first);
    loop {
        let offset = reader.offset();
        match reader.read() {
            Ok(Some(packet)) => {
                let (size, address) = (reader.offset() - offset, addresses.of(&packet));
                if wanted(offset) {
                    write_packet(lines, stream, offset, size, &packet, address);
                }
            }
            Ok(None) => return,
            Err(error) => {
                let next = find_psb(data, error.offset + 1).unwrap_or(data.len());
                let told = error.to_string();
                let told = told.split_once(": ").map_or(&*told, |(_, what)| what);
                if wanted(error.offset) {
                    write_error(lines, stream, error.offset, next - error.offset, told);
                }
                addresses = Addresses::default();
                reader.seek(next);
            }
        }
    }
}

/// What is wrong with bytes before the first PSB.
pub const NO_PSB: &str = "no synchronization point before";

/// Completes the addresses in packets (SDM section "IP Compression").
#[derive(Default)]
struct Addresses {
    last: u64,
}

impl Addresses {
    fn of(&mut self, packet: &Packet) -> Option<u64> {
        let ip = match packet {
            Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => ip,
            Packet::Psb => {
                self.last = 0;
                return None;
            }
            _ => return None,
        };
        let address = ip.resolve(self.last);
        self.last = address.unwrap_or(self.last);
        address
    }
}

fn write_packet(
    lines: &mut Lines<'_>,
    stream: &str,
    offset: usize,
    size: usize,
    packet: &Packet,
    address: Option<u64>,
) {
    let form = lines.form;
    let line = lines.begin();
    if form == Form::Text {
        let _ = write!(line, "{offset:>10x}  {:<10}", packet.name());
    }
    let mut row = Row::new(form, line);
    row.more("stream", Value::Word(stream)).more("offset", Value::Number(offset as u64));
    row.more("size_bytes", Value::Number(size as u64)).more("packet", Value::Word(packet.name()));
    payload(&mut row, packet, address);
    row.end();
    if form == Form::Text {
        let kept = line.trim_end_matches(' ').len();
        line.truncate(kept);
    }
    lines.end();
}

fn write_error(lines: &mut Lines<'_>, stream: &str, offset: usize, size: usize, told: &str) {
    let form = lines.form;
    let line = lines.begin();
    if form == Form::Text {
        let _ = write!(line, "{offset:>10x}  error: {told}; {size} bytes skipped");
    } else {
        let mut row = Row::new(form, line);
        row.more("stream", Value::Word(stream)).more("offset", Value::Number(offset as u64));
        row.more("size_bytes", Value::Number(size as u64)).more("error", Value::Word(told));
        row.end();
    }
    lines.end();
}

fn payload(row: &mut Row<'_>, packet: &Packet, address: Option<u64>) {
    match *packet {
        Packet::Tnt { bits, count } => {
            let mut branches = [b'N'; 64];
            for (place, branch) in branches.iter_mut().take(count.into()).enumerate() {
                if bits >> (usize::from(count) - 1 - place) & 1 != 0 {
                    *branch = b'T';
                }
            }
            let text = std::str::from_utf8(&branches[..count.into()]).unwrap_or_default();
            row.put("branches", "", Value::Word(text)).more("count", Value::Number(count.into()))
        }
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => {
            let value = address.map_or(Value::Unknown, Value::Hex);
            row.put("ip", "", value).put("suppressed", "no address", Value::Flag(address.is_none()));
            row.more("ip_bytes", Value::Number(ip_bytes(ip)))
        }
        Packet::Pip { cr3, non_root } => {
            row.put("cr3", "cr3", Value::Hex(cr3)).put("non_root", "non-root", Value::Flag(non_root))
        }
        Packet::ModeExec { mode, interrupt_flag } => row.put("bits", "bits", Value::Number(bits(mode).into())).put(
            "interrupts",
            "interrupts",
            Value::Flag(interrupt_flag),
        ),
        Packet::ModeTsx { in_transaction, aborted } => row
            .put("in_transaction", "in transaction", Value::Flag(in_transaction))
            .put("aborted", "aborted", Value::Flag(aborted)),
        Packet::Cbr { ratio } => row.put("ratio", "", Value::Number(ratio.into())),
        Packet::Tsc(ticks) => row.put("tsc", "", Value::Number(ticks)),
        Packet::Mtc(ctc) => row.put("ctc", "", Value::Number(ctc.into())),
        Packet::Tma { ctc, fast_counter } => {
            row.put("ctc", "ctc", Value::Number(ctc.into())).put("fc", "fc", Value::Number(fast_counter.into()))
        }
        Packet::Cyc(cycles) => row.put("cycles", "", Value::Number(cycles)),
        Packet::Vmcs(base) => row.put("base", "", Value::Hex(base)),
        Packet::Mnt(payload) => row.put("payload", "", Value::Hex(payload)),
        Packet::Ptw { payload, size, fup } => row
            .put("payload", "", Value::Hex(payload))
            .put("payload_bytes", "bytes", Value::Number(size.into()))
            .put("fup", "fup", Value::Flag(fup)),
        Packet::Exstop { fup } | Packet::Bep { fup } => row.put("fup", "fup", Value::Flag(fup)),
        Packet::Mwait { hints, extensions } => row.put("hints", "hints", Value::Hex(hints.into())).put(
            "extensions",
            "extensions",
            Value::Hex(extensions.into()),
        ),
        Packet::Pwre { state, sub_state, hardware } => row
            .put("state", "state", Value::Number(state.into()))
            .put("sub_state", "sub-state", Value::Number(sub_state.into()))
            .put("hardware", "hardware", Value::Flag(hardware)),
        Packet::Pwrx { last, deepest, wake } => row
            .put("last", "last", Value::Number(last.into()))
            .put("deepest", "deepest", Value::Number(deepest.into()))
            .put("wake", "wake", Value::Hex(wake.into())),
        Packet::Cfe { kind, vector, fup } => row
            .put("kind", "kind", Value::Number(kind.into()))
            .put("vector", "vector", Value::Number(vector.into()))
            .put("fup", "fup", Value::Flag(fup)),
        Packet::Evd { kind, payload } => {
            row.put("kind", "kind", Value::Number(kind.into())).put("payload", "payload", Value::Hex(payload))
        }
        Packet::Bbp { kind, size } => row.put("kind", "kind", Value::Number(kind.into())).put(
            "payload_bytes",
            "bytes",
            Value::Number(size.into()),
        ),
        Packet::Bip { id, payload } => {
            row.put("id", "id", Value::Number(id.into())).put("payload", "payload", Value::Hex(payload))
        }
        Packet::Trig { number, instructions, multiple, fup } => row
            .put("number", "", Value::Number(number.into()))
            .put(
                "instructions",
                "instructions",
                instructions.map_or(Value::Unknown, |count| Value::Number(count.into())),
            )
            .put("multiple", "multiple", Value::Flag(multiple))
            .put("fup", "fup", Value::Flag(fup)),
        _ => row,
    };
}

fn ip_bytes(ip: Ip) -> u64 {
    match ip.compression {
        Compression::Suppressed => 0,
        Compression::Update16 => 2,
        Compression::Update32 => 4,
        Compression::SignExtend48 | Compression::Update48 => 6,
        Compression::Full => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_packet::writer::write;

    fn listed(form: Form, data: &[u8]) -> Vec<String> {
        let mut told = String::new();
        let mut lines = Lines::new(form, |batch| {
            told.push_str(&batch);
            true
        });
        packets(data, Errata::default(), "7", |_| true, &mut lines);
        lines.flush();
        drop(lines);
        told.lines().map(str::to_owned).collect()
    }

    fn stream() -> Vec<u8> {
        let mut data = Vec::new();
        let near = Ip { compression: Compression::Update16, payload: 0x1234 };
        for packet in [
            Packet::Psb,
            Packet::Fup(Ip { compression: Compression::Full, payload: 0x40_5678 }),
            Packet::Psbend,
            Packet::Tip(near),
            Packet::TipPgd(Ip::SUPPRESSED),
            Packet::Tnt { bits: 0b101, count: 4 },
        ] {
            write(&mut data, packet);
        }
        data
    }

    #[test]
    fn a_line_is_offset_name_and_payload_with_the_address_completed() {
        assert_eq!(
            listed(Form::Text, &stream()),
            [
                "         0  PSB",
                "        10  FUP       0x405678",
                "        19  PSBEND",
                "        1b  TIP       0x401234",
                "        1e  TIP.PGD   no address",
                "        1f  TNT       NTNT",
            ]
        );
    }

    #[test]
    fn programs_get_an_object_a_line() {
        let told = listed(Form::Json, &stream());
        assert_eq!(told[0], r#"{"stream":"7","offset":0,"size_bytes":16,"packet":"PSB"}"#);
        let tip = r#"{"stream":"7","offset":27,"size_bytes":3,"packet":"TIP","ip":"0x401234","suppressed":false,"ip_bytes":2}"#;
        assert_eq!(told[3], tip);
    }

    #[test]
    fn behind_bytes_that_are_no_packet_it_goes_on_at_the_next_psb() {
        let mut data = stream();
        data.extend([0x05, 0, 0, 0, 0]);
        data.extend(stream());
        let told = listed(Form::Text, &data);
        assert_eq!(told[6], "        20  error: no packet begins with 05 00 00 00; 5 bytes skipped");
        let late = listed(Form::Text, &data[1..]);
        assert_eq!(late[0], "         0  error: no synchronization point before; 36 bytes skipped");
        assert_eq!(late[1], "        24  PSB");
        assert_eq!(told[7], "        25  PSB");
        assert_eq!(told.len(), 13);
        assert_eq!(
            listed(Form::Json, &data)[6],
            r#"{"stream":"7","offset":32,"size_bytes":5,"error":"no packet begins with 05 00 00 00"}"#
        );
    }
}

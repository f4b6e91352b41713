//! Packets to bytes: for tests and tools that make streams.

use crate::{Compression, Execution, Ip, Packet, PSB};

/// Appends `packet` as the processor would write it. TNT packets of up to 6 branches are short, of up to 47 long.
///
/// # Panics
/// When a TNT packet has no branch or more than 47.
pub fn write(out: &mut Vec<u8>, packet: Packet) {
    match packet {
        Packet::Pad => out.push(0),
        Packet::Psb => out.extend(PSB),
        Packet::Psbend => out.extend([0x02, 0x23]),
        Packet::Tnt { bits, count } => tnt(out, bits, count),
        Packet::Tip(ip) => with_ip(out, 0x0d, ip),
        Packet::TipPge(ip) => with_ip(out, 0x11, ip),
        Packet::TipPgd(ip) => with_ip(out, 0x01, ip),
        Packet::Fup(ip) => with_ip(out, 0x1d, ip),
        Packet::Pip { cr3, non_root } => sized(out, &[0x02, 0x43], cr3 >> 5 << 1 | u64::from(non_root), 6),
        Packet::ModeExec { mode, interrupt_flag } => {
            let bits = match mode {
                Execution::Bits16 => 0,
                Execution::Bits64 => 1,
                Execution::Bits32 => 2,
            };
            out.extend([0x99, bits | u8::from(interrupt_flag) << 2]);
        }
        Packet::ModeTsx { in_transaction, aborted } => {
            out.extend([0x99, 0x20 | u8::from(in_transaction) | u8::from(aborted) << 1]);
        }
        Packet::TraceStop => out.extend([0x02, 0x83]),
        Packet::Cbr { ratio } => out.extend([0x02, 0x03, ratio, 0]),
        Packet::Tsc(ticks) => sized(out, &[0x19], ticks, 7),
        Packet::Mtc(ctc) => out.extend([0x59, ctc]),
        Packet::Tma { ctc, fast_counter } => {
            sized(out, &[0x02, 0x73], u64::from(ctc) | u64::from(fast_counter) << 24, 5);
        }
        Packet::Cyc(cycles) => cyc(out, cycles),
        Packet::Vmcs(base) => sized(out, &[0x02, 0xc8], base >> 12, 5),
        Packet::Ovf => out.extend([0x02, 0xf3]),
        Packet::Mnt(payload) => sized(out, &[0x02, 0xc3, 0x88], payload, 8),
        Packet::Ptw { payload, size, fup } => {
            let second = 0x12 | u8::from(size == 8) << 5 | u8::from(fup) << 7;
            sized(out, &[0x02, second], payload, size.into());
        }
        Packet::Exstop { fup } => out.extend([0x02, 0x62 | u8::from(fup) << 7]),
        Packet::Mwait { hints, extensions } => {
            sized(out, &[0x02, 0xc2], u64::from(hints) | u64::from(extensions) << 32, 8);
        }
        Packet::Pwre { state, sub_state, hardware } => {
            out.extend([0x02, 0x22, u8::from(hardware) << 7, state << 4 | sub_state]);
        }
        Packet::Pwrx { last, deepest, wake } => {
            sized(out, &[0x02, 0xa2], u64::from(last << 4 | deepest) | u64::from(wake) << 8, 5);
        }
        Packet::Cfe { kind, vector, fup } => out.extend([0x02, 0x13, kind | u8::from(fup) << 7, vector]),
        Packet::Evd { kind, payload } => sized(out, &[0x02, 0x53, kind], payload, 8),
        Packet::Bbp { kind, size } => out.extend([0x02, 0x63, kind | u8::from(size == 4) << 7]),
        // The width stands in the BBP before, which a single packet does not know: the widest.
        Packet::Bip { id, payload } => sized(out, &[id << 3 | 4], payload, 8),
        Packet::Trig { number, instructions, multiple, fup } => {
            let counted = u8::from(instructions.is_some()) << 6;
            out.extend([0xd9, u8::from(fup) << 7 | counted | u8::from(multiple) << 5, number]);
            out.extend(instructions.map_or(vec![], |count| count.to_le_bytes().to_vec()));
        }
        // A TMA with a reserved bit, as SKZ84 has it.
        Packet::Invalid => out.extend([0x02, 0x73, 0, 0, 1, 0, 0]),
        Packet::Bep { fup } => out.extend([0x02, 0x33 | u8::from(fup) << 7]),
    }
}

fn sized(out: &mut Vec<u8>, head: &[u8], payload: u64, size: usize) {
    out.extend(head);
    out.extend(&payload.to_le_bytes()[..size]);
}

fn with_ip(out: &mut Vec<u8>, opcode: u8, ip: Ip) {
    let size = match ip.compression {
        Compression::Suppressed => 0,
        Compression::Update16 => 2,
        Compression::Update32 => 4,
        Compression::SignExtend48 | Compression::Update48 => 6,
        Compression::Full => 8,
    };
    sized(out, &[opcode | (ip.compression as u8) << 5], ip.payload, size);
}

fn tnt(out: &mut Vec<u8>, bits: u64, count: u8) {
    assert!((1..=47).contains(&count), "a TNT packet holds 1 to 47 branches, not {count}");
    let with_stop = 1 << count | bits;
    if count <= 6 {
        out.push((with_stop << 1) as u8);
    } else {
        sized(out, &[0x02, 0xa3], with_stop, 6);
    }
}

fn cyc(out: &mut Vec<u8>, cycles: u64) {
    let mut rest = cycles >> 5;
    out.push(3 | u8::from(rest != 0) << 2 | (cycles as u8 & 0x1f) << 3);
    while rest != 0 {
        let low = (rest as u8 & 0x7f) << 1;
        rest >>= 7;
        out.push(low | u8::from(rest != 0));
    }
}

//! Packets that mean the same wherever they stand.

use super::extended::extended;
use super::frequent::short_tnt;
use super::payload::number;
use super::ErrorKind;
use crate::{Compression, Execution, Ip, Packet};

/// The packet at the front of `rest`, which begins with `first`, and how many bytes it has.
#[inline(always)]
pub fn stateless(rest: &[u8], first: u8) -> Result<(Packet, usize), ErrorKind> {
    let payload = |size| number(rest, 1, size).ok_or(ErrorKind::Truncated);
    Ok(match first {
        0x00 => (Packet::Pad, 1),
        0x02 => return extended(rest),
        0x19 => (Packet::Tsc(payload(7)?), 8),
        0x59 => (Packet::Mtc(payload(1)? as u8), 2),
        0x99 => (mode(payload(1)? as u8).ok_or(ErrorKind::Unknown)?, 2),
        0xd9 => return trig(rest),
        _ if first & 3 == 3 => return cyc(rest, first),
        _ if first & 1 == 1 => return with_ip(rest, first),
        _ => (short_tnt(first), 1),
    })
}

fn with_ip(rest: &[u8], first: u8) -> Result<(Packet, usize), ErrorKind> {
    let (compression, size) = match first >> 5 {
        0 => (Compression::Suppressed, 0),
        1 => (Compression::Update16, 2),
        2 => (Compression::Update32, 4),
        3 => (Compression::SignExtend48, 6),
        4 => (Compression::Update48, 6),
        6 => (Compression::Full, 8),
        _ => return Err(ErrorKind::Unknown),
    };
    let ip = Ip { compression, payload: number(rest, 1, size).ok_or(ErrorKind::Truncated)? };
    let packet = match first & 0x1f {
        0x0d => Packet::Tip(ip),
        0x11 => Packet::TipPge(ip),
        0x01 => Packet::TipPgd(ip),
        0x1d => Packet::Fup(ip),
        _ => return Err(ErrorKind::Unknown),
    };
    Ok((packet, 1 + size))
}

fn trig(rest: &[u8]) -> Result<(Packet, usize), ErrorKind> {
    let number = |at, size| number(rest, at, size).ok_or(ErrorKind::Truncated);
    let flags = number(1, 1)?;
    if flags & 0x1f != 0 {
        return Err(ErrorKind::Unknown);
    }
    let counted = flags & 0x40 != 0;
    let packet = Packet::Trig {
        number: number(2, 1)? as u8,
        instructions: if counted { Some(number(3, 2)? as u16) } else { None },
        multiple: flags & 0x20 != 0,
        fup: flags & 0x80 != 0,
    };
    Ok((packet, if counted { 5 } else { 3 }))
}

fn cyc(rest: &[u8], first: u8) -> Result<(Packet, usize), ErrorKind> {
    let mut value = u64::from(first >> 3);
    let (mut more, mut shift, mut size) = (first & 4 != 0, 5, 1);
    while more {
        let Some(&byte) = rest.get(size) else {
            return Err(ErrorKind::Truncated);
        };
        // A count that is not of 64 bits.
        if shift + 7 > u64::BITS {
            return Err(ErrorKind::Unknown);
        }
        value |= u64::from(byte >> 1) << shift;
        (more, shift, size) = (byte & 1 != 0, shift + 7, size + 1);
    }
    Ok((Packet::Cyc(value), size))
}

fn mode(byte: u8) -> Option<Packet> {
    match byte >> 5 {
        0 => {
            let mode = match byte & 3 {
                0 => Execution::Bits16,
                1 => Execution::Bits64,
                2 => Execution::Bits32,
                _ => return None,
            };
            Some(Packet::ModeExec { mode, interrupt_flag: byte & 4 != 0 })
        }
        1 => Some(Packet::ModeTsx { in_transaction: byte & 1 != 0, aborted: byte & 2 != 0 }),
        _ => None,
    }
}

//! Packets that begin with 02: most kinds of packets, and few of those in a trace.

use super::payload::number;
use super::{ErrorKind, PSB};
use crate::Packet;

/// The HW bit of PWRE, which the manual's editions put at bit 7 or bit 3 of a byte that is otherwise zero.
const HARDWARE: u64 = 0x88;

/// Packets that begin with 02.
pub fn extended(rest: &[u8]) -> Result<(Packet, usize), ErrorKind> {
    let Some(&second) = rest.get(1) else {
        return Err(ErrorKind::Truncated);
    };
    let payload = |at, size| number(rest, at, size).ok_or(ErrorKind::Truncated);
    Ok(match second {
        0xa3 => {
            let word = payload(2, 6)?;
            // A branch at least, and behind them the stop bit.
            if word <= 1 {
                return Err(ErrorKind::Unknown);
            }
            let count = 63 - word.leading_zeros();
            (Packet::Tnt { bits: word & !(1 << count), count: count as u8 }, 8)
        }
        0x43 => {
            let word = payload(2, 6)?;
            (Packet::Pip { cr3: word >> 1 << 5, non_root: word & 1 != 0 }, 8)
        }
        0xf3 => (Packet::Ovf, 2),
        0x82 => {
            let given = &rest[..rest.len().min(PSB.len())];
            if given != &PSB[..given.len()] {
                return Err(ErrorKind::Unknown);
            }
            if given.len() < PSB.len() {
                return Err(ErrorKind::Truncated);
            }
            (Packet::Psb, PSB.len())
        }
        0x23 => (Packet::Psbend, 2),
        0x03 => (Packet::Cbr { ratio: payload(2, 2)? as u8 }, 4),
        0x83 => (Packet::TraceStop, 2),
        0x73 => {
            let word = payload(2, 5)?;
            if word & 0xfe_00ff_0000 != 0 {
                return Err(ErrorKind::Unknown);
            }
            (Packet::Tma { ctc: word as u16, fast_counter: (word >> 24) as u16 & 0x1ff }, 7)
        }
        0xc8 => (Packet::Vmcs(payload(2, 5)? << 12), 7),
        0xc3 => match rest.get(2) {
            Some(0x88) => (Packet::Mnt(payload(3, 8)?), 11),
            Some(_) => return Err(ErrorKind::Unknown),
            None => return Err(ErrorKind::Truncated),
        },
        0x62 | 0xe2 => (Packet::Exstop { fup: second & 0x80 != 0 }, 2),
        0xc2 => {
            let word = payload(2, 8)?;
            (Packet::Mwait { hints: word as u32, extensions: (word >> 32) as u32 }, 10)
        }
        0x22 => {
            let word = payload(2, 2)?;
            let (state, sub_state) = ((word >> 12) as u8 & 15, (word >> 8) as u8 & 15);
            (Packet::Pwre { state, sub_state, hardware: word & HARDWARE != 0 }, 4)
        }
        0xa2 => {
            let word = payload(2, 5)?;
            let (last, deepest, wake) = ((word >> 4) as u8 & 15, word as u8 & 15, (word >> 8) as u8 & 15);
            (Packet::Pwrx { last, deepest, wake }, 7)
        }
        0x13 | 0x93 => {
            let word = payload(2, 2)?;
            let fup = word & 0x80 != 0;
            if second & 0x80 != 0 {
                return Err(ErrorKind::Unknown);
            }
            (Packet::Cfe { kind: word as u8 & 0x1f, vector: (word >> 8) as u8, fup }, 4)
        }
        0x53 => (Packet::Evd { kind: payload(2, 1)? as u8 & 0x3f, payload: payload(3, 8)? }, 11),
        0x63 => {
            let byte = payload(2, 1)? as u8;
            (Packet::Bbp { kind: byte & 0x1f, size: if byte & 0x80 != 0 { 4 } else { 8 } }, 3)
        }
        0x33 | 0xb3 => (Packet::Bep { fup: second & 0x80 != 0 }, 2),
        _ if second & 0x1f == 0x12 => {
            let size = match second >> 5 & 3 {
                0 => 4,
                1 => 8,
                _ => return Err(ErrorKind::Unknown),
            };
            (Packet::Ptw { payload: payload(2, size)?, size: size as u8, fup: second & 0x80 != 0 }, 2 + size)
        }
        _ => return Err(ErrorKind::Unknown),
    })
}

//! The packets that a trace consists of almost wholly.

use super::{OVF, ROOM};
use crate::{Compression, Ip, Packet};

/// Bytes of the IP by its compression; 0 where there is none.
pub const IP_SIZES: [u8; 8] = [0, 2, 4, 6, 6, 0, 8, 0];
/// The bits that they have.
const IP_MASKS: [u64; 8] = [0, 0xffff, 0xffff_ffff, 0xffff_ffff_ffff, 0xffff_ffff_ffff, 0, u64::MAX, 0];

/// Those packets that a trace consists of almost wholly, where bytes behind them spare every look at the end.
#[inline(always)]
pub fn frequent(ahead: &[u8; ROOM]) -> Option<(Packet, usize)> {
    let [first, second, ..] = *ahead;
    if first & 1 == 0 {
        return match first {
            0 => Some((Packet::Pad, 1)),
            2 => None,
            _ => Some((short_tnt(first), 1)),
        };
    }
    if first & 2 != 0 {
        // Without a branch: whether a CYC has one byte or two cannot be foretold.
        let word = u32::from_le_bytes(*ahead.first_chunk()?);
        let more = word >> 2 & 1;
        // What is behind its first byte may be an OVF.
        if word >> 8 & more != 0 || word & 0xff_ff00 == u32::from_le_bytes([0, OVF[0], OVF[1], 0]) {
            return None;
        }
        let value = u64::from((word >> 3 & 0x1f) | ((word >> 4 & 0xfe0) * more));
        let size = 1 + more as usize;
        return Some((Packet::Cyc(value), size));
    }
    if first & 0x1f == 0x0d {
        let size = IP_SIZES[usize::from(first >> 5)];
        let payload = u64::from_le_bytes(*ahead[1..].first_chunk::<8>()?) & IP_MASKS[usize::from(first >> 5)];
        let ip = Ip { compression: Compression::of(first >> 5)?, payload };
        return Some((Packet::Tip(ip), 1 + usize::from(size)));
    }
    (first == 0x59).then_some((Packet::Mtc(second), 2))
}

#[inline(always)]
pub fn short_tnt(first: u8) -> Packet {
    let (bits, count) = BRANCHES[usize::from(first >> 1)];
    Packet::Tnt { bits: bits.into(), count }
}

/// The branches of a TNT of one byte by all bits but its lowest.
const BRANCHES: [(u8, u8); 128] = {
    let mut branches = [(0, 0); 128];
    let mut bits = 2;
    while bits < 128 {
        let count = 7 - (bits as u8).leading_zeros() as u8;
        branches[bits] = (bits as u8 & ((1 << count) - 1), count);
        bits += 1;
    }
    branches
};

//! What a damaged stream and its code say where libipt and this decoder differ.

use crate::support::Sections;
use pt_packet::{ErrorKind, Execution, Packet, Reader, PSB};

pub struct Packets<'s>(pub &'s [u8]);

impl<'s> Packets<'s> {
    fn from(&self, offset: usize) -> Reader<'s> {
        let mut reader = Reader::new(self.0);
        reader.seek(offset);
        reader
    }

    /// Whether the packet at `end` says where execution is without anything from before, and no PSB comes first.
    pub fn go_on(&self, begin: usize, end: usize) -> bool {
        let goes_on = matches!(self.from(end).read(), Ok(Some(Packet::TipPge(_) | Packet::Fup(_) | Packet::Ovf)));
        goes_on && !self.0[begin..end].windows(PSB.len()).any(|bytes| bytes == PSB)
    }

    /// Whether what stands there is no packet, or a PSB+ without an end.
    pub fn are_bad_at(&self, offset: usize) -> bool {
        let mut reader = self.from(offset);
        match reader.read() {
            Err(_) => true,
            Ok(Some(Packet::Psb)) => loop {
                match reader.read() {
                    Ok(Some(Packet::Psbend)) => return false,
                    Ok(Some(Packet::Tnt { .. } | Packet::Tip(_) | Packet::Cbr { ratio: 0 }) | None) | Err(_) => {
                        return true
                    }
                    Ok(Some(_)) => {}
                }
            },
            Ok(_) => false,
        }
    }

    /// Whether that is so right behind the packet that stands there.
    pub fn are_bad_behind(&self, offset: usize) -> bool {
        let mut reader = self.from(offset);
        if !matches!(reader.read(), Ok(Some(_))) {
            return false;
        }
        reader.skip_pads(usize::MAX);
        self.are_bad_at(reader.offset())
    }

    /// Whether what follows is no packet, a target without an address, or a clock of no ratio, up to the end of the next PSB+.
    pub fn go_bad_from(&self, offset: usize) -> bool {
        let mut reader = self.from(offset);
        loop {
            let at = reader.offset();
            match reader.read() {
                Err(_) => return true,
                Ok(Some(Packet::Tip(ip) | Packet::TipPge(ip) | Packet::Fup(ip))) if ip.resolve(0).is_none() => {
                    return true
                }
                Ok(Some(Packet::Cbr { ratio: 0 })) => return true,
                Ok(Some(Packet::Psb)) => return self.are_bad_at(at),
                Ok(None) => return false,
                Ok(Some(_)) => {}
            }
        }
    }

    /// Whether the last packet is cut off.
    pub fn end_within_one(&self) -> bool {
        let psb = self.0.windows(PSB.len()).rposition(|bytes| bytes == PSB);
        let mut reader = self.from(psb.unwrap_or(0));
        loop {
            match reader.read() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(error) => return error.kind == ErrorKind::Truncated,
            }
        }
    }

    /// Whether the last packet is a MODE.Exec.
    pub fn end_with_a_mode(&self) -> bool {
        let packets = self.between(0, self.0.len());
        matches!(packets.iter().rfind(|packet| **packet != Packet::Pad), Some(Packet::ModeExec { .. }))
    }

    /// The mode that the last MODE.Exec of a loss tells, or the one right in front of it.
    pub fn mode_lost(&self, begin: usize, end: usize) -> Option<Execution> {
        let mode = |packet: &Packet| match *packet {
            Packet::ModeExec { mode, .. } => Some(mode),
            _ => None,
        };
        let inside = self.between(begin, end).iter().rev().find_map(mode);
        inside.or_else(|| self.between(0, begin).iter().rfind(|packet| **packet != Packet::Pad).and_then(mode))
    }

    /// Whether a PSBEND stands there of which the PSB has another one.
    pub fn have_a_psbend_alone_at(&self, offset: usize) -> bool {
        let is_psbend = |packet: &Packet| matches!(packet, Packet::Psbend);
        self.from(offset).read().ok().flatten().as_ref().is_some_and(is_psbend)
            && self.between(0, offset).iter().any(is_psbend)
    }

    /// Whether the packet in front is an MWAIT.
    pub fn are_behind_mwait(&self, offset: usize) -> bool {
        matches!(self.between(0, offset).last(), Some(Packet::Mwait { .. }))
    }

    /// Whether tracing is disabled at or behind that place.
    pub fn stop_from(&self, offset: usize) -> bool {
        self.between(offset, self.0.len()).iter().any(|packet| matches!(packet, Packet::TipPgd(_)))
    }

    /// The packets from one offset up to another; those of the last PSB in front of `end` when it comes behind `begin`.
    fn between(&self, begin: usize, end: usize) -> Vec<Packet> {
        let psb = self.0[begin..end].windows(PSB.len()).rposition(|bytes| bytes == PSB);
        let mut reader = self.from(begin + psb.unwrap_or(0));
        let mut packets = Vec::new();
        while reader.offset() < end {
            let Ok(Some(packet)) = reader.read() else { break };
            packets.push(packet);
        }
        packets
    }

    /// Whether a MODE.Exec stands there, and none of the packets that it is for follows.
    pub fn have_a_mode_alone_at(&self, offset: usize) -> bool {
        let mut reader = self.from(offset);
        if !matches!(reader.read(), Ok(Some(Packet::ModeExec { .. }))) {
            return false;
        }
        loop {
            match reader.read() {
                Ok(Some(Packet::Tnt { .. } | Packet::Ovf) | None) | Err(_) => return true,
                Ok(Some(Packet::Tip(_) | Packet::TipPge(_) | Packet::TipPgd(_) | Packet::Fup(_))) => return false,
                Ok(Some(_)) => {}
            }
        }
    }

    /// The packets from the PSB before up to `end` that say where the flow goes.
    fn of_flow(&self, end: usize) -> Vec<Packet> {
        let mut packets = self.between(0, end);
        packets.retain(|packet| {
            matches!(
                packet,
                Packet::Tnt { .. } | Packet::Tip(_) | Packet::TipPge(_) | Packet::TipPgd(_) | Packet::Fup(_)
            )
        });
        packets
    }

    /// Whether a FUP without its TIP comes before, or at that place.
    pub fn are_behind_fup(&self, offset: usize) -> bool {
        let is_fup = |packet: &Packet| matches!(packet, Packet::Fup(_));
        let at = self.from(offset).read().ok().flatten();
        self.of_flow(offset).last().is_some_and(is_fup) || at.as_ref().is_some_and(is_fup)
    }

    /// Whether tracing was disabled twice, or where a PSB said that it was.
    pub fn stop_twice_before(&self, offset: usize) -> bool {
        matches!(self.of_flow(offset)[..], [.., Packet::TipPgd(_), Packet::TipPgd(_)] | [Packet::TipPgd(_)])
    }
}

/// Whether the opcode at the address is none, by the manual's tables of opcode extensions (volume 2, groups 1A, 4, 5, 11 and 14), of
/// escape opcodes with memory operands, of those that 64-bit code has not, and of those that cannot be locked: what compares, what
/// writes to a register, conditional branches, and LEA.
pub fn is_undefined(memory: &Sections, address: u64) -> bool {
    let Some((base, bytes)) = memory.0.range(..=address).next_back() else { return false };
    let code = &bytes[((address - base) as usize).min(bytes.len())..];
    let prefixes = [0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65];
    let opcode = code.iter().position(|byte| !prefixes.contains(byte) && byte & 0xf0 != 0x40);
    let Some(at) = opcode else { return false };
    let [opcode, behind, third, ..] = &code[at..] else { return false };
    let has = |prefix| code[..at].contains(&prefix);
    let (extension, shift) = (behind >> 3 & 7, third >> 3 & 7);
    match opcode {
        0x38..=0x3d | 0x70..=0x7f | 0x8d if has(0xf0) => true,
        0x00..=0x3f if has(0xf0) && opcode & 7 < 4 => behind >> 6 == 3,
        0x0f if *behind == 0x73 => !(matches!(shift, 2 | 6) || matches!(shift, 3 | 7) && has(0x66)),
        0x8f => extension != 0,
        0xd9 | 0xdb | 0xdd if behind >> 6 != 3 => matches!((opcode, extension), (0xd9, 1) | (0xdb, 4 | 6) | (0xdd, 5)),
        0xc6 | 0xc7 => extension != 0 && *behind != 0xf8,
        0xfe => extension > 1,
        0xff => extension == 7 || behind >> 6 == 3 && matches!(extension, 3 | 5),
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f | 0x60 | 0x61 | 0x82 | 0x9a
        | 0xce | 0xd4 | 0xd5 | 0xd6 | 0xea => true,
        _ => false,
    }
}

//! Bytes to packets.

use crate::{Compression, Errata, Execution, Ip, Packet};
use std::fmt;

/// The sixteen bytes of a PSB packet.
pub const PSB: [u8; 16] =
    [0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No packet of the manual begins like this.
    Unknown,
    /// The data end inside the packet.
    Truncated,
}

/// Bytes that are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    pub offset: usize,
    /// The first bytes at `offset`, zero beyond the end of the data.
    pub bytes: [u8; 4],
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::Unknown => "no packet begins with",
            ErrorKind::Truncated => "the data end inside the packet that begins with",
        };
        let [a, b, c, d] = self.bytes;
        write!(f, "at offset {:#x}: {what} {a:02x} {b:02x} {c:02x} {d:02x}", self.offset)
    }
}

impl std::error::Error for Error {}

/// Bytes of the IP by its compression; 0 where there is none.
pub const IP_SIZES: [u8; 8] = [0, 2, 4, 6, 6, 0, 8, 0];
/// The bits that they have.
const IP_MASKS: [u64; 8] = [0, 0xffff, 0xffff_ffff, 0xffff_ffff_ffff, 0xffff_ffff_ffff, 0, u64::MAX, 0];

/// Reads packets one after another; as an iterator it yields `(offset, packet)` and ends after the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    data: &'a [u8],
    offset: usize,
    /// The data, or nothing while the first byte of a packet does not tell which one it is.
    plain: &'a [u8],
    /// Payload bytes of BIP packets while between BBP and BEP, else 0.
    block_size: u8,
    errata: Errata,
}

impl<'a> Reader<'a> {
    /// Reads what a processor without errata wrote.
    pub fn new(data: &'a [u8]) -> Self {
        Reader::with_errata(data, Errata::default())
    }

    pub fn with_errata(data: &'a [u8], errata: Errata) -> Self {
        let mut reader = Reader { data, offset: 0, plain: &[], block_size: 0, errata };
        reader.enter_block(0);
        reader
    }

    /// Where the next packet begins.
    #[inline(always)]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the next packet stands between BBP and BEP, where some bytes mean something else.
    #[inline(always)]
    pub fn in_block(&self) -> bool {
        self.block_size != 0
    }

    #[inline(always)]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Goes on at `offset`, which must be a packet boundary, outside any BBP block.
    #[inline(always)]
    pub fn seek(&mut self, offset: usize) {
        self.offset = offset.min(self.data.len());
        if self.block_size != 0 {
            self.enter_block(0);
        }
    }

    /// From here on BIP packets have `size` bytes; 0 where there are none.
    fn enter_block(&mut self, size: u8) {
        self.block_size = size;
        self.plain = if size == 0 && !self.errata.skd007 { self.data } else { &[] };
    }

    /// Goes on at the next PSB at or after the present offset and returns where it is; `None` leaves nothing to read.
    pub fn synchronize(&mut self) -> Option<usize> {
        let found = find_psb(self.data, self.offset);
        self.seek(found.unwrap_or(self.data.len()));
        found
    }

    /// After an error: goes on at the next PSB that ends behind the bad bytes. A packet that was cut short may have
    /// taken the first bytes of that PSB for its own.
    pub fn resynchronize(&mut self) -> Option<usize> {
        let found = find_psb(self.data, self.offset.saturating_sub(PSB.len() - 1));
        self.seek(found.unwrap_or(self.data.len()));
        found
    }

    /// The next packet, `None` at the end of the data. After an error the offset stays at the bad bytes.
    #[inline(always)]
    pub fn read(&mut self) -> Result<Option<Packet>, Error> {
        if let Some(ahead) = self.plain.get(self.offset..).and_then(|rest| rest.first_chunk::<9>()) {
            if let Some((packet, size)) = frequent(ahead) {
                self.offset += size;
                return Ok(Some(packet));
            }
        }
        self.read_any()
    }

    #[inline(never)]
    fn read_any(&mut self) -> Result<Option<Packet>, Error> {
        let rest = &self.data[self.offset..];
        match rest.first() {
            Some(&first) => self.read_other(rest, first).map(Some),
            None => Ok(None),
        }
    }

    /// The branches of the next packet when that is a TNT of one byte; reads nothing else.
    #[inline(always)]
    pub fn read_short_tnt(&mut self) -> Option<(u64, u8)> {
        match self.data.get(self.offset) {
            Some(&first) if first & 1 == 0 && first > 2 && self.block_size == 0 => {
                self.offset += 1;
                let (bits, count) = BRANCHES[usize::from(first >> 1)];
                Some((bits.into(), count))
            }
            _ => None,
        }
    }

    fn read_other(&mut self, rest: &[u8], first: u8) -> Result<Packet, Error> {
        let (packet, size) = match first {
            0x00 => (Packet::Pad, 1),
            0x02 => match extended(rest) {
                Ok(found) => found,
                Err(ErrorKind::Unknown) if self.errata.skz84 && rest.get(1) == Some(&0x73) => (Packet::Invalid, 7),
                Err(kind) => return Err(self.error(kind)),
            },
            0x19 => (Packet::Tsc(self.number(rest, 1, 7)?), 8),
            0x59 => (Packet::Mtc(self.number(rest, 1, 1)? as u8), 2),
            0x99 => match mode(self.number(rest, 1, 1)? as u8) {
                Some(packet) => (packet, 2),
                None => return Err(self.error(ErrorKind::Unknown)),
            },
            0xd9 => self.trig(rest)?,
            _ if self.errata.skd007 && first & 7 == 7 && rest.get(1..3) == Some(&[0x02, 0xf3]) => (Packet::Ovf, 3),
            _ if first & 3 == 3 => self.cyc(rest, first)?,
            _ if first & 1 == 1 => self.with_ip(rest, first)?,
            _ if self.block_size != 0 && first & 7 == 4 => {
                let size = self.block_size as usize;
                (Packet::Bip { id: first >> 3, payload: self.number(rest, 1, size)? }, 1 + size)
            }
            _ => (short_tnt(first), 1),
        };
        match packet {
            Packet::Bbp { size, .. } => self.enter_block(size),
            // OVF, PSB and a disabled trace end a block without BEP.
            Packet::Bep { .. } | Packet::Ovf | Packet::Psb | Packet::TipPgd(_) => self.enter_block(0),
            _ => {}
        }
        self.offset += size;
        Ok(packet)
    }

    fn with_ip(&self, rest: &[u8], first: u8) -> Result<(Packet, usize), Error> {
        let (compression, size) = match first >> 5 {
            0 => (Compression::Suppressed, 0),
            1 => (Compression::Update16, 2),
            2 => (Compression::Update32, 4),
            3 => (Compression::SignExtend48, 6),
            4 => (Compression::Update48, 6),
            6 => (Compression::Full, 8),
            _ => return Err(self.error(ErrorKind::Unknown)),
        };
        let ip = Ip { compression, payload: self.number(rest, 1, size)? };
        let packet = match first & 0x1f {
            0x0d => Packet::Tip(ip),
            0x11 => Packet::TipPge(ip),
            0x01 => Packet::TipPgd(ip),
            0x1d => Packet::Fup(ip),
            _ => return Err(self.error(ErrorKind::Unknown)),
        };
        Ok((packet, 1 + size))
    }

    fn trig(&self, rest: &[u8]) -> Result<(Packet, usize), Error> {
        let flags = self.number(rest, 1, 1)?;
        if flags & 0x1f != 0 {
            return Err(self.error(ErrorKind::Unknown));
        }
        let counted = flags & 0x40 != 0;
        let packet = Packet::Trig {
            number: self.number(rest, 2, 1)? as u8,
            instructions: if counted { Some(self.number(rest, 3, 2)? as u16) } else { None },
            multiple: flags & 0x20 != 0,
            fup: flags & 0x80 != 0,
        };
        Ok((packet, if counted { 5 } else { 3 }))
    }

    fn cyc(&self, rest: &[u8], first: u8) -> Result<(Packet, usize), Error> {
        let mut value = u64::from(first >> 3);
        let (mut more, mut shift, mut size) = (first & 4 != 0, 5, 1);
        while more {
            let Some(&byte) = rest.get(size) else {
                return Err(self.error(ErrorKind::Truncated));
            };
            if shift > 63 {
                return Err(self.error(ErrorKind::Unknown));
            }
            value |= u64::from(byte >> 1) << shift;
            (more, shift, size) = (byte & 1 != 0, shift + 7, size + 1);
        }
        Ok((Packet::Cyc(value), size))
    }

    #[inline(always)]
    fn number(&self, rest: &[u8], at: usize, size: usize) -> Result<u64, Error> {
        number(rest, at, size).ok_or_else(|| self.error(ErrorKind::Truncated))
    }

    #[cold]
    fn error(&self, kind: ErrorKind) -> Error {
        let mut bytes = [0; 4];
        for (to, from) in bytes.iter_mut().zip(&self.data[self.offset..]) {
            *to = *from;
        }
        Error { kind, offset: self.offset, bytes }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<(usize, Packet), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        match self.read() {
            Ok(packet) => packet.map(|packet| Ok((offset, packet))),
            Err(error) => {
                self.seek(self.data.len());
                Some(Err(error))
            }
        }
    }
}

/// The offset of the first whole PSB at or after `from`.
pub fn find_psb(data: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while at + PSB.len() <= data.len() {
        let window = &data[at..at + PSB.len()];
        if window == PSB {
            return Some(at);
        }
        // A PSB that begins inside the window holds an 82 at every other place up to its end.
        at += if window[15] == 0x82 || window[15] == 0x02 { 1 } else { PSB.len() };
    }
    None
}

/// Those packets that a trace consists of almost wholly, where bytes behind them spare every look at the end.
#[inline(always)]
fn frequent(ahead: &[u8; 9]) -> Option<(Packet, usize)> {
    let [first, second, third, ..] = *ahead;
    if first & 1 == 0 {
        return match first {
            0 => Some((Packet::Pad, 1)),
            2 => None,
            _ => Some((short_tnt(first), 1)),
        };
    }
    if first & 2 != 0 {
        // Without a branch up to two bytes: which of them a CYC has cannot be foretold.
        let more = first >> 2 & 1;
        if second & third & more != 0 {
            return None;
        }
        let mut value = u64::from(first >> 3) | u64::from((second >> 1) * more) << 5;
        let mut size = 1 + usize::from(more);
        if second & more != 0 {
            value |= u64::from(third >> 1) << 12;
            size = 3;
        }
        return Some((Packet::Cyc(value), size));
    }
    if first & 0x1f == 0x0d {
        let size = IP_SIZES[usize::from(first >> 5)];
        let payload = u64::from_le_bytes(*ahead.last_chunk::<8>()?) & IP_MASKS[usize::from(first >> 5)];
        let ip = Ip { compression: Compression::of(first >> 5)?, payload };
        return Some((Packet::Tip(ip), 1 + usize::from(size)));
    }
    (first == 0x59).then_some((Packet::Mtc(second), 2))
}

#[inline(always)]
fn short_tnt(first: u8) -> Packet {
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

#[inline(always)]
fn number(rest: &[u8], at: usize, size: usize) -> Option<u64> {
    if let Some(word) = rest.get(at..at + 8) {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        return Some(if size < 8 { word & ((1 << (8 * size)) - 1) } else { word });
    }
    let bytes = rest.get(at..at + size)?;
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
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

/// The HW bit of PWRE, which the manual's editions put at bit 7 or bit 3 of a byte that is otherwise zero.
const HARDWARE: u64 = 0x88;

/// Packets that begin with 02.
fn extended(rest: &[u8]) -> Result<(Packet, usize), ErrorKind> {
    let Some(&second) = rest.get(1) else {
        return Err(ErrorKind::Truncated);
    };
    let payload = |at, size| number(rest, at, size).ok_or(ErrorKind::Truncated);
    Ok(match second {
        0xa3 => {
            let word = payload(2, 6)?;
            if word == 0 {
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

//! Bytes to packets.

mod error;
mod extended;
mod frequent;
mod psb;

pub use error::{Error, ErrorKind};
pub use psb::{find_psb, OVF, PSB};

use crate::{Compression, Errata, Execution, Ip, Packet};
use extended::extended;
use frequent::{frequent, short_tnt};

/// Reads packets one after another; as an iterator it yields `(offset, packet)` and ends after the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    data: &'a [u8],
    offset: usize,
    /// The data from the next packet on, or nothing while the first byte of a packet does not tell which one it is.
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
        self.enter_block(0);
    }

    /// From here on BIP packets have `size` bytes; 0 where there are none.
    #[inline(always)]
    fn enter_block(&mut self, size: u8) {
        self.block_size = size;
        self.plain = if size == 0 && !self.errata.skd007 { &self.data[self.offset..] } else { &[] };
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
        if let Some(ahead) = self.plain.first_chunk::<9>() {
            if let Some((packet, size)) = frequent(ahead) {
                self.offset += size;
                self.plain = &self.plain[size..];
                return Ok(Some(packet));
            }
        }
        let (packet, reader) = self.clone().read_any();
        *self = reader;
        packet
    }

    /// The next packet that is no PAD, with its offset.
    #[inline(always)]
    pub fn read_behind_pads(&mut self) -> Result<Option<(usize, Packet)>, Error> {
        if self.data.get(self.offset) == Some(&0) {
            self.skip_pads(usize::MAX);
        }
        let offset = self.offset;
        Ok(self.read()?.map(|packet| (offset, packet)))
    }

    /// Passes over the PAD packets from here on, at most so many, at the speed of memory; returns how many there were.
    #[inline(never)]
    pub fn skip_pads(&mut self, most: usize) -> usize {
        let rest = &self.data[self.offset..];
        let rest = &rest[..most.min(rest.len())];
        let blank = |chunk: &&[u8]| chunk.iter().fold(0, |all, byte| all | byte) == 0;
        let whole = rest.chunks_exact(64).take_while(blank).count() * 64;
        let pads = whole + rest[whole..].iter().take_while(|&&byte| byte == 0).count();
        self.offset += pads;
        self.enter_block(self.block_size);
        pads
    }

    /// By value: a reader whose address nobody takes stands in registers while packets are frequent ones.
    #[inline(never)]
    fn read_any(mut self) -> (Result<Option<Packet>, Error>, Self) {
        let rest = &self.data[self.offset..];
        let packet = match rest.first() {
            Some(&first) => self.read_other(rest, first).map(Some),
            None => Ok(None),
        };
        (packet, self)
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
        self.offset += size;
        self.enter_block(match packet {
            Packet::Bbp { size, .. } => size,
            // OVF, PSB and a disabled trace end a block without BEP.
            Packet::Bep { .. } | Packet::Ovf | Packet::Psb | Packet::TipPgd(_) => 0,
            _ => self.block_size,
        });
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

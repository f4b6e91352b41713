//! Bytes to packets.

mod error;
mod extended;
mod frequent;
mod payload;
mod psb;
mod stateless;

pub use error::{Error, ErrorKind};
pub use psb::{find_psb, psbs, OVF, PSB};

use crate::{Errata, Packet};
use frequent::frequent;
use payload::number;
use stateless::stateless;

/// No fewer bytes than any packet but PSB has.
const ROOM: usize = 16;
/// The first bytes of a TMA packet.
const TMA: [u8; 2] = [0x02, 0x73];

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

    /// Goes on at `offset` of more of the same data, which must be a packet boundary.
    pub fn go_on_in(&mut self, data: &'a [u8], offset: usize) {
        self.data = data;
        self.seek(offset);
    }

    /// From here on BIP packets have `size` bytes; 0 where there are none.
    #[inline(always)]
    fn enter_block(&mut self, size: u8) {
        self.block_size = size;
        self.plain = if size == 0 { &self.data[self.offset..] } else { &[] };
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
        if let Some(ahead) = self.plain.first_chunk::<ROOM>() {
            if let Some((packet, size)) = frequent(ahead) {
                self.pass(size);
                return Ok(Some(packet));
            }
            // Not one way for both, which would have to put the packet together in memory.
            if let Some((packet, size)) = seldom(ahead) {
                self.pass(size);
                return Ok(Some(packet));
            }
        }
        let (packet, size, block_size) = read_any(&self.data[self.offset..], self.block_size, self.errata);
        match packet {
            Ok(packet) => {
                self.offset += size;
                self.enter_block(block_size);
                Ok(packet)
            }
            Err(kind) => Err(self.error(kind)),
        }
    }

    #[inline(always)]
    fn pass(&mut self, size: usize) {
        self.offset += size;
        self.plain = &self.plain[size & (ROOM - 1)..];
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

    #[cold]
    fn error(&self, kind: ErrorKind) -> Error {
        let mut bytes = [0; 4];
        for (to, from) in bytes.iter_mut().zip(&self.data[self.offset..]) {
            *to = *from;
        }
        Error { kind, offset: self.offset, bytes }
    }
}

/// Any packet, how many bytes it has, and those that BIP packets have behind it. By value: a reader whose address nobody takes stands
/// in registers while packets are frequent ones.
#[inline(never)]
fn read_any(rest: &[u8], block_size: u8, errata: Errata) -> (Result<Option<Packet>, ErrorKind>, usize, u8) {
    let Some(&first) = rest.first() else { return (Ok(None), 0, block_size) };
    let found = if errata.skd007 && first & 7 == 7 && rest.get(1..3) == Some(&OVF) {
        Ok((Packet::Ovf, 3))
    } else if block_size != 0 && first & 7 == 4 {
        let size = block_size as usize;
        let payload = number(rest, 1, size).ok_or(ErrorKind::Truncated);
        payload.map(|payload| (Packet::Bip { id: first >> 3, payload }, 1 + size))
    } else {
        match stateless(rest, first) {
            Err(ErrorKind::Unknown) if errata.skz84 && rest.starts_with(&TMA) => Ok((Packet::Invalid, 7)),
            found => found,
        }
    };
    match found {
        Ok((packet, size)) => {
            let block_size = match packet {
                Packet::Bbp { size, .. } => size,
                // OVF, PSB and a disabled trace end a block without BEP.
                Packet::Bep { .. } | Packet::Ovf | Packet::Psb | Packet::TipPgd(_) => 0,
                _ => block_size,
            };
            (Ok(Some(packet)), size, block_size)
        }
        Err(kind) => (Err(kind), 0, block_size),
    }
}

/// Packets that are not frequent, where bytes behind them spare every look at the end. `None` of those that leave the reader in
/// another state, and of what is no packet.
#[inline(never)]
fn seldom(ahead: &[u8; ROOM]) -> Option<(Packet, usize)> {
    match ahead {
        [0x02, 0x82 | 0x63, ..] => None,
        // That may be an OVF in the midst of a CYC (`Errata::skd007`).
        [first, second, third, ..] if first & 7 == 7 && [*second, *third] == OVF => None,
        [first, ..] => stateless(ahead, *first).ok(),
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

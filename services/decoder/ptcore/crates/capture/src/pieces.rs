//! A stream in pieces that can be decoded on their own.

use crate::ticks::Ticks;
use crate::Stream;
use pt_flow::Config;
use pt_packet::writer::write;
use pt_packet::{Compression, Ip, Packet, Reader};

/// Bytes of a stream from one PSB to another, and who ran in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub from: usize,
    /// Where the next piece begins.
    pub next: usize,
    /// Packets to put behind the bytes of the piece. They stop the flow at the address that the next PSB tells: up to
    /// there this piece's flow goes, and no packet of its own says so.
    pub tail: Vec<u8>,
    /// TSC ticks, 0 where no packet tells them.
    pub first_tsc: u64,
    pub last_tsc: u64,
    /// From which offset within the piece on which view holds; the first begins at 0.
    pub epochs: Vec<(usize, u32)>,
    /// Offsets within the piece at which packets are missing.
    pub lost: Vec<usize>,
}

/// Cuts a stream at the first PSB behind each `size` bytes.
pub fn pieces(stream: &Stream, config: &Config, size: usize) -> Vec<Piece> {
    let data = &*stream.data;
    let mut reader = Reader::with_errata(data, config.errata);
    let mut ticks = Ticks::new(config);
    let mut pieces = Vec::new();
    let mut piece = Span::default();
    let mut next = reader.synchronize();
    while next.is_some() {
        next = match reader.read_behind_pads() {
            Ok(Some((offset, Packet::Psb))) => {
                ticks.psb(data, reader.offset());
                if piece.synchronized && offset - piece.from >= size {
                    pieces.push(piece.end(offset, stop(&reader), stream));
                    piece = Span { from: offset, ..Span::default() };
                }
                piece.synchronized = true;
                Some(offset)
            }
            Ok(Some((offset, Packet::Tsc(tsc)))) if ticks.is_contradicted(tsc, &reader) => {
                ticks.forget();
                Some(offset)
            }
            Ok(Some((offset, packet))) => {
                if let Some(tsc) = ticks.take(&packet) {
                    piece.last_tsc = tsc;
                    piece.first_tsc = if piece.first_tsc == 0 { tsc } else { piece.first_tsc };
                }
                Some(offset)
            }
            Ok(None) => None,
            Err(_) => {
                ticks.forget();
                reader.resynchronize()
            }
        };
    }
    pieces.push(piece.end(data.len(), Vec::new(), stream));
    pieces
}

#[derive(Default)]
struct Span {
    from: usize,
    first_tsc: u64,
    last_tsc: u64,
    /// It has a PSB: without any nothing of it can be decoded.
    synchronized: bool,
}

impl Span {
    fn end(self, next: usize, tail: Vec<u8>, stream: &Stream) -> Piece {
        let Span { from, first_tsc, last_tsc, .. } = self;
        let first = stream.epochs.partition_point(|&(offset, _)| offset <= from).saturating_sub(1);
        let within = stream.epochs[first..].iter().take_while(|&&(offset, _)| offset <= from || offset < next);
        let epochs = within.map(|&(offset, view)| (offset.saturating_sub(from), view)).collect();
        let last = next == stream.data.len();
        let lost = stream.lost.iter().filter(|&&at| from <= at && (at < next || last)).map(|at| at - from).collect();
        Piece { from, next, tail, first_tsc, last_tsc, epochs, lost }
    }
}

/// FUP and TIP.PGD at the address that the PSB+ before which the reader stands tells; nothing when tracing is off there.
fn stop(behind_psb: &Reader<'_>) -> Vec<u8> {
    let mut reader = behind_psb.clone();
    let mut address = None;
    while let Ok(Some(packet)) = reader.read() {
        match packet {
            Packet::Fup(ip) => address = ip.resolve(0),
            Packet::Psbend | Packet::Psb | Packet::Ovf => break,
            _ => {}
        }
    }
    let mut tail = Vec::new();
    if let Some(address) = address {
        write(&mut tail, Packet::Fup(Ip { compression: Compression::Full, payload: address }));
        write(&mut tail, Packet::TipPgd(Ip::SUPPRESSED));
    }
    tail
}

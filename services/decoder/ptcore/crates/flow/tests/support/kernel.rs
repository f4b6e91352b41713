//! A kernel of which no code is known, in recordings that leave it out.

use pt_packet::writer::write;
use pt_packet::{Compression, Ip, Packet, Reader};

pub const KERNEL: u64 = 0xffff_ffff_8100_0000;

pub fn ip(address: u64) -> Ip {
    Ip { compression: Compression::SignExtend48, payload: address & 0xffff_ffff_ffff }
}

/// Whatever a TIP.PGD and the TIP.PGE behind it leave out is there, as a kernel that branches at random would tell it; and how often
/// that was so. `below`: any number below another one.
pub fn with_kernel(stream: &[u8], mut below: impl FnMut(usize) -> usize) -> (Vec<u8>, usize) {
    let (mut told, mut in_kernel, mut times) = (Vec::new(), false, 0);
    let (mut reader, mut at, mut last_ip, mut within_psb) = (Reader::new(stream), 0, 0, false);
    while let Ok(Some(packet)) = reader.read() {
        let bytes = &stream[at..reader.offset()];
        at = reader.offset();
        let address = match packet {
            Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => ip.resolve(last_ip),
            Packet::Psb => Some(0),
            _ => None,
        };
        last_ip = address.unwrap_or(last_ip);
        match packet {
            Packet::TipPgd(Ip::SUPPRESSED) if !within_psb => {
                (in_kernel, times) = (true, times + 1);
                for call in 0..4 {
                    write(&mut told, Packet::Tip(ip(KERNEL + 0x100 * call)));
                    let count = if call == 3 { 1 + below(6) as u8 } else { 6 };
                    write(&mut told, Packet::Tnt { bits: below(1 << count) as u64, count });
                }
            }
            Packet::TipPge(_) if std::mem::take(&mut in_kernel) => write(&mut told, Packet::Tip(ip(last_ip))),
            Packet::Psbend if in_kernel => {
                write(&mut told, Packet::Fup(ip(KERNEL + 0x400)));
                told.extend(bytes);
            }
            _ => told.extend(bytes),
        }
        within_psb = (within_psb || packet == Packet::Psb) && packet != Packet::Psbend;
    }
    (told, times)
}

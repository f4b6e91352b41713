//! A kernel of which no code is known, in recordings that leave it out.

use pt_packet::writer::write;
use pt_packet::{Compression, Ip, Packet, Reader};

pub const KERNEL: u64 = 0xffff_ffff_8100_0000;

pub fn ip(address: u64) -> Ip {
    Ip { compression: Compression::SignExtend48, payload: address & 0xffff_ffff_ffff }
}

/// Whatever a TIP.PGD and the TIP.PGE behind it leave out is there, as a kernel that branches at random would tell it; and how often
/// that was so.
pub fn with_kernel(stream: &[u8]) -> (Vec<u8>, usize) {
    let (mut told, mut in_kernel, mut times) = (Vec::new(), false, 0);
    let mut random = 77u64;
    let mut any = |count: u8| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) & ((1 << count) - 1)
    };
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
                    let count = if call == 3 { 1 + (any(8) % 6) as u8 } else { 6 };
                    write(&mut told, Packet::Tnt { bits: any(count), count });
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

//! Real programs as they would have been recorded with a kernel of which no code is known.

use crate::mutations::Random;
use crate::support::{self, Runs};
use pt_flow::{Config, Flow, Reason};
use pt_packet::writer::write;
use pt_packet::{Compression, Ip, Packet, Reader};

const KERNEL: u64 = 0xffff_ffff_8100_0000;

fn ip(address: u64) -> Ip {
    Ip { compression: Compression::SignExtend48, payload: address & 0xffff_ffff_ffff }
}

/// Whatever a TIP.PGD and the TIP.PGE behind it leave out is there, as a kernel that branches at random would tell it; and how often
/// that was so.
fn with_kernel(stream: &[u8], random: &mut Random) -> (Vec<u8>, usize) {
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
                    let count = if call == 3 { 1 + random.below(6) as u8 } else { 6 };
                    write(&mut told, Packet::Tnt { bits: random.below(1 << count) as u64, count });
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

#[test]
fn what_programs_ran_is_told_behind_most_system_calls() {
    let mut random = Random(77);
    for name in ["ovf-01-ben", "cve-2004-0597-poc", "cve-2005-0105-poc", "hello", "uaf-04-ben"] {
        let Some(griffin) = support::griffin(name) else { return };
        for stream in griffin.streams.values() {
            let (with_kernel, times) = with_kernel(stream, &mut random);
            let [mut ran, mut told] = [Runs::default(), Runs::default()];
            let mut flow = Flow::new(&griffin.memory);
            flow.decode(stream, &Config::default(), &[], &mut ran);
            flow.decode(&with_kernel, &Config::default(), &[], &mut told);
            let ran = ran.runs.concat();
            let instructions = told.are_in(&ran);
            assert!(instructions * 10 > ran.len() * 9, "{name}: {instructions} of {}", ran.len());
            let passed = told.losses.iter().filter(|loss| loss.reason == Reason::NoKernelCode).count();
            assert!(passed * 2 > times, "{name}: {passed} of {times}");
        }
    }
}

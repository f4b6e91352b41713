//! What a damaged stream and its code say where libipt and this decoder differ.

use crate::support::Sections;
use pt_packet::{ErrorKind, Execution, Packet, Reader, PSB};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Packets<'s>(pub &'s [u8]);

impl<'s> Packets<'s> {
    fn from(&self, offset: usize) -> Reader<'s> {
        let mut reader = Reader::new(self.0);
        reader.seek(offset);
        reader
    }

    /// Whether the packet at `end` says where execution is, and no PSB comes first.
    pub fn go_on(&self, begin: usize, end: usize) -> bool {
        let packet = self.from(end).read();
        let goes_on = matches!(packet, Ok(Some(Packet::Tip(_) | Packet::TipPge(_) | Packet::Fup(_) | Packet::Ovf)));
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
                    Ok(Some(Packet::Cbr { ratio: 0 } | Packet::Psb) | None) | Err(_) => return true,
                    Ok(Some(Packet::Tnt { .. } | Packet::Tip(_) | Packet::TipPge(_) | Packet::TipPgd(_))) => {
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

    /// Whether what follows is no packet, or none to libipt 2.0, a target without an address, or a clock of no ratio, up to the end of
    /// the next PSB+.
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
                Ok(Some(Packet::Psb)) if self.are_bad_at(at) => return true,
                Ok(Some(Packet::Psb)) if at != offset => return false,
                Ok(None) => return false,
                Ok(Some(_)) if self.are_newer_at(at) => return true,
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

    /// Whether the packet that stands there is one that libipt 2.0 does not know.
    pub fn are_newer_at(&self, offset: usize) -> bool {
        let packet = self.from(offset).read();
        matches!(packet, Ok(Some(Packet::Trig { .. } | Packet::Cfe { .. } | Packet::Evd { .. })))
    }

    /// Whether the bytes that stand there are another packet to libipt 2.0, or none.
    pub fn are_others_at(&self, offset: usize) -> bool {
        let rest = &self.0[offset..];
        match self.from(offset).read() {
            Ok(Some(Packet::Bbp { .. } | Packet::Bep { .. })) => true,
            Ok(Some(Packet::Pwre { .. })) => rest[2] & 0x88 == 0x80,
            Ok(_) => self.are_newer_at(offset),
            Err(_) => matches!(rest, [0x99, payload, ..] if payload & 0xe3 == 3),
        }
    }

    /// Whether the packet in front is an MWAIT or a MODE.Exec.
    pub fn are_behind_mwait_or_mode(&self, offset: usize) -> bool {
        matches!(self.between(0, offset).last(), Some(Packet::Mwait { .. } | Packet::ModeExec { .. }))
    }

    /// Whether a MODE.Exec stands behind another one, and nothing between them.
    pub fn have_two_modes_in_a_row(&self) -> bool {
        let (mut reader, mut is_behind_one) = (Reader::new(self.0), false);
        while reader.synchronize().is_some() {
            while let Ok(Some(packet)) = reader.read() {
                let is_mode = matches!(packet, Packet::ModeExec { .. });
                if is_mode && is_behind_one {
                    return true;
                }
                is_behind_one = is_mode || is_behind_one && packet == Packet::Pad;
            }
        }
        false
    }

    /// Whether a CYC stands behind a TSC without TMA, and an MTC in front of that.
    pub fn have_cycles_behind_an_mtc_alone(&self) -> bool {
        let (mut reader, mut is_behind_mtc, mut is_behind_tsc) = (Reader::new(self.0), false, false);
        while reader.synchronize().is_some() {
            while let Ok(Some(packet)) = reader.read() {
                match packet {
                    Packet::Mtc(_) => (is_behind_mtc, is_behind_tsc) = (true, false),
                    Packet::Tsc(_) => is_behind_tsc = is_behind_mtc,
                    Packet::Tma { .. } => is_behind_tsc = false,
                    Packet::Cyc(_) if is_behind_tsc => return true,
                    _ => {}
                }
            }
        }
        false
    }

    /// Whether tracing is disabled at or behind that place.
    pub fn stop_from(&self, offset: usize) -> bool {
        self.between(offset, self.0.len()).iter().any(|packet| matches!(packet, Packet::TipPgd(_)))
    }

    /// Whether a PSB begins at each of the two places, the second of them within the other one.
    pub fn have_psbs_in_one_another(&self, [first, second]: [usize; 2]) -> bool {
        let is_psb = |at: usize| self.0.get(at..).is_some_and(|bytes| bytes.starts_with(&PSB));
        is_psb(first) && is_psb(second) && (first + 1..first + PSB.len()).contains(&second)
    }

    /// Whether the packet that stands there enables tracing.
    pub fn begin_at(&self, offset: usize) -> bool {
        matches!(self.from(offset).read(), Ok(Some(Packet::TipPge(_))))
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

/// Whether nothing can run at the address, as another disassembler sees it, or as what stands there cannot be locked, which that one
/// does not look at.
pub fn is_undefined(memory: &Sections, address: u64) -> bool {
    let Some((base, bytes)) = memory.0.range(..=address).next_back() else { return false };
    let code = &bytes[((address - base) as usize).min(bytes.len())..];
    let is_rex = |byte: u8| byte & 0xf0 == 0x40;
    let prefixes = [0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65];
    let Some(at) = code.iter().position(|&byte| !prefixes.contains(&byte) && !is_rex(byte)) else { return false };
    // A REX in front of another prefix means nothing, and is an instruction for that disassembler.
    let others = code[..at].iter().enumerate().filter(|&(place, &byte)| !is_rex(byte) || place + 1 == at);
    let alone: Vec<u8> = others.map(|(_, &byte)| byte).chain(code[at..].iter().copied().take(MAX_LENGTH)).collect();
    code[..at].contains(&0xf0) && !may_be_locked(&code[at..]) || is_bad(&alone)
}

/// Bytes of the longest instruction.
const MAX_LENGTH: usize = 15;

/// Whether LOCK may stand in front of the instruction (SDM volume 2, "LOCK").
fn may_be_locked(code: &[u8]) -> bool {
    let [opcode, behind, third, ..] = *code else { return false };
    let is_memory = |modrm: u8| modrm >> 6 != 3;
    let extension = |modrm: u8| modrm >> 3 & 7;
    match (opcode, behind) {
        (0x00..=0x37, _) if opcode & 7 < 2 => is_memory(behind),
        (0x80 | 0x81 | 0x83, _) => is_memory(behind) && extension(behind) != 7,
        (0x86 | 0x87, _) => is_memory(behind),
        (0xf6 | 0xf7, _) => is_memory(behind) && matches!(extension(behind), 2 | 3),
        (0xfe | 0xff, _) => is_memory(behind) && extension(behind) < 2,
        (0x0f, 0xab | 0xb0 | 0xb1 | 0xb3 | 0xbb | 0xc0 | 0xc1) => is_memory(third),
        (0x0f, 0xba) => is_memory(third) && extension(third) > 4,
        (0x0f, 0xc7) => is_memory(third) && extension(third) == 1,
        _ => false,
    }
}

/// Whether objdump finds no instruction at the beginning.
fn is_bad(code: &[u8]) -> bool {
    // Tests run at once, in one process or in several.
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("code-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, code).unwrap();
    let listing = Command::new("objdump").args(["-D", "-b", "binary", "-mi386:x86-64"]).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let listing = String::from_utf8(listing.expect("objdump, which is with gcc").stdout).unwrap();
    listing.lines().find(|line| line.starts_with("   0:")).is_some_and(|line| line.contains("(bad)"))
}

#[test]
fn what_cannot_run_is_told_from_what_can() {
    if Command::new("objdump").arg("--version").output().is_err() {
        return eprintln!("skipped: no objdump");
    }
    let is_undefined = |code: &[u8]| is_undefined(&Sections([(0x1000, [code, &[0x90; 16]].concat())].into()), 0x1000);
    // An escape opcode; jb and mov with LOCK; VEX; groups 5 and 11.
    let undefined: [&[u8]; 6] =
        [&[0xd9, 0x48], &[0xf0, 0x72], &[0x45, 0xf0, 0xc7, 0x45], &[0xc5, 0xfd, 0xff], &[0xff, 0xff], &[0xc6, 0x48]];
    assert_eq!(undefined.map(is_undefined), [true; 6]);
    // fld; lock add, lock cmpxchg8b; vpaddd; call; mov
    let defined: [&[u8]; 6] = [
        &[0xd9, 0x40],
        &[0xf0, 0x48, 0x01, 0x00],
        &[0xf0, 0x0f, 0xc7, 0x08],
        &[0xc5, 0xfd, 0xfe, 0xc0],
        &[0xff, 0xd0],
        &[0xc6, 0x40],
    ];
    assert_eq!(defined.map(is_undefined), [false; 6]);
}

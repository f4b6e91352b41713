use super::{predecode, Predecoded};
use crate::code::disassembly::{exit, mark};
use crate::code_block::Exit;
use iced_x86::{Decoder, DecoderOptions};

const ADDRESS: u64 = 0x40_0000;

/// What iced-x86 knows about the first instruction, in the same words.
fn reference(bytes: &[u8]) -> Option<Predecoded> {
    let instruction = Decoder::with_ip(64, bytes, ADDRESS, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || mark(&instruction).is_some() {
        return None;
    }
    let exit = exit(&instruction);
    let direct = matches!(exit, Exit::Cond | Exit::Jump | Exit::Call);
    let distance = if direct { instruction.near_branch_target().wrapping_sub(instruction.next_ip()) as i64 } else { 0 };
    Some(Predecoded { length: instruction.len(), exit, displacement: distance })
}

/// Whether there is an answer. It must be the reference's.
fn agrees(bytes: &[u8]) -> bool {
    let answer = predecode(bytes);
    if answer.is_some() {
        assert_eq!(answer, reference(bytes), "{bytes:02x?}");
    }
    answer.is_some()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.next().to_le_bytes()));
        bytes
    }
}

#[test]
fn every_opcode_with_every_modrm_and_the_usual_prefixes_is_what_iced_says() {
    const PREFIXES: [&[u8]; 12] = [
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x40],
        &[0x48],
        &[0x66, 0x48],
        &[0xf2, 0x48],
        &[0xf3, 0x48],
        &[0x64],
        &[0x48, 0x66],
        &[0x3e],
    ];
    const MAPS: [&[u8]; 2] = [&[], &[0x0f]];
    let mut random = Random(1);
    for prefixes in PREFIXES {
        for map in MAPS {
            for opcode in 0..=255 {
                for modrm in 0..=255 {
                    let mut bytes = [prefixes, map, &[opcode, modrm]].concat();
                    bytes.extend(random.bytes());
                    agrees(&bytes);
                }
            }
        }
    }
}

#[test]
fn random_bytes_behind_random_prefixes_are_what_iced_says() {
    const PREFIXES: [u8; 14] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x41, 0x48, 0x4f];
    let count = std::env::var("PREDECODE_ROUNDS").map_or(3_000_000, |rounds| rounds.parse().unwrap());
    let mut random = Random(2);
    let mut answers = 0;
    for _ in 0..count {
        let mut bytes = random.bytes();
        let choice = random.next();
        // Half of them with none.
        let prefixes = if choice & 1 == 0 { 0 } else { (choice >> 1) as usize % 8 };
        for byte in &mut bytes[..prefixes] {
            *byte = PREFIXES[usize::from(*byte) % PREFIXES.len()];
        }
        if choice >> 8 & 1 != 0 {
            bytes[prefixes] = 0x0f;
        }
        answers += usize::from(agrees(&bytes));
    }
    assert!(answers > count / 4, "{answers} of {count}");
}

#[test]
fn bytes_that_end_soon_are_left_to_iced() {
    assert_eq!(predecode(&[0x90; 15]), None);
    assert_eq!(predecode(&[0x90; 16]).unwrap().length, 1);
}

#[test]
fn branches_tell_where_they_lead() {
    let of = |start: &[u8]| {
        let known = predecode(&[start, &[0x90; 16]].concat()).unwrap();
        (known.length, known.exit, known.displacement)
    };
    assert_eq!(of(&[0x74, 0xfe]), (2, Exit::Cond, -2));
    assert_eq!(of(&[0x0f, 0x85, 0, 1, 0, 0]), (6, Exit::Cond, 0x100));
    assert_eq!(of(&[0xeb, 0x10]), (2, Exit::Jump, 0x10));
    assert_eq!(of(&[0xe8, 0xfb, 0xff, 0xff, 0xff]), (5, Exit::Call, -5));
    assert_eq!(of(&[0x41, 0xff, 0xd4]), (3, Exit::IndirectCall, 0));
    assert_eq!(of(&[0xff, 0x25, 1, 0, 0, 0]), (6, Exit::IndirectJump, 0));
    assert_eq!(of(&[0xf3, 0xc3]), (2, Exit::Return, 0));
}

#[test]
fn marks_and_far_transfers_are_left_to_iced() {
    let marked: [&[u8]; 9] = [
        &[0xf3, 0x0f, 0xae, 0xe0],
        &[0xf3, 0x0f, 0xae, 0x20],
        &[0x0f, 0x22, 0xd8],
        &[0x0f, 0xc7, 0x30],
        &[0x0f, 0x01, 0xc2],
        &[0x0f, 0x05],
        &[0xcd, 0x80],
        &[0x48, 0xcf],
        &[0xff, 0x28],
    ];
    for start in marked {
        assert_eq!(predecode(&[start, &[0x90; 16]].concat()), None, "{start:02x?}");
    }
}

#[test]
fn the_code_of_programs_is_what_iced_says_and_mostly_known() {
    for file in ["/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3"] {
        let Ok(elf) = std::fs::read(file) else { continue };
        let (mut known, mut all) = (0, 0);
        for code in executable_segments(&elf) {
            let mut decoder = Decoder::with_ip(64, code, ADDRESS, DecoderOptions::NONE);
            while decoder.can_decode() {
                let at = decoder.position();
                if !decoder.decode().is_invalid() {
                    known += usize::from(agrees(&code[at..]));
                    all += 1;
                }
            }
        }
        println!("{file}: {known} of {all}, {:.2} %", 100.0 * known as f64 / all as f64);
        assert!(known * 10 >= all * 9, "{file}: {known} of {all}");
    }
}

/// Of a 64-bit ELF file for this machine; none of another.
fn executable_segments(elf: &[u8]) -> Vec<&[u8]> {
    const LOAD: u64 = 1;
    const EXECUTABLE: u64 = 1;
    let number =
        |at: usize, size: usize| elf[at..at + size].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    if !elf.starts_with(b"\x7fELF\x02\x01") || number(0x12, 2) != 62 {
        return Vec::new();
    }
    let headers = (0..number(0x38, 2)).map(|index| (number(0x20, 8) + index * number(0x36, 2)) as usize);
    headers
        .filter(|&at| number(at, 4) == LOAD && number(at + 4, 4) & EXECUTABLE != 0)
        .map(|at| &elf[number(at + 8, 8) as usize..][..number(at + 32, 8) as usize])
        .collect()
}

//! Programs made up at random, of 16, 32 and 64 bits: what each instruction does, and its bytes.

use crate::mutations::Random;
use crate::support::Sections;
use pt_packet::Execution;
use std::collections::BTreeMap;

/// Where code is, and of which kind: a program's, a kernel's, of 32 and of 16 bits.
pub const REGIONS: [(u64, Execution); 4] = [
    (0x7f12_3450_0000, Execution::Bits64),
    (0xffff_ffff_8123_0000, Execution::Bits64),
    (0x0804_8000, Execution::Bits32),
    (0x3000, Execution::Bits16),
];
/// The one of the kernel.
pub const KERNEL: usize = 1;
const FUNCTIONS: usize = 24;
const SIZE: u64 = 0x100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Cond(u64),
    Jump(u64),
    Call(u64),
    IndirectCall,
    IndirectJump,
    Return,
    System,
    Far,
    Enter,
    PtWrite,
    LoadCr3,
    LoadVmcs,
    Begin(u64),
    Commit,
    Abort,
    Wait,
}

pub struct Program {
    pub code: Sections,
    kinds: BTreeMap<u64, (u64, Kind)>,
}

/// Bytes of an instruction, of which the last `distance` are how far it leads; 0 for none.
struct Encoding {
    bytes: Vec<u8>,
    distance: usize,
}

impl Program {
    pub fn new(random: &mut Random) -> Program {
        let mut program = Program { code: Sections::default(), kinds: BTreeMap::new() };
        for region in REGIONS {
            let mut code = vec![0xcc; FUNCTIONS * SIZE as usize];
            for function in 0..FUNCTIONS {
                program.function(region, function, &mut code, random);
            }
            program.code.0.insert(region.0, code);
        }
        program
    }

    /// How long the instruction is, and what it does.
    pub fn at(&self, address: u64) -> (u64, Kind) {
        self.kinds[&address]
    }

    /// The begin of any instruction of the region.
    pub fn anywhere(&self, region: usize, random: &mut Random) -> u64 {
        let at = REGIONS[region].0 + random.below(FUNCTIONS * SIZE as usize) as u64;
        let found = self.kinds.range(REGIONS[region].0..=at).next_back();
        *found.expect("each region begins with an instruction").0
    }

    /// Whether tracing leaves the function out where it is filtered.
    pub fn is_left_out(&self, address: u64) -> bool {
        address >> 8 & 3 == 3
    }

    /// Instructions up to one that runs on nowhere. Direct branches lead on within it, and to functions further on: so nothing runs
    /// for ever without a packet.
    fn function(&mut self, region: (u64, Execution), function: usize, code: &mut [u8], random: &mut Random) {
        let (base, mode) = region;
        let begin = function as u64 * SIZE;
        let (mut at, mut branches) = (begin, Vec::new());
        let mut begins = Vec::new();
        while at + 32 < begin + SIZE {
            let kind = any_kind(random);
            let Encoding { bytes, distance } = encoding(kind, mode, random);
            code[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            begins.push(base + at);
            self.kinds.insert(base + at, (bytes.len() as u64, kind));
            if distance != 0 {
                branches.push((at, bytes.len() as u64, distance, kind));
            }
            at += bytes.len() as u64;
        }
        code[at as usize..at as usize + 2].copy_from_slice(&[0xff, 0xe0]);
        begins.push(base + at);
        self.kinds.insert(base + at, (2, Kind::IndirectJump));
        for (at, length, distance, kind) in branches {
            let next = base + at + length;
            let within = |random: &mut Random| {
                let further = begins.partition_point(|&begin| begin < next);
                begins[further + random.below(begins.len() - further)]
            };
            let far = function + 1 < FUNCTIONS && distance > 1 && random.below(2) == 0;
            let target = match kind {
                // A call that only tells where it is.
                Kind::Call(_) if function + 1 == FUNCTIONS || random.below(8) == 0 => next,
                _ if far || matches!(kind, Kind::Call(_)) => {
                    base + SIZE * (function + 1 + random.below(FUNCTIONS - function - 1)) as u64
                }
                _ => within(random),
            };
            let target = if distance == 1 && target - next > 127 { next } else { target };
            let place = (at + length) as usize - distance;
            code[place..place + distance].copy_from_slice(&(target - next).to_le_bytes()[..distance]);
            let led = match kind {
                Kind::Cond(_) => Kind::Cond(target),
                Kind::Jump(_) => Kind::Jump(target),
                Kind::Call(_) => Kind::Call(target),
                Kind::Begin(_) => Kind::Begin(target),
                other => other,
            };
            self.kinds.insert(base + at, (length, led));
        }
    }
}

fn any_kind(random: &mut Random) -> Kind {
    match random.below(40) {
        0..=11 => Kind::Plain,
        12..=19 => Kind::Cond(0),
        20 | 21 => Kind::Jump(0),
        22..=24 => Kind::Call(0),
        25 => Kind::IndirectCall,
        26 => Kind::IndirectJump,
        27..=29 => Kind::Return,
        30 if random.below(2) == 0 => Kind::System,
        30 => Kind::Far,
        31 => Kind::Enter,
        32 => Kind::PtWrite,
        33 => Kind::LoadCr3,
        34 => Kind::LoadVmcs,
        35 | 36 => Kind::Begin(0),
        37 => Kind::Commit,
        38 => Kind::Abort,
        _ => Kind::Wait,
    }
}

/// One of the ways to write such an instruction in that mode (SDM volume 2).
fn encoding(kind: Kind, mode: Execution, random: &mut Random) -> Encoding {
    let wide = if mode == Execution::Bits16 { 2 } else { 4 };
    let is_64 = mode == Execution::Bits64;
    let choice = random.below(60);
    let one_of = |all: &[&[u8]]| all[choice % all.len()].to_vec();
    let (mut bytes, distance) = match kind {
        Kind::Plain => (plain(mode, random), 0),
        Kind::Cond(_) => match random.below(4) {
            0 => (vec![0x0f, 0x80 | random.below(16) as u8], wide),
            // loopne to jrcxz
            1 => (vec![0xe0 | random.below(4) as u8], 1),
            _ => (vec![0x70 | random.below(16) as u8], 1),
        },
        Kind::Jump(_) if random.below(2) == 0 => (vec![0xeb], 1),
        Kind::Jump(_) => (vec![0xe9], wide),
        Kind::Call(_) => (vec![0xe8], wide),
        Kind::IndirectCall => (one_of(&[&[0xff, 0xd0], &[0xff, 0x10], &[0xff, 0x57, 0x08]]), 0),
        Kind::IndirectJump => (one_of(&[&[0xff, 0xe1], &[0xff, 0x20], &[0xff, 0x67, 0x08]]), 0),
        Kind::Return => (one_of(&[&[0xc3], &[0xc3], &[0xf3, 0xc3], &[0xc2, 8, 0]]), 0),
        Kind::System if is_64 => (one_of(&[&[0x0f, 0x05], &[0xcd, 0x80], &[0xcc]]), 0),
        Kind::System => (one_of(&[&[0xcd, 0x80], &[0xcc], &[0x0f, 0x34]]), 0),
        Kind::Far if is_64 => (one_of(&[&[0x48, 0x0f, 0x07], &[0x48, 0xcf], &[0x48, 0xcb], &[0xff, 0x2b]]), 0),
        Kind::Far => (one_of(&[&[0xcf], &[0xcb], &[0xff, 0x2f]]), 0),
        Kind::Enter => (one_of(&[&[0x0f, 0x01, 0xc2], &[0x0f, 0x01, 0xc3]]), 0),
        Kind::PtWrite if is_64 => (one_of(&[&[0xf3, 0x48, 0x0f, 0xae, 0xe3], &[0xf3, 0x0f, 0xae, 0xe1]]), 0),
        Kind::PtWrite => (vec![0xf3, 0x0f, 0xae, 0xe1], 0),
        Kind::LoadCr3 => (vec![0x0f, 0x22, 0xd8], 0),
        Kind::LoadVmcs => (vec![0x0f, 0xc7, 0x33], 0),
        Kind::Begin(_) => (vec![0xc7, 0xf8], wide),
        Kind::Commit => (vec![0x0f, 0x01, 0xd5], 0),
        Kind::Abort => (vec![0xc6, 0xf8, 1], 0),
        Kind::Wait => (vec![0x0f, 0x01, 0xc9], 0),
    };
    bytes.resize(bytes.len() + distance, 0);
    Encoding { bytes, distance }
}

/// One that changes nothing of where execution goes on, with immediates and displacements of the mode's width.
fn plain(mode: Execution, random: &mut Random) -> Vec<u8> {
    let (all, immediate): (&[&[u8]], usize) = match mode {
        Execution::Bits64 => match random.below(4) {
            0 => (&[&[0xb8], &[0x64, 0x8b, 0x04, 0x25], &[0x48, 0x81, 0xc4], &[0x0f, 0x1f, 0x84, 0x00]], 4),
            1 => (&[&[0x66, 0xb8], &[0x66, 0x81, 0xc3]], 2),
            2 => (&[&[0x48, 0xb8], &[0x48, 0xa1]], 8),
            _ => (&[&[0x90], &[0x48, 0x89, 0xc3], &[0xf3, 0x0f, 0x1e, 0xfa], &[0xc5, 0xf8, 0x77], &[0x41, 0x50]], 0),
        },
        Execution::Bits32 => match random.below(3) {
            0 => (&[&[0xb8], &[0xa1], &[0x81, 0xc4], &[0x8b, 0x05]], 4),
            1 => (&[&[0x66, 0xb8], &[0x67, 0x8b, 0x06]], 2),
            _ => (&[&[0x90], &[0x89, 0xc3], &[0x40], &[0x41], &[0xd9, 0xe8]], 0),
        },
        Execution::Bits16 => match random.below(3) {
            0 => (&[&[0xb8], &[0xa1], &[0x81, 0xc4], &[0x8b, 0x06]], 2),
            1 => (&[&[0x66, 0xb8], &[0x67, 0x8b, 0x05]], 4),
            _ => (&[&[0x90], &[0x89, 0xc3], &[0x40], &[0x8b, 0x46, 0x05], &[0x67, 0x8b, 0x04, 0x24]], 0),
        },
    };
    let mut bytes = all[random.below(all.len())].to_vec();
    bytes.extend((0..immediate).map(|_| random.below(256) as u8));
    bytes
}

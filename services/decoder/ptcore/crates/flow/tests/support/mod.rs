//! What the tests of the flow share: the reference data and a memory of plain sections.
#![allow(dead_code)]

pub mod kernel;

use pt_flow::{decode_in_parts, Block, BlockKind, CodeMemory, CodeSlice, Config, DisableKind, Flow};
use pt_flow::{Loss, Sink, Stream, Workers};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// Sections at fixed addresses, the same in every epoch; the later one wins.
#[derive(Default)]
pub struct Sections(pub BTreeMap<u64, Vec<u8>>);

impl CodeMemory for Sections {
    fn read(&self, _epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        let (base, bytes) = self.0.range(..=address).next_back()?;
        let bytes = bytes.get((address - base) as usize..).filter(|bytes| !bytes.is_empty())?;
        Some(CodeSlice { bytes, generation: *base })
    }
}

/// Everything a sink is told, in words a test can compare.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Block { start: u64, last: u64, instructions: u32, kind: BlockKind, target: u64 },
    Enabled(u64),
    Resumed(u64),
    Disabled(DisableKind, u64, Option<u64>),
    Interrupt(u64, u64),
    Loss(Loss),
    Overflow(usize, Option<u64>),
}

impl Sections {
    /// The executable segments of an ELF file (64 bits, little-endian), moved by `bias`.
    pub fn load(&mut self, elf: &[u8], bias: u64) {
        let number =
            |at: usize, size: usize| elf[at..at + size].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let (table, entry, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
        for header in (0..count).map(|at| (table + at * entry) as usize) {
            if number(header, 4) == 1 && number(header + 4, 4) & 1 != 0 {
                let (from, size) = (number(header + 8, 8) as usize, number(header + 32, 8) as usize);
                self.0.insert(number(header + 16, 8) + bias, elf[from..from + size].to_vec());
            }
        }
    }
}

#[derive(Default)]
pub struct Recorder {
    pub told: Vec<Told>,
    pub times: Vec<u64>,
}

impl Sink for Recorder {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        assert_eq!(block.instructions as usize, block.lengths.len());
        assert_eq!(block.end - block.start, block.lengths.iter().map(|&length| u64::from(length)).sum::<u64>());
        assert_eq!(block.addresses().last(), Some(block.last));
        let Block { start, last, instructions, kind, target, .. } = *block;
        self.told.push(Told::Block { start, last, instructions, kind, target });
        self.times.push(tsc);
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.told.push(if resumed { Told::Resumed(ip) } else { Told::Enabled(ip) });
        self.times.push(tsc);
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.told.push(Told::Disabled(kind, at, target));
        self.times.push(tsc);
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.told.push(Told::Interrupt(from, to));
        self.times.push(tsc);
    }

    fn loss(&mut self, loss: &Loss) {
        self.told.push(Told::Loss(*loss));
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.told.push(Told::Overflow(offset, from));
        self.times.push(tsc);
    }
}

/// The addresses of all instructions, and what went wrong.
#[derive(Default)]
pub struct Addresses {
    pub addresses: Vec<u64>,
    pub losses: Vec<Loss>,
}

impl Sink for Addresses {
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        self.addresses.extend(block.addresses());
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        self.losses.push(*loss);
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

/// Runs of instructions, each up to a gap.
#[derive(Default)]
pub struct Runs {
    pub runs: Vec<Vec<u64>>,
    pub losses: Vec<Loss>,
}

impl Sink for Runs {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.runs.last_mut().expect("a run").extend(block.addresses());
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {
        self.runs.push(Vec::new());
    }
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {
        self.runs.push(Vec::new());
    }
    fn loss(&mut self, loss: &Loss) {
        self.runs.push(Vec::new());
        self.losses.push(*loss);
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

impl Runs {
    /// How many instructions there are. Each run has to be in what ran, behind the one before.
    pub fn are_in(&self, ran: &[u64]) -> usize {
        let mut at = 0;
        for run in self.runs.iter().filter(|run| !run.is_empty()) {
            let found = ran[at..].windows(run.len()).position(|ran| ran == run);
            at += found.unwrap_or_else(|| panic!("nothing like {run:x?} ran behind {at}")) + run.len();
        }
        self.runs.iter().map(Vec::len).sum()
    }
}

/// The folder of the reference data: `PERMILLE_SHARED/data`, or `shared/data` beside the repository. `None`, with a
/// word on stderr, where there is none.
pub fn reference_data() -> Option<PathBuf> {
    let shared = match std::env::var_os("PERMILLE_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../../../shared"),
    };
    let data = shared.join("data");
    if !data.is_dir() {
        eprintln!("skipped: no reference data at {}; set PERMILLE_SHARED", data.display());
        return None;
    }
    Some(data)
}

/// The streams of every thread and the executable pages of a Griffin container (layout: README of the data; a record's size counts its head).
pub struct Griffin {
    pub streams: BTreeMap<u64, Vec<u8>>,
    pub memory: Sections,
}

pub fn griffin(name: &str) -> Option<Griffin> {
    let path = reference_data()?.join("pt/griffin").join(format!("{name}.griffin.gz"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(u32_at(0), 0x51C0_FFEE);
    let mut buffers = BTreeMap::new();
    let mut memory = Sections::default();
    let mut at = 8;
    while at < bytes.len() {
        let (kind, size) = (u32_at(at), u32_at(at + 4) as usize);
        let body = at + 8;
        match kind {
            0 => {
                let (pid, seq, length) = (u64_at(body + 8), u64_at(body + 16), u64_at(body + 24) as usize);
                buffers.insert((pid, seq), bytes[body + 32..body + 32 + length].to_vec());
            }
            4 => {
                let (base, length) = (u64_at(body + 8), u64_at(body + 16) as usize);
                memory.0.insert(base, bytes[body + 24..body + 24 + length].to_vec());
            }
            _ => {}
        }
        at += size;
    }
    let mut streams = BTreeMap::<u64, Vec<u8>>::new();
    for ((pid, _), buffer) in buffers {
        streams.entry(pid).or_default().extend(buffer);
    }
    Some(Griffin { streams, memory })
}

/// Every fourth packet boundary or so gets cycles, so that times are divided.
pub fn timed(stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reader = pt_packet::Reader::new(stream);
    let mut at = 0;
    while let Ok(Some(packet)) = reader.read() {
        out.extend(&stream[at..reader.offset()]);
        at = reader.offset();
        let cycles = ((at as u64 * 2_654_435_761) >> 7) & 0x3ff;
        match packet {
            pt_packet::Packet::Psbend => out.extend([0x19, at as u8, (at >> 8) as u8, (at >> 16) as u8, 1, 0, 0, 0]),
            _ if cycles & 3 == 0 => pt_packet::writer::write(&mut out, pt_packet::Packet::Cyc(cycles)),
            _ => {}
        }
    }
    out.extend(&stream[at..]);
    out
}

/// Blocks with their times, divided at PSBs.
#[derive(Default)]
struct Divided(Vec<(u64, u64)>);

impl Sink for Divided {
    const DIVIDED: bool = true;

    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.0.push((block.start, tsc));
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

/// Blocks with their times, and of how many parts they were put together.
pub fn blocks_of_parts(
    memory: &Sections,
    data: &[u8],
    config: &Config,
    threads: usize,
    part_bytes: usize,
) -> (Vec<(u64, u64)>, u64) {
    let (mut told, mut parts) = (Vec::new(), 0);
    let add = |mut blocks| {
        told.append(&mut blocks);
        parts += 1;
    };
    let take = |_: &mut Flow<&Sections>, sink: &mut Divided| std::mem::take(&mut sink.0);
    let stream = Stream { data, config, epochs: &[], missing: &[] };
    decode_in_parts(memory, stream, Workers { threads, part_bytes }, Divided::default, take, add);
    (told, parts)
}

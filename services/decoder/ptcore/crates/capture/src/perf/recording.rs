//! Recordings for tests: records of the kernel, laid out as perf_event_open(2) and perf's own documentation say.

use crate::elf::{self, Function};
use crate::{open, Capture, Options, Stream, Threads};
use pt_flow::{Block, CodeMemory, DisableKind, Flow, Loss, Part, Reason, Sink};
use pt_image::Symbols;
use pt_packet::{writer::write, Compression, Ip, Packet};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub const KERNEL: u64 = 0xffff_ffff_a000_0000;
pub const USER: u64 = 0x40_0000;
/// One instruction more each: they can be told apart by how many run.
pub const NOP_RET: [u8; 4] = [0x90, 0xc3, 0xcc, 0xcc];
pub const TWO_NOPS_RET: [u8; 4] = [0x90, 0x90, 0xc3, 0xcc];

pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}

/// A text as records have it: filled up to eight bytes.
pub fn text(text: &str) -> Vec<u8> {
    let mut bytes = [text.as_bytes(), b"\0"].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Who, when and where: pid, tid, TSC, core.
pub type Id = (u32, u32, u64, u32);

/// What `perf record -o -` writes where perf's clock is the TSC.
pub struct Pipe(pub Vec<u8>);

impl Pipe {
    pub fn new() -> Self {
        // Intel PT; PMU, time_shift, time_mult, time_zero, known; bits of config; SWITCH_CPU_WIDE, no snapshots, per core.
        Self::with(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1])
    }

    /// With this AUXTRACE_INFO.
    pub fn with(info: &[u64]) -> Self {
        let mut pipe = Self::of_unknown_cpu(info);
        // One of the fewest errata.
        pipe.cpu("GenuineIntel,6,122,1");
        pipe
    }

    pub fn of_unknown_cpu(info: &[u64]) -> Self {
        let mut pipe = Pipe([&b"PERFILE2"[..], &16u64.to_le_bytes()].concat());
        // perf_event_attr: type and size, config, period, sample_type TID TIME CPU, read_format, sample_id_all.
        pipe.record(64, 0, &[halves(&[8, 64]), words(&[0, 0, 0x86, 0, 1 << 18, 0, 0])].concat());
        pipe.record(70, 0, &words(info));
        pipe
    }

    /// User code alone is recorded.
    pub fn excludes_kernel(&mut self) {
        // Behind the head of the file and of the attribute's record, its type, size, config, period and formats.
        self.0[16 + 8 + 40] |= 1 << 5;
    }

    /// CPUID of the header.
    pub fn cpu(&mut self, name: &str) {
        self.feature(9, name);
    }

    /// Release of the kernel in the header.
    pub fn release(&mut self, name: &str) {
        self.feature(4, name);
    }

    fn feature(&mut self, number: u64, value: &str) {
        let value = text(value);
        self.record(80, 0, &[words(&[number]), halves(&[value.len() as u32]), value].concat());
    }

    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(misc.to_le_bytes());
        self.0.extend((body.len() as u16 + 8).to_le_bytes());
        self.0.extend(body);
    }

    /// A record of the kernel, with its sample id.
    pub fn event(&mut self, kind: u32, misc: u16, body: &[u8], (pid, tid, tsc, core): Id) {
        let id = [halves(&[pid, tid]), words(&[tsc]), halves(&[core, 0])].concat();
        self.record(kind, misc, &[body, &id].concat());
    }

    pub fn maps(&mut self, id: Id, address: u64, size: u64, offset: u64, file: &str) {
        let place = [words(&[address, size, offset]), vec![0; 24], halves(&[5, 2])].concat();
        self.event(10, 2, &[halves(&[id.0, id.1]), place, text(file)].concat(), id);
    }

    /// From some thread that is not the idle one.
    pub fn enters(&mut self, id: Id) {
        self.event(15, 2, &halves(&[1, 1]), id);
    }

    /// To such a one.
    pub fn leaves(&mut self, id: Id) {
        self.event(15, 1 << 13 | 2, &halves(&[1, 1]), id);
    }

    /// Addresses that run from a time on until they return, as the packets of a core.
    pub fn ran(&mut self, core: u32, runs: &[(u64, u64)]) {
        self.packets(core, 0, &packets(runs));
    }

    pub fn packets(&mut self, core: u32, offset: u64, data: &[u8]) {
        let mut data = data.to_vec();
        data.resize(data.len().next_multiple_of(8), 0);
        let head = [words(&[data.len() as u64, offset, 0]), halves(&[core, u32::MAX, core, 0])].concat();
        self.record(71, 0, &head);
        self.0.extend(data);
    }

    pub fn open(&self, folder: &Folder, options: Options) -> Capture {
        let path = folder.add("perf.data", &self.0);
        open(&path, &Options { symbols: vec![folder.0.clone()], ..options }).unwrap()
    }
}

/// Addresses that run from a time on until they return.
pub fn packets(runs: &[(u64, u64)]) -> Vec<u8> {
    let full = |payload| Ip { compression: Compression::Full, payload };
    let mut data = Vec::new();
    let mut add = |packet| write(&mut data, packet);
    [Packet::Psb, Packet::Tsc(1), Packet::Psbend].into_iter().for_each(&mut add);
    for &(tsc, ip) in runs {
        let run = [Packet::Tsc(tsc), Packet::TipPge(full(ip)), Packet::Tsc(tsc + 1), Packet::TipPgd(full(0x77))];
        run.into_iter().for_each(&mut add);
    }
    data
}

pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pt-sideband-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn add(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Instructions of each run, and what was lost.
#[derive(Default)]
struct Runs(Vec<u32>, Vec<Loss>);

impl Sink for Runs {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        *self.0.last_mut().unwrap() += block.instructions;
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {
        self.0.push(0);
    }
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        self.1.push(*loss);
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

fn decoded(capture: &Capture) -> BTreeMap<(u32, u32), Runs> {
    let memory = capture.memory();
    let mut sink = Threads::new(&capture.views, |_| Runs::default());
    for Stream { data, epochs, lost, .. } in &capture.streams {
        let part = Part { missing: lost, ..Part::default() };
        Flow::new(&memory).decode_part(data, &capture.config, epochs, &part, &mut sink);
    }
    sink.finish()
}

/// How many instructions ran from each start on, by thread.
pub fn runs(capture: &Capture) -> Vec<(u32, Vec<u32>)> {
    decoded(capture).into_iter().map(|((_, tid), runs)| (tid, runs.0)).filter(|(_, runs)| !runs.is_empty()).collect()
}

/// Where something was lost, how many bytes, and why.
pub fn losses(capture: &Capture) -> Vec<(usize, usize, Reason)> {
    decoded(capture).values().flat_map(|runs| &runs.1).map(|loss| (loss.offset, loss.size, loss.reason)).collect()
}

pub fn program(folder: &Folder, name: &str, code: &[u8]) {
    folder.add(
        name,
        &elf::file(USER, code, &[&Function { address: USER, size: 4, name: "work".to_owned(), ..Function::default() }]),
    );
}

pub fn kcore(folder: &Folder) -> Options {
    Options { kcore: Some(folder.add("kcore", &elf::file(KERNEL, &NOP_RET, &[]))), ..Options::default() }
}

/// The name of the last thing that stood at the address.
pub fn named(capture: &Capture, address: u64) -> String {
    let last = capture.views.len() as u32 - 1;
    let memory = capture.memory();
    let _ = memory.read(last, address);
    let place = memory.place(last, address);
    memory.describe(place.space, place.function, address.wrapping_sub(place.bias)).name
}

//! Records of the kernel, laid out as perf_event_open(2) and perf's own documentation say, and what they make of the
//! code and the threads of a stream.

use crate::elf::{self, Function};
use crate::{open, Capture, Options, Threads};
use pt_flow::{Block, CodeMemory, DisableKind, Flow, Loss, Sink};
use pt_image::Symbols;
use pt_packet::{writer::write, Compression, Ip, Packet};
use std::path::PathBuf;
use std::process::Command;

const KERNEL: u64 = 0xffff_ffff_a000_0000;
const USER: u64 = 0x40_0000;
/// One instruction more each: they can be told apart by how many run.
const NOP_RET: [u8; 4] = [0x90, 0xc3, 0xcc, 0xcc];
const TWO_NOPS_RET: [u8; 4] = [0x90, 0x90, 0xc3, 0xcc];

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}

/// A text as records have it: filled up to eight bytes.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = [text.as_bytes(), b"\0"].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Who, when and where: pid, tid, TSC, core.
type Id = (u32, u32, u64, u32);

/// What `perf record -o -` writes where perf's clock is the TSC.
struct Pipe(Vec<u8>);

impl Pipe {
    fn new() -> Self {
        let mut pipe = Pipe([&b"PERFILE2"[..], &16u64.to_le_bytes()].concat());
        // perf_event_attr: type and size, config, period, sample_type TID TIME CPU, read_format, sample_id_all.
        pipe.record(64, 0, &[halves(&[8, 64]), words(&[0, 0, 0x86, 0, 1 << 18, 0, 0])].concat());
        // AUXTRACE_INFO: Intel PT; PMU, time_shift, time_mult, time_zero, known; bits of config; no snapshots, per core.
        pipe.record(70, 0, &words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1]));
        pipe
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(misc.to_le_bytes());
        self.0.extend((body.len() as u16 + 8).to_le_bytes());
        self.0.extend(body);
    }

    /// A record of the kernel, with its sample id.
    fn event(&mut self, kind: u32, misc: u16, body: &[u8], (pid, tid, tsc, core): Id) {
        let id = [halves(&[pid, tid]), words(&[tsc]), halves(&[core, 0])].concat();
        self.record(kind, misc, &[body, &id].concat());
    }

    fn maps(&mut self, id: Id, address: u64, size: u64, offset: u64, file: &str) {
        let place = [words(&[address, size, offset]), vec![0; 24], halves(&[5, 2])].concat();
        self.event(10, 2, &[halves(&[id.0, id.1]), place, text(file)].concat(), id);
    }

    fn enters(&mut self, id: Id) {
        self.event(15, 2, &halves(&[0, 0]), id);
    }

    fn leaves(&mut self, id: Id) {
        self.event(15, 1 << 13 | 2, &halves(&[0, 0]), id);
    }

    /// Addresses that run from a time on until they return, as the packets of a core.
    fn ran(&mut self, core: u32, runs: &[(u64, u64)]) {
        let full = |payload| Ip { compression: Compression::Full, payload };
        let mut data = Vec::new();
        let mut add = |packet| write(&mut data, packet);
        [Packet::Psb, Packet::Tsc(1), Packet::Psbend].into_iter().for_each(&mut add);
        for &(tsc, ip) in runs {
            let run = [Packet::Tsc(tsc), Packet::TipPge(full(ip)), Packet::Tsc(tsc + 1), Packet::TipPgd(full(0x77))];
            run.into_iter().for_each(&mut add);
        }
        self.packets(core, 0, &data);
    }

    fn packets(&mut self, core: u32, offset: u64, data: &[u8]) {
        let mut data = data.to_vec();
        data.resize(data.len().next_multiple_of(8), 0);
        let head = [words(&[data.len() as u64, offset, 0]), halves(&[core, u32::MAX, core, 0])].concat();
        self.record(71, 0, &head);
        self.0.extend(data);
    }

    fn open(&self, folder: &Folder, options: Options) -> Capture {
        let path = folder.add("perf.data", &self.0);
        open(&path, &Options { symbols: vec![folder.0.clone()], ..options }).unwrap()
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pt-sideband-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn add(&self, name: &str, bytes: &[u8]) -> PathBuf {
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

/// Instructions of each run.
#[derive(Default)]
struct Runs(Vec<u32>);

impl Sink for Runs {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        *self.0.last_mut().unwrap() += block.instructions;
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {
        self.0.push(0);
    }
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

/// How many instructions ran from each start on, by thread.
fn runs(capture: &Capture) -> Vec<(u32, Vec<u32>)> {
    let memory = capture.memory();
    let mut sink = Threads::new(&capture.views, |_| Runs::default());
    for stream in &capture.streams {
        Flow::new(&memory).decode(&stream.data, &capture.config, &stream.epochs, &mut sink);
    }
    sink.finish().into_iter().map(|(tid, runs)| (tid, runs.0)).filter(|(_, runs)| !runs.is_empty()).collect()
}

fn program(folder: &Folder, name: &str, code: &[u8]) {
    folder.add(name, &elf::file(USER, code, &[&Function { address: USER, size: 4, name: "work".to_owned() }]));
}

fn kcore(folder: &Folder) -> Options {
    Options { kcore: Some(folder.add("kcore", &elf::file(KERNEL, &NOP_RET, &[]))), ..Options::default() }
}

#[test]
fn a_text_poke_changes_the_kernel_from_its_time_on() {
    let folder = Folder::new("poke");
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    pipe.event(20, 1, &[words(&[KERNEL]), vec![1, 0, 1, 0, 0x90, 0xc3], vec![0; 6]].concat(), (7, 7, 150, 0));
    pipe.ran(0, &[(100, KERNEL), (200, KERNEL)]);
    assert_eq!(runs(&pipe.open(&folder, kcore(&folder))), [(7, vec![2, 1])]);
}

#[test]
fn what_a_text_poke_replaced_is_what_ran_before_whenever_the_kernel_was_copied() {
    let folder = Folder::new("poked");
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    // The copy of the kernel has two instructions, of which the first came by this change.
    pipe.event(20, 1, &[words(&[KERNEL]), vec![1, 0, 1, 0, 0xc3, 0x90], vec![0; 6]].concat(), (7, 7, 150, 0));
    pipe.ran(0, &[(100, KERNEL), (200, KERNEL)]);
    assert_eq!(runs(&pipe.open(&folder, kcore(&folder))), [(7, vec![1, 2])]);
}

/// `struct perf_bpil`, `struct bpf_prog_info` and the arrays: two functions of a program, as one section of the header.
fn bpf_programs(functions: &[(u64, &[u8])]) -> Vec<u8> {
    let code: Vec<u8> = functions.iter().flat_map(|(_, code)| code.iter().copied()).collect();
    let addresses = words(&functions.iter().map(|&(address, _)| address).collect::<Vec<_>>());
    let sizes = halves(&functions.iter().map(|(_, code)| code.len() as u32).collect::<Vec<_>>());
    let mut info = vec![0; 224];
    let mut set = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    set(16, &(code.len() as u32).to_le_bytes());
    set(24, &words(&[0]));
    set(104, &halves(&[functions.len() as u32, functions.len() as u32]));
    set(112, &words(&[code.len() as u64, (code.len() + addresses.len()) as u64]));
    let data = [code, addresses, sizes].concat();
    [halves(&[1, 224, data.len() as u32]), words(&[0b11001]), info, data].concat()
}

fn ksymbol(pipe: &mut Pipe, address: u64, gone: bool, id: Id) {
    let flags = [1u16.to_le_bytes(), u16::from(gone).to_le_bytes()].concat();
    pipe.event(17, 1, &[words(&[address]), halves(&[4]), flags, text("bpf_prog_abc_count")].concat(), id);
}

#[test]
fn bpf_programs_run_from_their_ksymbol_until_they_are_removed() {
    let folder = Folder::new("bpf");
    let mut pipe = Pipe::new();
    let (one, two) = (KERNEL + 0x1000, KERNEL + 0x2000);
    pipe.record(80, 0, &[words(&[25]), bpf_programs(&[(one, &NOP_RET), (two, &TWO_NOPS_RET)])].concat());
    pipe.enters((7, 7, 10, 0));
    ksymbol(&mut pipe, one, false, (7, 7, 20, 0));
    ksymbol(&mut pipe, two, false, (7, 7, 20, 0));
    // BPF_EVENT: the program was loaded; its id and tag say nothing about code.
    pipe.event(18, 1, &[vec![1, 0, 0, 0], halves(&[33]), vec![9; 8]].concat(), (7, 7, 20, 0));
    ksymbol(&mut pipe, one, true, (7, 7, 250, 0));
    pipe.ran(0, &[(100, one), (200, two), (300, one)]);
    let capture = pipe.open(&folder, kcore(&folder));
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2, 3, 0])]);
    let last = capture.streams[0].epochs.last().unwrap().1;
    assert_eq!(capture.memory().why_no_code(last, one), "bpf_prog_abc_count: it was removed before");
}

#[test]
fn a_ksymbol_without_code_says_what_is_missing() {
    let folder = Folder::new("ksymbol");
    let mut pipe = Pipe::new();
    ksymbol(&mut pipe, KERNEL + 0x1000, false, (7, 7, 20, 0));
    pipe.ran(0, &[(100, KERNEL + 0x1000)]);
    let capture = pipe.open(&folder, kcore(&folder));
    let why = capture.memory().why_no_code(0, KERNEL + 0x1000);
    assert_eq!(why, "bpf_prog_abc_count: the code of BPF programs and trampolines is not in the recording");
}

#[test]
fn records_that_say_nothing_of_code_or_threads_change_nothing() {
    let folder = Folder::new("namespaces");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
    pipe.enters((7, 7, 10, 0));
    let namespaces = [halves(&[7, 7]), words(&[2, 3, 0xeffffffe, 3, 0xefffffff])].concat();
    pipe.event(16, 0, &namespaces, (7, 7, 20, 0));
    // CGROUP, and a kind that nobody knows yet.
    pipe.event(19, 0, &[words(&[1]), text("/user.slice")].concat(), (7, 7, 20, 0));
    pipe.event(63, 0, &[1, 2, 3, 4, 5, 6, 7, 8], (7, 7, 20, 0));
    pipe.ran(0, &[(100, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2])]);
}

#[test]
fn what_the_kernel_could_not_write_is_a_loss_at_its_place() {
    let folder = Folder::new("aux");
    let mut pipe = Pipe::new();
    let (truncated, overwritten, partial) = (1, 2, 4);
    pipe.event(11, 0, &words(&[0, 8, truncated]), (7, 7, 20, 3));
    pipe.event(11, 0, &words(&[8, 8, overwritten]), (7, 7, 20, 3));
    pipe.event(11, 0, &words(&[16, 8, partial]), (7, 7, 20, 3));
    pipe.event(11, 0, &words(&[0, 16, truncated]), (7, 7, 20, 4));
    // LOST and LOST_SAMPLES: records that found no room.
    pipe.event(2, 0, &words(&[1, 40]), (7, 7, 20, 3));
    pipe.event(13, 0, &words(&[2]), (7, 7, 20, 3));
    pipe.packets(3, 0, &[0; 32]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.streams[0].lost, [8, 24]);
    let wanted = ["core 3: packets were lost at 2 places: 0x8, 0x18", "42 records of the kernel were lost"];
    assert_eq!(capture.warnings, wanted);
}

#[test]
fn the_thread_of_a_stream_of_its_own_belongs_to_the_process_that_tracing_began_for() {
    let folder = Folder::new("itrace");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.event(12, 0, &halves(&[7, 9]), (7, 9, 1, 0));
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
    let full = Ip { compression: Compression::Full, payload: USER };
    let mut data = Vec::new();
    for packet in [Packet::Psb, Packet::Tsc(50), Packet::Psbend, Packet::TipPge(full), Packet::TipPgd(full)] {
        write(&mut data, packet);
    }
    data.resize(data.len().next_multiple_of(8), 0);
    pipe.record(71, 0, &[words(&[data.len() as u64, 0, 0]), halves(&[0, 9, u32::MAX, 0])].concat());
    pipe.0.extend(data);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.streams[0].of, crate::Of::Thread { pid: 7, tid: 9 });
    assert_eq!(runs(&capture), [(9, vec![2])]);
}

#[test]
fn a_core_changes_threads_at_the_switches() {
    let folder = Folder::new("switches");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    pipe.maps((8, 8, 5, 0), USER, 4, 0x1000, "/two");
    pipe.enters((7, 7, 50, 0));
    pipe.leaves((7, 7, 150, 0));
    pipe.enters((8, 8, 160, 0));
    pipe.leaves((8, 8, 250, 0));
    pipe.enters((7, 7, 260, 0));
    // Another core is no matter here.
    pipe.enters((9, 9, 270, 1));
    pipe.ran(0, &[(100, USER), (200, USER), (300, USER)]);
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![2, 2]), (8, vec![3])]);
}

#[test]
fn a_child_runs_what_its_parent_mapped_until_it_becomes_another_program() {
    let folder = Folder::new("fork");
    program(&folder, "parent", &NOP_RET);
    program(&folder, "child", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/parent");
    // FORK: pid, parent's pid, tid, parent's tid, time.
    pipe.event(7, 0, &[halves(&[8, 7, 8, 7]), words(&[20])].concat(), (7, 7, 20, 0));
    pipe.enters((8, 8, 50, 0));
    pipe.event(3, 1 << 13, &[halves(&[8, 8]), text("child")].concat(), (8, 8, 150, 0));
    pipe.maps((8, 8, 160, 0), USER, 4, 0x1000, "/child");
    // EXIT, and the pid is used again.
    pipe.event(4, 0, &[halves(&[8, 7, 8, 7]), words(&[350])].concat(), (8, 8, 350, 0));
    pipe.event(7, 0, &[halves(&[8, 7, 8, 7]), words(&[360])].concat(), (7, 7, 360, 0));
    pipe.ran(0, &[(100, USER), (200, USER), (300, USER), (400, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.names[&8], "child");
    assert_eq!(runs(&capture), [(8, vec![2, 3, 3, 2])]);
}

#[test]
fn a_new_thread_belongs_to_its_process() {
    let folder = Folder::new("clone");
    let mut pipe = Pipe::new();
    pipe.event(7, 0, &[halves(&[7, 7, 9, 7]), words(&[20])].concat(), (7, 7, 20, 0));
    let head = [words(&[8, 0, 0]), halves(&[0, 9, u32::MAX, 0])].concat();
    pipe.record(71, 0, &head);
    pipe.0.extend([0; 8]);
    assert_eq!(pipe.open(&folder, Options::default()).streams[0].of, crate::Of::Thread { pid: 7, tid: 9 });
}

#[test]
fn code_of_a_jitdump_runs_from_its_time_on_and_has_its_name() {
    let folder = Folder::new("jitdump");
    // The head of the file: magic, version, size, ELF machine, padding, pid, time, flags (times are TSC ticks).
    let mut dump = [halves(&[0x4a69_5444, 1, 40, 62, 0, 7]), words(&[0, 1])].concat();
    for (number, (tsc, code)) in [(20u64, NOP_RET), (150, TWO_NOPS_RET)].into_iter().enumerate() {
        let head = [halves(&[7, 7]), words(&[USER, USER, 4, number as u64]), b"made\0".to_vec()].concat();
        let size = 16 + head.len() + code.len();
        dump.extend([halves(&[0, size as u32]), words(&[tsc]), head, code.to_vec()].concat());
    }
    folder.add("jit-7.dump", &dump);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-7.dump");
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, USER), (200, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2, 3])]);
    assert_eq!(named(&capture, USER), "made");
}

#[test]
fn a_perf_map_names_what_has_no_code() {
    let folder = Folder::new("map");
    folder.add("perf-7.map", b"400000 10 LazyCompile:work app.js:1\n400010 20 other\n");
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 0x1000, 0, "//anon");
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, USER + 0x18)]);
    let capture = pipe.open(&folder, Options::default());
    let view = capture.views.iter().position(|view| view.tid == 7).unwrap() as u32;
    assert_eq!(
        capture.memory().why_no_code(view, USER + 0x18),
        "other: perf-7.map names code that was written at run time: only a jitdump file has its bytes"
    );
    assert_eq!(named(&capture, USER + 8), "LazyCompile:work app.js:1+0x400008");
    assert_eq!(named(&capture, USER + 0x18), "other+0x400018");
}

/// The name of the last thing that stood at the address.
fn named(capture: &Capture, address: u64) -> String {
    let last = capture.views.len() as u32 - 1;
    let memory = capture.memory();
    let _ = memory.read(last, address);
    let place = memory.place(last, address);
    memory.describe(place.space, place.function, address).name
}

/// Two sections, of which the first calls into the second and into the kernel.
const MODULE: &str = "
    .text
    .globl net_work
    .type net_work, @function
net_work:
    call __fentry__
    call helper
    call kernel_work
    ret
    .size net_work, . - net_work
    .section .init.text, \"ax\"
    .fill 64, 1, 0x90
    .section .text.unlikely, \"ax\"
    .balign 16
    .type helper, @function
helper:
    nop
    ret
    .size helper, . - helper
";

#[test]
fn vmlinux_and_the_files_of_the_modules_are_the_kernel() {
    let folder = Folder::new("modules");
    let source = folder.add("net.s", MODULE.as_bytes());
    match Command::new("cc").arg("-c").arg(source).arg("-o").arg(folder.0.join("net.ko")).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: no C compiler: {error}"),
    }
    let at = |address, name: &str| Function { address, size: 2, name: name.to_owned() };
    let (text_at, work_at) = (at(0xffff_ffff_8100_0000, "_text"), at(0xffff_ffff_8100_0002, "kernel_work"));
    let code = [0x90, 0xc3, 0x90, 0x90, 0xc3];
    let vmlinux = folder.add("vmlinux", &elf::file(text_at.address, &code, &[&text_at, &work_at]));
    let mut pipe = Pipe::new();
    let kernel = |pipe: &mut Pipe, address, offset, name| {
        let place = [halves(&[u32::MAX, 0]), words(&[address, 0x1000, offset])].concat();
        pipe.event(1, 1, &[place, text(name)].concat(), (u32::MAX, 0, 0, 0));
    };
    // Moved by 16 MiB (address space randomisation).
    kernel(&mut pipe, 0xffff_ffff_8200_0000, 0xffff_ffff_8200_0000, "[kernel.kallsyms]_text");
    let module = 0xffff_ffff_c000_0000;
    kernel(&mut pipe, module, 0, "/lib/modules/6.1.0/kernel/net/net.ko");
    kernel(&mut pipe, module + 0x10000, 0, "/lib/modules/6.1.0/kernel/net/gone.ko");
    pipe.enters((7, 7, 10, 0));
    // At the beginning; behind the call of `helper`, which was 10 bytes from it.
    pipe.ran(0, &[(100, 0xffff_ffff_8200_0000), (200, module), (300, module + 10)]);
    let capture = pipe.open(&folder, Options { vmlinux: Some(vmlinux), ..Options::default() });
    let gone = "/lib/modules/6.1.0/kernel/net/gone.ko: the file is not there; a kcore would have its code";
    assert_eq!(capture.warnings, [gone]);
    // nop, call, nop, ret; call, nop, nop, ret.
    assert_eq!(runs(&capture), [(7, vec![2, 4, 4])]);
    assert_eq!(named(&capture, module + 5), "net_work");
    assert_eq!(named(&capture, module + 17), "helper");
}

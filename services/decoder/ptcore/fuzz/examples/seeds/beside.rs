//! Recordings with files beside them: kernel, modules, code written at run time, records in files of their own.

use crate::{padded, MIXED};
use pt_fuzz::{CODE, FILE, NAMES};
use pt_packet::writer::write;
use pt_packet::{Compression, Ip, Packet};
use std::io::Write;
use std::process::{Command, Stdio};

const KERNEL: u64 = 0xffff_ffff_a000_0000;
const MODULE: u64 = KERNEL + 0x10_0000;
const WRITTEN: u64 = 0x7f00_0000_0000;
/// Where the code of an ELF file begins, behind its heads.
const CODE_AT: u64 = 0x80;

/// Inputs as the fuzz target takes them.
pub fn inputs() -> Vec<Vec<u8>> {
    let jitted = ("jit-7.dump", jitdump());
    let mapped = ("perf-7.map", format!("{WRITTEN:x} 10 one\n{:x} 20 two\n", WRITTEN + 0x10).into_bytes());
    let program = ("work", elf(CODE, MIXED));
    let kcore = ("kcore_dir/kcore", elf(KERNEL, MIXED));
    let names = format!("{KERNEL:x} T _text\n{:x} t second\t[net]\n", KERNEL + 8);
    let kallsyms = ("kcore_dir/kallsyms", names.into_bytes());
    let vmlinux = ("vmlinux", elf(0xffff_ffff_8100_0000, MIXED));
    let module = ("net.ko", module());
    let [mut whole, mut head] = [Records::new(), Records::new()];
    whole.kernel();
    whole.program();
    head.kernel();
    head.program();
    let rest = Records(Vec::new()).ran();
    let packed = Records::new().packed(&Records(head.0[Records::new().0.len()..].to_vec())).ran();
    let whole = whole.ran();
    let packed_module = |tool: &[&str]| ("net.ko", packed_by(tool, &module.1));
    let plain_file = ("image", padded(MIXED));
    let elf_file = ("image", program.1.clone());
    let [at_once, in_parts] = [format!("x:{CODE}\n"), format!("x:0:8:{CODE}\nx:8:{:#x}\n", CODE + 8)]
        .map(|text| ("images", text.into_bytes()));
    let of_section = ("images", format!("x:{CODE_AT}:20:{CODE}\n").into_bytes());
    let loose = Records::new().0[16..].to_vec();
    vec![
        input(&whole.0, &[&program, &jitted, &mapped, &kcore, &kallsyms]),
        input(&whole.0, &[&program, &vmlinux, &module]),
        input(&head.0, &[&("data.0", rest.0), &program, &kcore]),
        input(&packed.0, &[&program]),
        input(&Records::sampled().0, &[&program]),
        input(&packets(&[CODE]), &[&("loose.sideband.pevent", loose), &program]),
        input(BUNDLE, &[&program, &("switches", switches()), &("data.0", packets(&[CODE]))]),
        input(MANIFEST, &[&("maps", MAPS.to_vec()), &("code", padded(MIXED)), &("data.0", packets(&[CODE]))]),
        input(CORE, &[&("maps", MAPS.to_vec()), &("data.0", packets(&[CODE, CODE])), &("switches", turns())]),
        input(&whole.0, &[&packed_module(&["gzip", "-n"]), &vmlinux]),
        input(&whole.0, &[&packed_module(&["zstd", "-q"]), &vmlinux]),
        input(&whole.0, &[&packed_module(&["xz", "--check=none", "--lzma2=dict=4KiB"]), &vmlinux]),
        input(&Records::new().of_this_kernel().ran().0, &[&program]),
        input(&Records::new().two_threads().0, &[&program]),
        input(&packets(&[CODE]), &[&plain_file, &at_once]),
        input(&packets(&[CODE]), &[&plain_file, &in_parts]),
        input(&packets(&[CODE]), &[&elf_file, &of_section]),
    ]
}

fn input(recording: &[u8], beside: &[&(&str, Vec<u8>)]) -> Vec<u8> {
    let mut input = recording.to_vec();
    for (name, bytes) in beside {
        let number = NAMES.iter().position(|one| one == name).expect("a name of the target");
        input.extend([FILE, &[number as u8], bytes].concat());
    }
    input
}

/// What the tool makes of these bytes.
fn packed_by(tool: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut command = Command::new(tool[0]);
    let command = command.args(&tool[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().expect("gzip, zstd and xz");
    running.stdin.take().expect("a pipe").write_all(bytes).expect("less than a pipe takes");
    running.wait_with_output().expect("its output").stdout
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = [text.as_bytes(), b"\0"].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// What `perf record -o -` writes where perf's clock is the TSC.
struct Records(Vec<u8>);

impl Records {
    fn new() -> Self {
        let mut records = Records([&b"PERFILE2"[..], &words(&[16])].concat());
        records.add(64, 0, &[halves(&[8, 64]), words(&[0, 0, 0x86, 0, 1 << 18, 0, 0])].concat());
        records.add(70, 0, &words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1]));
        records
    }

    fn add(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.0.extend((u64::from(kind) | u64::from(misc) << 32 | (body.len() as u64 + 8) << 48).to_le_bytes());
        self.0.extend(body);
    }

    /// Samples of sched:sched_switch, and those that packets lead up to (`perf record --aux-sample`).
    fn sampled() -> Self {
        // IDENTIFIER TID TIME CPU, with AUX or RAW.
        const USUAL: u64 = 1 << 16 | 0x86;
        const FORMAT: &str = "name: sched_switch\nID: 314\nformat:\n\tfield:pid_t prev_pid;\toffset:8;\n\
                              \tfield:pid_t next_pid;\toffset:16;\nprint fmt: \"\"\n";
        let mut records = Records([&b"PERFILE2"[..], &words(&[16])].concat());
        for (kind, config, has, id) in [(8, 0, 1 << 20, 77), (2, 314, 1 << 10, 78)] {
            let attribute = words(&[config, 0, USUAL | has, 0, 1 << 18, 0, 0, id]);
            records.add(64, 0, &[halves(&[kind, 64]), attribute].concat());
        }
        records.add(70, 0, &words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 1, 0, 1]));
        records.add(66, 0, &halves(&[FORMAT.len() as u32, 0]));
        records.0.extend(FORMAT.bytes());
        records.0.resize(records.0.len().next_multiple_of(8), 0);
        let place = [words(&[7 | 7 << 32, CODE, 0x1000, CODE_AT]), vec![0; 24], halves(&[5, 2])].concat();
        records.add(10, 2, &[place, text("/work"), words(&[7 | 7 << 32, 5, 0, 77])].concat());
        for (time, leaves, enters) in [(50, 0, 7), (150, 7, 8)] {
            let raw = [halves(&[20]), words(&[0, leaves, enters])].concat();
            records.add(9, 0, &[words(&[78, 7 | 7 << 32, time, 0]), raw, vec![0; 4]].concat());
        }
        let packets = packets(&[CODE]);
        records.add(9, 0, &[words(&[77, 7 | 7 << 32, 400, 0, packets.len() as u64]), packets].concat());
        records
    }

    /// Records in one of perf's own (COMPRESSED): a zstd stream of one block of bytes as they are (RFC 8878).
    fn packed(mut self, records: &Records) -> Self {
        let block = (records.0.len() as u32) << 3;
        let head = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x58][..], &block.to_le_bytes()[..3]].concat();
        self.add(81, 0, &[&head[..], &records.0].concat());
        self
    }

    /// A record of the kernel, with its sample id.
    fn event(&mut self, kind: u32, misc: u16, body: &[u8], pid: u32, tsc: u64) {
        let id = [halves(&[pid, pid]), words(&[tsc, 0])].concat();
        self.add(kind, misc, &[body, &id].concat());
    }

    fn maps(&mut self, pid: u32, tsc: u64, place: [u64; 3], name: &str) {
        let place = [words(&place), vec![0; 24], halves(&[5, 2])].concat();
        self.event(10, 2, &[halves(&[pid, pid]), place, text(name)].concat(), pid, tsc);
    }

    fn kernel(&mut self) {
        for (address, offset, name) in [(KERNEL, KERNEL, "[kernel.kallsyms]_text"), (MODULE, 0, "/lib/net.ko")] {
            let place = [halves(&[u32::MAX, 0]), words(&[address, 0x1000, offset])].concat();
            self.event(1, 1, &[place, text(name)].concat(), u32::MAX, 0);
        }
        // BPF_PROG_INFO: one program of one function (`struct perf_bpil`, `struct bpf_prog_info`).
        let mut info = vec![0; 224];
        info[104..128].copy_from_slice(&words(&[1 | 1 << 32, 24, 32]));
        let arrays = [padded(MIXED), vec![0; 4], words(&[KERNEL + 0x2000, MIXED.len() as u64])].concat();
        let head = [words(&[25]), halves(&[1, 224, arrays.len() as u32]), words(&[0b11001])].concat();
        self.add(80, 0, &[head, info, arrays, vec![0; 4]].concat());
        // KSYMBOL, TEXT_POKE.
        self.event(17, 1, &[words(&[KERNEL + 0x2000, 4 | 1 << 32]), text("bpf_prog_1")].concat(), 7, 20);
        self.event(20, 1, &[words(&[KERNEL]), vec![1, 0, 1, 0, 0x90, 0xc3, 0, 0, 0, 0, 0, 0]].concat(), 7, 150);
    }

    fn program(&mut self) {
        self.maps(7, 5, [CODE, 0x1000, CODE_AT], "/work");
        self.maps(7, 6, [WRITTEN, 0x1000, 0], "//anon");
        self.maps(7, 7, [0x7e00_0000_0000, 0x1000, 0], "/tmp/jit-7.dump");
        // FORK, COMM, EXIT.
        self.event(7, 0, &[halves(&[8, 7, 8, 7]), words(&[20])].concat(), 7, 20);
        self.event(3, 1 << 13, &[halves(&[8, 8]), text("child")].concat(), 8, 30);
        self.event(4, 0, &[halves(&[8, 7, 8, 7]), words(&[40])].concat(), 8, 40);
        // SWITCH_CPU_WIDE.
        self.event(15, 2, &[0; 8], 7, 50);
        self.event(15, 1 << 13 | 2, &[0; 8], 7, 500);
    }

    /// A process with the vdso, and the release of the kernel (HEADER_OSRELEASE).
    fn of_this_kernel(mut self) -> Self {
        let release = [halves(&[8]), text("6.1.0")].concat();
        self.add(80, 0, &[words(&[4]), release, vec![0; 4]].concat());
        self.maps(7, 5, [CODE, 0x1000, CODE_AT], "/work");
        self.maps(7, 6, [WRITTEN, 0x1000, 0], "[vdso]");
        self.event(15, 2, &[0; 8], 7, 50);
        self
    }

    /// Two threads of a process that take turns on a core, whose packets come in several pieces.
    fn two_threads(mut self) -> Self {
        self.maps(7, 5, [CODE, 0x1000, CODE_AT], "/work");
        for (time, tid, leaves) in [(50, 7, 0), (150, 7, 1), (160, 8, 0), (350, 8, 1), (360, 7, 0)] {
            let id = [halves(&[7, tid]), words(&[time, 0])].concat();
            self.add(15, leaves << 13 | 2, &[vec![0; 8], id].concat());
        }
        let packets = packets(&[CODE; 8]);
        let (first, rest) = packets.split_at(packets.len() / 16 * 8);
        for (at, piece) in [(0, first), (first.len(), rest)] {
            let place = words(&[piece.len() as u64, at as u64, 0, u64::from(u32::MAX) << 32, 0]);
            self.add(71, 0, &place);
            self.0.extend(piece);
        }
        self
    }

    fn ran(mut self) -> Records {
        let packets = packets(&[CODE, KERNEL, WRITTEN, MODULE, KERNEL + 0x2000, CODE]);
        self.add(71, 0, &words(&[packets.len() as u64, 0, 0, u64::from(u32::MAX) << 32, 0]));
        self.0.extend(packets);
        self
    }
}

/// Addresses that run until they leave.
fn packets(runs: &[u64]) -> Vec<u8> {
    let full = |payload| Ip { compression: Compression::Full, payload };
    let mut data = Vec::new();
    [Packet::Psb, Packet::Tsc(1), Packet::Psbend].into_iter().for_each(|packet| write(&mut data, packet));
    for (number, &ip) in runs.iter().enumerate() {
        let tsc = 100 * (number as u64 + 1);
        for packet in [Packet::Tsc(tsc), Packet::TipPge(full(ip)), Packet::Tsc(tsc + 1), Packet::TipPgd(full(0x77))] {
            write(&mut data, packet);
        }
    }
    data.resize(data.len().next_multiple_of(8), 0);
    data
}

/// Two functions of which the first is moved (tools/perf/Documentation/jitdump-specification.txt of Linux).
fn jitdump() -> Vec<u8> {
    let mut dump = [halves(&[0x4a69_5444, 1, 40, 62, 0, 7]), words(&[0, 1])].concat();
    let loads = [0, 1].map(|number: u64| {
        let place = WRITTEN + 0x20 * number;
        let head = [halves(&[7, 7]), words(&[place, place, MIXED.len() as u64, number])].concat();
        (0, [head, b"made\0".to_vec(), MIXED.to_vec()].concat())
    });
    let moved = words(&[7 | 7 << 32, 0, WRITTEN, WRITTEN + 0x80, MIXED.len() as u64, 0]);
    for (time, (kind, body)) in loads.into_iter().chain([(1, moved)]).enumerate() {
        dump.extend([halves(&[kind, body.len() as u32 + 16]), words(&[20 + 100 * time as u64]), body].concat());
    }
    dump
}

/// An ELF file of one loaded part and one section, which is code (System V ABI, chapters 4 and 5).
fn elf(address: u64, code: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.text\0.names\0\0\0";
    let size = code.len() as u64;
    let names = CODE_AT + size.next_multiple_of(16);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(words(&[2 | 62 << 16 | 1 << 32, address, 64, names + NAMES.len() as u64]));
    file.extend(words(&[64 << 32 | 56 << 48, 1 | 64 << 16 | 3 << 32 | 2 << 48]));
    file.extend(words(&[1 | 5 << 32, CODE_AT, address, address, size, size, 1]));
    file.resize(CODE_AT as usize, 0);
    file.extend(code);
    file.resize(names as usize, 0);
    file.extend(NAMES);
    file.extend([0; 64]);
    file.extend(words(&[1 | 1 << 32, 6, address, CODE_AT, size, 0, 16, 0]));
    file.extend(words(&[7 | 3 << 32, 0, 0, names, NAMES.len() as u64, 0, 1, 0]));
    file
}

/// A kernel module that calls a function of the kernel (System V ABI, chapter 4, and the relocations of x86-64).
fn module() -> Vec<u8> {
    const CALL: [u8; 8] = [0xe8, 0, 0, 0, 0, 0xc3, 0xcc, 0xcc];
    const NAMES: &[u8] = b"\0.text\0.rela\0_text\0work\0\0\0\0\0\0\0\0\0";
    let symbols = [words(&[0; 3]), words(&[1 << 36 | 13, 0, 0]), words(&[0x1_0012 << 32 | 19, 0, 6])].concat();
    let relocation = words(&[1, 1 << 32 | 4, u64::MAX - 3]);
    let parts: [&[u8]; 4] = [&CALL, &relocation, &symbols, NAMES];
    let table = 64 + parts.iter().map(|part| part.len() as u64).sum::<u64>();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(words(&[1 | 62 << 16 | 1 << 32, 0, 0, table, 64 << 32, 64 << 16 | 5 << 32 | 4 << 48]));
    file.extend(parts.concat());
    let kinds =
        [[1 | 1 << 32, 6, 0, 0], [7 | 4 << 32, 0, 3 | 1 << 32, 24], [2 << 32, 0, 4 | 1 << 32, 24], [3 << 32, 0, 0, 0]];
    file.extend([0; 64]);
    let mut at = 64;
    for (part, [kind, flags, link, entry]) in parts.iter().zip(kinds) {
        file.extend(words(&[kind, flags, 0, at, part.len() as u64, link, 8, entry]));
        at += part.len() as u64;
    }
    file
}

/// Records of a core in a session: TSC, core, pid, tid, whether it arrives (`struct permille_switch`).
fn turns() -> Vec<u8> {
    [(50, 7, 1), (150, 7, 0), (160, 8, 1)]
        .map(|(tsc, pid, enters)| [words(&[tsc]), halves(&[0, pid, pid, enters])].concat())
        .concat()
}

/// Records of a core in a bundle of LLDB.
fn switches() -> Vec<u8> {
    let mut records = Records(Vec::new());
    for (misc, time) in [(0, 50), (1 << 13, 150)] {
        records.add(15, misc, &[halves(&[0, 0, 7, 7]), words(&[time])].concat());
    }
    records.0
}

const BUNDLE: &[u8] = br#"{"type":"intel-pt","cpuInfo":{"vendor":"GenuineIntel","family":6,"model":79,"stepping":1},
"processes":[{"pid":7,"modules":[{"file":"work","systemPath":"work","loadAddress":4194304}]}],
"kernel":{"file":"work","loadAddress":"0xffffffff81000000"},
"cpus":[{"id":0,"iptTrace":"data.0","contextSwitchTrace":"switches"}],
"tscPerfZeroConversion":{"timeMult":1,"timeShift":0,"timeZero":"0"}}"#;

const MANIFEST: &[u8] = br#"{"version":1,"session_id":"x","backend":"pt","pt":{"family":6,"model":79,"stepping":1},
"code":{"key":"raw/x/code"},"maps":{"key":"raw/x/maps"},"threads":[{"tid":7,"name":"work"}],
"segments":[{"key":"raw/x/data.0","pid":7,"tid":7,"epochs":[[0,0],[40,1]],"turns":[]}]}"#;

const CORE: &[u8] = br#"{"version":1,"session_id":"x","backend":"pt","pt":{"family":6,"model":79,"stepping":1},
"code":{"key":"raw/x/maps"},"maps":{"key":"raw/x/maps"},"switches":{"key":"raw/x/switches"},"clock":{"tsc0":1},
"segments":[{"key":"raw/x/data.0","kind":"core","core":0,"pid":0,"tid":0}]}"#;

const MAPS: &[u8] = br#"{"processes":[{"pid":7,"changes":[
{"event":"code","epoch":0,"address":4198400,"size_bytes":20},{"event":"unmap","epoch":1,"address":4198400,"size_bytes":8},
{"event":"map","epoch":0,"address":8192,"size_bytes":4096,"path":"work","missing":"it was not recorded"}]}]}"#;

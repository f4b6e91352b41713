//! Recordings with files beside them: kernel, modules, code written at run time, records in files of their own.

use crate::{padded, MIXED};
use pt_fuzz::{CODE, FILE, NAMES};
use pt_packet::writer::write;
use pt_packet::{Compression, Ip, Packet};

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
    let module = ("net.ko", elf(0, MIXED));
    let [mut whole, mut head] = [Records::new(), Records::new()];
    whole.kernel();
    whole.program();
    head.kernel();
    head.program();
    let rest = Records(whole.0[head.0.len()..].to_vec()).ran();
    let whole = whole.ran();
    let loose = Records::new().0[16..].to_vec();
    vec![
        input(&whole.0, &[&program, &jitted, &mapped, &kcore, &kallsyms]),
        input(&whole.0, &[&program, &vmlinux, &module]),
        input(&head.0, &[&("data.0", rest.0), &program, &kcore]),
        input(&packets(&[CODE]), &[&("loose.sideband.pevent", loose), &program]),
        input(BUNDLE, &[&program, &("switches", switches()), &("data.0", packets(&[CODE]))]),
        input(MANIFEST, &[&("maps", MAPS.to_vec()), &("code", padded(MIXED)), &("data.0", packets(&[CODE]))]),
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

const MAPS: &[u8] = br#"{"processes":[{"pid":7,"changes":[
{"event":"code","epoch":0,"address":4198400,"size_bytes":20},{"event":"unmap","epoch":1,"address":4198400,"size_bytes":8},
{"event":"map","epoch":0,"address":8192,"size_bytes":4096,"path":"work","missing":"it was not recorded"}]}]}"#;

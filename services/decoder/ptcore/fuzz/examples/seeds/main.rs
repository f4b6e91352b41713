//! Writes the inputs that fuzzing begins with: `cargo run --example seeds`. What it found worth keeping stands beside them.

mod beside;
mod names;

use pt_fuzz::CODE;
use pt_packet::writer::write;
use pt_packet::{Compression, Execution, Ip, Packet};
use std::fs;

// 0: call 8; 5: jz 0; 7: ret; 8: jmp rax; 10: call rax; 12: syscall; 14: jnz 8; 16: rep movsb; 18: jmp 5
const MIXED: &[u8] =
    &[0xe8, 0x03, 0, 0, 0, 0x74, 0xf9, 0xc3, 0xff, 0xe0, 0xff, 0xd0, 0x0f, 0x05, 0x75, 0xf8, 0xf3, 0xa4, 0xeb, 0xf1];
// xbegin +2; nop; xabort 0; xend; ptwrite eax; vmcall; iretq; int3; mov cr3, rax; ret
const SYSTEM: &[u8] = &[
    0xc7, 0xf8, 2, 0, 0, 0, 0x90, 0xc6, 0xf8, 0, 0x0f, 0x01, 0xd5, 0xf3, 0x0f, 0xae, 0xe0, 0x0f, 0x01, 0xc1, 0x48,
    0xcf, 0xcc, 0x0f, 0x22, 0xd8, 0xc3,
];

fn main() -> std::io::Result<()> {
    let streams = streams();
    for (number, stream) in streams.iter().enumerate() {
        save("packets", number, stream)?;
        save("capture", number, stream)?;
        for (which, code) in [MIXED, SYSTEM].into_iter().enumerate() {
            let input = [&[(code.len() as u8).div_ceil(4)], padded(code).as_slice(), stream].concat();
            save("flow", number * 2 + which, &input)?;
            save("calls", number * 2 + which, &input)?;
        }
    }
    save("capture", streams.len(), &griffin(&streams[0]))?;
    save("capture", streams.len() + 1, &griffin(&streams[1]))?;
    save("capture", streams.len() + 2, &perf_data(&streams[1], false))?;
    save("capture", streams.len() + 3, LLDB)?;
    save("capture", streams.len() + 4, &perf_data(&streams[1], true))?;
    for (number, symbol) in names::INPUTS.iter().enumerate() {
        save("names", number, symbol.as_bytes())?;
    }
    beside::inputs().iter().enumerate().try_for_each(|(number, input)| save("beside", number, input))
}

fn save(layer: &str, number: usize, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(format!("corpus/{layer}"))?;
    fs::write(format!("corpus/{layer}/seed-{number}"), bytes)
}

fn padded(code: &[u8]) -> Vec<u8> {
    let mut padded = code.to_vec();
    padded.resize(code.len().div_ceil(4) * 4, 0x90);
    padded
}

fn full(offset: u64) -> Ip {
    Ip { compression: Compression::Full, payload: CODE + offset }
}

fn low(offset: u64) -> Ip {
    Ip { compression: Compression::Update16, payload: (CODE + offset) & 0xffff }
}

fn streams() -> Vec<Vec<u8>> {
    use Packet::*;
    let psb = [
        Psb,
        Tsc(1000),
        Tma { ctc: 17, fast_counter: 4 },
        Cbr { ratio: 40 },
        ModeExec { mode: Execution::Bits64, interrupt_flag: true },
        Fup(full(0)),
        Psbend,
    ];
    let rest: [&[Packet]; 6] = [
        &[
            Tip(low(5)),
            Tnt { bits: 0b10, count: 2 },
            Fup(low(5)),
            TipPgd(Ip::SUPPRESSED),
            TipPge(full(16)),
            Fup(low(16)),
            Tip(low(0)),
        ],
        &[
            Mtc(3),
            Cyc(7),
            Tip(low(10)),
            Cyc(900),
            Tip(low(0)),
            Tnt { bits: 0x1234_5678, count: 40 },
            Mtc(5),
            Ovf,
            Fup(low(8)),
            Tip(low(12)),
        ],
        &[
            Tip(low(12)),
            TipPgd(low(14)),
            Pip { cr3: 0x1000, non_root: false },
            TipPge(low(14)),
            Tnt { bits: 0, count: 1 },
            TraceStop,
        ],
        &[
            ModeTsx { in_transaction: true, aborted: false },
            Fup(low(0)),
            Ptw { payload: 42, size: 8, fup: true },
            Fup(low(13)),
            ModeTsx { in_transaction: false, aborted: true },
            Fup(low(6)),
            Tip(low(2)),
        ],
        &[
            Exstop { fup: true },
            Fup(low(2)),
            Mwait { hints: 1, extensions: 2 },
            Pwre { state: 1, sub_state: 0, hardware: false },
            Pwrx { last: 1, deepest: 2, wake: 1 },
            Cfe { kind: 1, vector: 14, fup: true },
            Evd { kind: 0, payload: 77 },
            Fup(low(2)),
            Tip(low(0)),
            Trig { number: 1, instructions: Some(3), multiple: false, fup: false },
        ],
        &[
            Bbp { kind: 4, size: 8 },
            Bip { id: 1, payload: 5 },
            Bep { fup: true },
            Fup(low(0)),
            Vmcs(0x5000),
            Mnt(9),
            Pad,
            Psb,
            Psbend,
            Tnt { bits: 5, count: 3 },
        ],
    ];
    rest.iter()
        .map(|rest| {
            let mut bytes = Vec::new();
            psb.iter().chain(*rest).for_each(|&packet| write(&mut bytes, packet));
            bytes
        })
        .collect()
}

/// One thread with a page of code.
fn griffin(stream: &[u8]) -> Vec<u8> {
    let mut out = [0x51C0_FFEEu32.to_le_bytes(), 1u32.to_le_bytes()].concat();
    let mut record = |kind: u32, words: &[u64], bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        // With this head.
        out.extend((8 + words.len() as u32 * 8 + bytes.len() as u32).to_le_bytes());
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(bytes);
    };
    record(1, &[7, 2], b"a\0");
    record(2, &[7, 8], b"");
    record(4, &[7, CODE, MIXED.len() as u64], MIXED);
    record(0, &[7, 8, 0, stream.len() as u64], stream);
    record(5, &[7, CODE], b"");
    record(6, &[7, 7, 9, 9], b"");
    record(0, &[9, 9, 0, stream.len() as u64], stream);
    out
}

/// One core's packets and a mapping, as `perf record -e intel_pt//` writes them; kinds of records by `perf_event.h` and
/// perf's `event.h`. `again`: in two snapshots, and in two samples.
fn perf_data(stream: &[u8], again: bool) -> Vec<u8> {
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    // TID, TIME, CPU, AUX.
    const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 20;
    let mut attr = vec![0; 136];
    attr[0..8].copy_from_slice(&(8u64 | 136 << 32).to_le_bytes());
    attr[24..32].copy_from_slice(&(SAMPLE_TYPE * u64::from(again)).to_le_bytes());
    attr[40..48].copy_from_slice(&SAMPLE_ID_ALL.to_le_bytes());
    let mut records = Vec::new();
    let mut record = |kind: u32, body: &[u8], behind: &[u8]| {
        let padded = body.len().div_ceil(8) * 8;
        records.extend((u64::from(kind) | (padded as u64 + 8) << 48).to_le_bytes());
        records.extend(body);
        records.resize(records.len() + padded - body.len(), 0);
        records.extend(behind);
    };
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    record(70, &words(&[1, 8, 0, 0, 0, 1, 1 << 10, 1 << 11, 0, again.into(), 0, 0, 0, 0]), &[]);
    record(3, &[words(&[7 | 7 << 32]), b"program\0".to_vec()].concat(), &[]);
    record(10, &[words(&[7 | 7 << 32, CODE, 4096, 4096, 0, 0, 0, 5 | 2 << 32]), b"/bin/true\0".to_vec()].concat(), &[]);
    record(12, &words(&[7 | 7 << 32]), &[]);
    record(11, &words(&[0, stream.len() as u64, 0]), &[]);
    let head = words(&[stream.len() as u64, 0, 0, u64::MAX << 32, 0]);
    let mut filled = stream.to_vec();
    filled.resize(stream.len().next_multiple_of(8), 0);
    for _ in 0..if again { 2 } else { 0 } {
        record(9, &[&words(&[7 | 7 << 32, 1000, 1, filled.len() as u64])[..], &filled].concat(), &[]);
        record(71, &head, stream);
    }
    record(71, &head, stream);
    let mut out = b"PERFILE2".to_vec();
    out.extend(words(&[104, 136 + 16, 104, 152, 256, records.len() as u64, 0, 0, 0, 0, 0, 0]));
    out.extend(attr);
    out.extend([0; 16]);
    out.extend(records);
    out
}

const LLDB: &[u8] = br#"{"type":"intel-pt","cpuInfo":{"vendor":"GenuineIntel","family":6,"model":79,"stepping":1},
"processes":[{"pid":7,"triple":"x86_64-*-linux","threads":[{"tid":7,"iptTrace":"x"}],
"modules":[{"file":"a.out","systemPath":"a.out","loadAddress":4194304,"uuid":"00"}]}],
"cpus":[{"id":0,"iptTrace":"x","contextSwitchTrace":"y"}],
"tscPerfZeroConversion":{"timeMult":1,"timeShift":2,"timeZero":"3"}}"#;

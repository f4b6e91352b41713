//! Streams of strangers: whatever is damaged, nothing panics, every decode ends, and every byte is either decoded or
//! told as lost.

use crate::support::{self, Sections};
use crate::vectors;
use pt_flow::{
    AddressFilter, Block, Config, Cpu, DisableKind, Errata, Flow, Loss, Notice, NoticeKind, Reason, Sink, Time,
};
use pt_packet::{writer, Compression, Execution, Ip, Packet, Reader};

/// Streams per test; `PERMILLE_MUTATIONS` asks for more.
const MUTATIONS: usize = 4000;

/// More of anything than a stream of these tests has bytes.
const ENDLESS: usize = 20_000;

pub const CODE: u64 = 0x40_1000;

/// Every way out of a block, loops, an unknown target, and instructions that packets refer to.
pub const PROGRAM: &[u8] = &[
    0x90, 0x74, 0x03, 0xeb, 0xfb, 0x90, // 00: nop; 01: je 06; 03: jmp 00; 05: nop
    0xe8, 0x05, 0x00, 0x00, 0x00, // 06: call 10
    0xff, 0xe0, 0x0f, 0x05, 0xf4, // 0b: jmp rax; 0d: syscall; 0f: hlt
    0xf3, 0x0f, 0xae, 0xe0, 0xff, 0xd3, 0xc3, // 10: ptwrite eax; 14: call rbx; 16: ret
    0x0f, 0x22, 0xd8, 0x0f, 0x01, 0xc2, // 17: mov cr3, rax; 1a: vmlaunch
    0xe9, 0x00, 0x10, 0x00, 0x00, // 1d: jmp 1022, unknown
    0xeb, 0xfe, 0xcf, 0x06, // 22: jmp 22; 24: iret; 25: bad in 64 bit
];

/// Marsaglia, "Xorshift RNGs" (2003).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn bit(&mut self) -> bool {
        self.below(2) == 1
    }

    fn ip(&mut self) -> Ip {
        let payload = CODE + self.below(PROGRAM.len() + 2) as u64;
        match self.below(8) {
            0 => Ip::SUPPRESSED,
            1 => Ip { compression: Compression::Full, payload: self.0 },
            2 => Ip { compression: Compression::SignExtend48, payload },
            3 => Ip { compression: Compression::Update32, payload },
            _ => Ip { compression: Compression::Update16, payload: payload & 0xffff },
        }
    }

    pub fn packet(&mut self) -> Packet {
        let small = self.below(256) as u8;
        let fup = self.bit();
        let payload = self.0 & 0xffff_ffff;
        match self.below(40) {
            0..=5 => {
                let count = 1 + self.below(6) as u8;
                Packet::Tnt { bits: self.0 & ((1 << count) - 1), count }
            }
            6 => Packet::Tnt { bits: self.0 & ((1 << 47) - 1), count: 47 },
            7..=10 => Packet::Tip(self.ip()),
            11 => Packet::TipPge(self.ip()),
            12 => Packet::TipPgd(self.ip()),
            13..=17 => Packet::Fup(self.ip()),
            18 => Packet::Pip { cr3: self.0 & 0xffff_ffff_ffe0, non_root: fup },
            19 => Packet::ModeExec { mode: self.mode(), interrupt_flag: fup },
            20 => Packet::ModeTsx { in_transaction: self.bit(), aborted: fup },
            21 => Packet::Ovf,
            22 => Packet::TraceStop,
            23 => Packet::Cbr { ratio: small },
            24 => Packet::Tsc(self.0 >> 8),
            25 => Packet::Mtc(small),
            26 => Packet::Tma { ctc: self.0 as u16, fast_counter: self.0 as u16 & 0x1ff },
            27 => Packet::Cyc(self.0 >> (4 + self.below(60))),
            28 => Packet::Vmcs(self.0 & 0xf_ffff_f000),
            29 => Packet::Mnt(self.0),
            30 => Packet::Ptw { payload, size: 4, fup },
            31 => Packet::Exstop { fup },
            32 => Packet::Mwait { hints: small.into(), extensions: 0 },
            33 => Packet::Pwre { state: small & 15, sub_state: small >> 4, hardware: fup },
            34 => Packet::Pwrx { last: small & 15, deepest: small >> 4, wake: 1 },
            35 => Packet::Cfe { kind: small & 31, vector: small, fup },
            36 => Packet::Evd { kind: small & 3, payload: self.0 },
            37 => [Packet::Bbp { kind: 1, size: 8 }, Packet::Bip { id: 3, payload: self.0 }, Packet::Bep { fup }]
                [self.below(3)],
            38 => {
                let instructions = self.bit().then_some(u16::from(small & 7));
                Packet::Trig { number: small, instructions, multiple: self.bit(), fup }
            }
            _ => Packet::Pad,
        }
    }

    fn mode(&mut self) -> Execution {
        [Execution::Bits64, Execution::Bits64, Execution::Bits32, Execution::Bits16][self.below(4)]
    }

    /// Packets in any order, with a PSB+ now and then.
    pub fn stream(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..20 + self.below(80) {
            if number == 0 || self.below(16) == 0 {
                writer::write(&mut bytes, Packet::Psb);
                writer::write(&mut bytes, Packet::ModeExec { mode: self.mode(), interrupt_flag: self.bit() });
                if self.below(4) != 0 {
                    let payload = CODE + self.below(PROGRAM.len()) as u64;
                    writer::write(&mut bytes, Packet::Fup(Ip { compression: Compression::SignExtend48, payload }));
                }
                writer::write(&mut bytes, Packet::Psbend);
            }
            writer::write(&mut bytes, self.packet());
        }
        bytes
    }

    /// Changes, cuts, removes or repeats bytes.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(6) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.below(256) as u8,
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..(at + self.below(9)).min(bytes.len()))),
                4 => {
                    let end = (at + self.below(40)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, again);
                }
                5 => bytes[at] = 2,
                _ => bytes[at] = [0x82, 0x23, 0xf3, 0x99, 0x43, 0xd9, 0x13][self.below(7)],
            }
        }
    }

    pub fn config(&mut self) -> Config {
        const MODELS: [u8; 6] = [0, 0x3d, 0x5e, 0x55, 0x9a, 0x5c];
        let cpu = Cpu { family: 6, model: MODELS[self.below(MODELS.len())], stepping: 0 };
        let filter = if self.bit() { Some((CODE, CODE + 0x20)) } else { None };
        Config {
            mtc_freq: self.below(16) as u8,
            tsc_ctc_ratio: [(0, 0), (168, 2), (u32::MAX, 1)][self.below(3)],
            nominal_ratio: self.below(40) as u8,
            reference_tsc: [0, 1 << 56, u64::MAX][self.below(3)],
            errata: Errata::of(cpu).unwrap_or_default(),
            filter: AddressFilter { ranges: [filter, None, None, None] },
            resume_at_address: self.bit(),
            stop_at_last_packet: self.bit(),
            without_tnt: self.below(4) == 0,
            forget_rate_at_overflow: self.bit(),
            clock_of_libipt: self.bit(),
            thread_switch: None,
            appended: 10 * self.below(2),
        }
    }
}

fn count() -> usize {
    std::env::var("PERMILLE_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(MUTATIONS)
}

/// Checks what holds for any stream.
#[derive(Default)]
struct Checks {
    blocks: u64,
    instructions: u64,
    notices: u64,
    now: u64,
    losses: Vec<Loss>,
    lost: bool,
}

impl Checks {
    fn at(&mut self, tsc: u64) {
        assert!(tsc >= self.now, "time goes back from {} to {tsc}", self.now);
        self.now = tsc;
    }
}

impl Sink for Checks {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        assert!(!self.lost, "a block right behind a loss");
        assert_eq!(block.instructions as usize, block.lengths.len());
        self.blocks += 1;
        assert!(self.blocks < 100 * ENDLESS as u64, "no end: {block:?}");
        self.instructions += u64::from(block.instructions);
        self.at(tsc);
    }

    fn enabled(&mut self, _: u64, _: bool, tsc: u64) {
        self.lost = false;
        self.at(tsc);
    }

    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, tsc: u64) {
        self.at(tsc);
    }

    fn interrupt(&mut self, _: u64, _: u64, tsc: u64) {
        self.at(tsc);
    }

    fn loss(&mut self, loss: &Loss) {
        self.losses.push(*loss);
        assert!(self.losses.len() < ENDLESS, "no end: {:?}", &self.losses[ENDLESS - 4..]);
        self.lost = true;
        assert!(loss.tsc0 <= loss.tsc1);
    }

    fn overflow(&mut self, _: usize, _: Option<u64>, tsc: u64) {
        self.at(tsc);
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        self.notices += u64::from(!matches!(notice.kind, NoticeKind::Standing | NoticeKind::Uncertainty(_)));
        self.at(tsc);
    }
}

fn decode(memory: &Sections, stream: &[u8], config: &Config) -> Checks {
    let mut checks = Checks::default();
    let statistics = Flow::new(memory).decode(stream, config, &[], &mut checks);
    assert_eq!(statistics.instructions, checks.instructions);
    let mut end = 0;
    for loss in &checks.losses {
        assert!(
            loss.offset >= end || config.resume_at_address || config.without_tnt,
            "losses overlap: {:?}",
            checks.losses
        );
        end = loss.offset + loss.size;
        assert!(end <= stream.len());
    }
    if !config.resume_at_address {
        assert_eq!(statistics.lost_bytes, checks.losses.iter().map(|loss| loss.size as u64).sum::<u64>());
    }
    let told = |loss: &&Loss| loss.reason != Reason::NotTraced;
    let errors = checks.losses.iter().filter(told).count();
    assert_eq!(statistics.errors, errors as u64);
    assert_eq!(statistics.psb, pt_packet::psbs(stream, 0).count() as u64);
    // Each branch, packet or byte leads along so much code at most.
    let steps = statistics.tnt_bits + 8 * stream.len() as u64 + 16;
    assert!(checks.blocks <= steps * (PROGRAM.len() as u64 + 16), "{} blocks", checks.blocks);
    // Those of packets that are lost are told as well.
    assert!(checks.notices <= 4 * (statistics.packets + statistics.lost_bytes) + 16);
    checks
}

#[test]
fn any_packets_in_any_order_end() {
    let memory = Sections([(CODE, PROGRAM.to_vec())].into());
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut instructions = 0;
    for _ in 0..count() {
        let mut stream = random.stream();
        random.damage(&mut stream);
        let config = random.config();
        instructions += decode(&memory, &stream, &config).instructions;
    }
    assert!(instructions > 0);
}

/// Each of them would be read up to the end, and the next one again.
#[test]
fn rows_of_packets_without_the_one_that_they_wait_for_are_read_once() {
    let memory = Sections([(CODE, PROGRAM.to_vec())].into());
    let fup = Packet::Fup(Ip { compression: Compression::Full, payload: CODE });
    for row in
        [&[Packet::Psb][..], &[Packet::Psb, fup], &[Packet::Psb, Packet::Pad], &[Packet::Ovf, Packet::Cbr { ratio: 9 }]]
    {
        let mut stream = Vec::new();
        for packet in [Packet::Psb, Packet::Psbend].iter().chain(row.iter().cycle().take(60_000)) {
            writer::write(&mut stream, *packet);
        }
        let statistics = Flow::new(&memory).decode(&stream, &Config::default(), &[], &mut Checks::default());
        assert!(statistics.packets < 200_000, "{} packets of {row:?}", statistics.packets);
    }
}

#[test]
fn packets_and_times_of_any_bytes_end() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..count() {
        let mut stream = random.stream();
        random.damage(&mut stream);
        let config = random.config();
        let mut reader = Reader::with_errata(&stream, config.errata);
        let mut time = Time::new(config);
        let mut before = None;
        loop {
            let offset = reader.offset();
            assert!(before.is_none_or(|before| before < offset) || offset == stream.len());
            before = Some(offset);
            match reader.read() {
                Ok(Some(packet)) => {
                    let now = time.now();
                    time.take(&packet);
                    assert!(time.now() >= now);
                    time.uncertainty();
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.offset, offset);
                    if reader.resynchronize().is_none() {
                        break;
                    }
                    // The PSB may begin within the bad packet, which is fine as long as it ends behind.
                    assert!(reader.offset() + 16 > offset);
                    before = None;
                    if reader.offset() <= offset {
                        reader.seek(offset.max(reader.offset() + 16));
                    }
                }
            }
        }
    }
}

#[test]
fn vectors_that_are_damaged_end() {
    let Some(cases) = vectors::cases(support::reference_data()) else { return };
    let mut random = Random(0x1234_5678_9abc_def1);
    for number in 0..count() {
        let case = &cases[number % cases.len()];
        let memory = Sections([(0x1000, case.code.clone()), (0x10_0000, case.code.clone())].into());
        let mut stream = case.stream.clone();
        random.damage(&mut stream);
        decode(&memory, &stream, &random.config());
    }
}

#[test]
fn what_is_not_damaged_decodes_as_before() {
    // Two sections between PSBs; damage to one leaves the other as it is.
    let memory = Sections([(CODE, PROGRAM.to_vec())].into());
    let ip = |at: u64| Ip { compression: Compression::SignExtend48, payload: CODE + at };
    let mut part = Vec::new();
    for packet in [
        Packet::Psb,
        Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true },
        Packet::Fup(ip(0)),
        Packet::Psbend,
        Packet::Tnt { bits: 0b0001, count: 4 },
        Packet::Fup(ip(0x10)),
        Packet::TipPgd(Ip::SUPPRESSED),
    ] {
        writer::write(&mut part, packet);
    }
    let whole = [part.clone(), part.clone(), part.clone()].concat();
    let alone = decode(&memory, &part, &Config::default());
    assert_eq!((alone.losses.len(), alone.instructions), (0, 3 * 3 + 2 + 1));
    let mut random = Random(0x0bad_cafe_dead_beef);
    for _ in 0..count().min(MUTATIONS) {
        let mut stream = whole.clone();
        // Not the PSB itself, without which the part is one with the one before.
        let at = part.len() + 16 + random.below(part.len() - 16);
        stream[at] ^= 1 + random.below(255) as u8;
        let checks = decode(&memory, &stream, &Config::default());
        assert!(checks.instructions >= 2 * alone.instructions, "byte {at} is {:02x}: {:?}", stream[at], checks.losses);
    }
}

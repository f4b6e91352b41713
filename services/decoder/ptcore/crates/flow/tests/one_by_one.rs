//! What hot loops tell, held against packets that are taken one by one.

use crate::flow::{full, psb_plus, stream};
use crate::mutations::{Random, CODE, PROGRAM};
use crate::support::{griffin, timed, Sections};
use pt_flow::{Block, CodeMemory, Config, Cpu, DisableKind, Errata, Flow, Loss, Notice, Path, Sink, Statistics};
use pt_packet::{writer, Compression, Execution, Ip, Packet};

/// All that is told and when, by a sink that looks at times or one that does not.
#[derive(Default)]
struct Words<const TIMED: bool>(Vec<(u64, String)>);

impl<const TIMED: bool> Sink for Words<TIMED> {
    const TIMED: bool = TIMED;

    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        let Block { start, last, instructions, kind, target, .. } = *block;
        self.0.push((tsc, format!("{start:x} to {last:x}: {instructions}, {kind:?} to {target:x}")));
    }
    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.0.push((tsc, format!("enabled {ip:x} {resumed}")));
    }
    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.0.push((tsc, format!("disabled {kind:?} {at:x} {target:x?}")));
    }
    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.0.push((tsc, format!("interrupt {from:x} {to:x}")));
    }
    fn loss(&mut self, loss: &Loss) {
        self.0.push((loss.tsc0, format!("{loss:x?}")));
    }
    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.0.push((tsc, format!("overflow {offset:x} {from:x?}")));
    }
    fn notice(&mut self, notice: &Notice, tsc: u64) {
        self.0.push((tsc, format!("{notice:x?}")));
    }
}

/// How many blocks come one by one, and how many paths.
#[derive(Default)]
struct Ways {
    blocks: usize,
    paths: usize,
}

impl Sink for Ways {
    fn block(&mut self, _: &Block<'_>, _: u64) {
        self.blocks += 1;
    }
    fn path(&mut self, _: &Path<'_>, _: u64) {
        self.paths += 1;
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

impl Ways {
    /// How many blocks a pass tells by themselves, and how many paths.
    fn told(flow: &mut Flow<&Sections>, packets: &[Packet], config: &Config) -> (usize, usize) {
        let mut ways = Ways::default();
        flow.decode(&stream(packets), config, &[], &mut ways);
        (ways.blocks, ways.paths)
    }
}

#[test]
fn a_path_is_found_when_it_is_asked_for_a_third_time() {
    // je to itself.
    let memory = Sections([(CODE, vec![0x74, 0xfe])].into());
    let mut packets = psb_plus(Some(CODE));
    packets.push(Packet::Tnt { bits: 0b11_1111, count: 6 });
    packets.extend([Packet::Pad; 16]);
    let mut flow = Flow::new(&memory);
    let mut told = || Ways::told(&mut flow, &packets, &Config::default());
    assert_eq!([told(), told(), told(), told()], [(6, 0), (6, 0), (0, 1), (0, 1)]);
}

#[test]
fn a_system_call_and_what_leads_to_it_is_taken_up_with_the_branches_around_it() {
    // 0: je 2; 2: jmp 4; 4: syscall; 6: jmp 0
    let memory = Sections([(CODE, vec![0x74, 0, 0xeb, 0, 0x0f, 0x05, 0xeb, 0xf8])].into());
    let mut packets = psb_plus(Some(CODE));
    let mode = packets[1];
    packets.splice(1..1, [Packet::Tsc(10_000), Packet::Tma { ctc: 0, fast_counter: 0 }, Packet::Cbr { ratio: 20 }]);
    // From here on the clock goes at a pace.
    packets.extend((1..4).flat_map(|count| [Packet::Cyc(672), Packet::Mtc(count)]));
    for number in 0..100 {
        let pgd = Packet::TipPgd(Ip::SUPPRESSED);
        packets.extend([Packet::Tnt { bits: 1, count: 1 }, pgd, Packet::Pad]);
        if number % 3 == 0 {
            packets.extend([Packet::Cyc(672), Packet::Mtc(4 + number / 3)]);
        }
        if number % 2 == 0 {
            packets.push(mode);
        }
        packets.push(Packet::TipPge(full(CODE + 6)));
    }
    packets.extend([Packet::Pad; 16]);
    let known = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() };
    // Direct branches that disable tracing without an address lead out of the filtered ones: without a filter none does.
    let errata = Errata { skl014: true, ..Errata::default() };
    for config in [known, Config { errata, ..known }] {
        let mut flow = Flow::new(&memory);
        let mut told = || Ways::told(&mut flow, &packets, &config);
        // Paths to a system call and away from it again; the blocks that end with one, and the last jump.
        for _ in 0..3 {
            told();
        }
        assert_eq!(told(), (101, 200));
    }
}

/// A stream and what it is decoded with.
struct Case<'c, M> {
    memory: &'c M,
    stream: &'c [u8],
    config: Config,
}

impl<M: CodeMemory> Case<'_, M> {
    fn told<const TIMED: bool>(
        &self,
        flow: &mut Flow<&M>,
        epochs: &[(usize, u32)],
    ) -> (Vec<(u64, String)>, Statistics) {
        let mut words = Words::<TIMED>::default();
        let statistics = flow.decode(self.stream, &self.config, epochs, &mut words);
        (words.0, statistics)
    }

    /// Where an epoch may begin with every byte, nothing is read ahead of it. A flow that knows all paths tells the same again,
    /// and one without times all but these. Returns how much is told.
    fn compare(&self, what: &str) -> usize {
        let epochs: Vec<_> = (0..self.stream.len()).map(|offset| (offset, 0)).collect();
        let one_by_one = self.told::<true>(&mut Flow::new(self.memory), &epochs);
        let mut flow = Flow::new(self.memory);
        for pass in ["cold", "cold again", "finding paths", "warm"] {
            let hot = self.told::<true>(&mut flow, &[]);
            for (index, (one, other)) in one_by_one.0.iter().zip(&hot.0).enumerate() {
                assert_eq!(one, other, "{what}: {pass}, {index} of {}, {:?}", one_by_one.0.len(), self.config);
            }
            assert_eq!((hot.0.len(), hot.1), (one_by_one.0.len(), one_by_one.1), "{what}: {pass}, {:?}", self.config);
        }
        let untimed = self.told::<false>(&mut flow, &[]);
        let flow = |words: &[(u64, String)]| -> Vec<String> {
            let told = words.iter().filter(|(_, word)| !word.starts_with("Notice"));
            told.map(|(_, word)| word.split(", tsc0").next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(flow(&untimed.0), flow(&one_by_one.0), "{what}: without times, {:?}", self.config);
        one_by_one.0.len()
    }
}

#[test]
fn packets_in_any_order_are_told_alike() {
    let memory = Sections([(CODE, PROGRAM.to_vec())].into());
    let mut random = Random(0x00c0_ffee_1234_5678);
    for number in 0..4000 {
        let mut stream = random.stream();
        random.damage(&mut stream);
        let config = random.config();
        Case { memory: &memory, stream: &stream, config }.compare(&format!("stream {number}"));
    }
}

#[test]
fn system_calls_of_any_kind_are_told_alike() {
    // 00: je 0a; 02: call 10; 07: jmp 00; 0a: mov cr3, rax; 0d: syscall; 0f: ret; 10: nop; 11: syscall; 13: ret
    let program =
        [0x74, 8, 0xe8, 9, 0, 0, 0, 0xeb, 0xf7, 0x90, 0x0f, 0x22, 0xd8, 0x0f, 0x05, 0xc3, 0x90, 0x0f, 5, 0xc3];
    let memory = Sections([(CODE, program.to_vec())].into());
    let mut random = Random(0xca11);
    let mut compared = 0;
    for number in 0..1000 {
        let (mut packets, mut count) = (Vec::new(), 0_u8);
        while packets.len() < 300 {
            if random.below(40) == 0 || packets.is_empty() {
                let psb = packets.len();
                packets.extend(psb_plus(Some(CODE)));
                let tma = Packet::Tma { ctc: u16::from(count) << 3, fast_counter: 0 };
                packets.splice(psb + 1..psb + 1, [Packet::Tsc((1 << 20) + u64::from(count) * 672), tma]);
            }
            // Most are as the program goes on.
            if random.below(8) != 0 {
                packets.push(Packet::Tnt { bits: random.below(8) as u64 / 7, count: 1 });
            }
            let target = random.below(program.len()) as u64;
            packets.push(Packet::TipPgd(if random.below(16) == 0 { full(CODE + target) } else { Ip::SUPPRESSED }));
            packets.extend(vec![Packet::Pad; random.below(3)]);
            for _ in 0..random.below(3) {
                count = count.wrapping_add(1);
                packets.extend([Packet::Cyc(random.below(800) as u64), Packet::Mtc(count)]);
            }
            if random.below(16) == 0 {
                packets.push(random.packet());
            }
            if random.below(2) == 0 {
                let mode = if random.below(8) == 0 { Execution::Bits32 } else { Execution::Bits64 };
                packets.push(Packet::ModeExec { mode, interrupt_flag: random.below(8) != 0 });
            }
            let behind = if random.below(8) == 0 { target } else { 0x13 };
            packets.push(Packet::TipPge(match random.below(3) {
                0 => Ip { compression: Compression::Update16, payload: (CODE + behind) & 0xffff },
                1 => Ip { compression: Compression::SignExtend48, payload: CODE + behind },
                _ => full(CODE + behind),
            }));
            if behind == 0x13 && random.below(8) != 0 {
                packets.push(Packet::Tnt { bits: 1, count: 1 });
            }
        }
        let config = random.config();
        let config = Config { errata: Errata { skl014: random.below(4) == 0, ..config.errata }, ..config };
        let pace = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..config };
        let config = if random.below(2) == 0 { pace } else { config };
        compared += Case { memory: &memory, stream: &stream(&packets), config }.compare(&format!("stream {number}"));
    }
    assert!(compared > 100_000, "{compared}");
}

/// A cycle that is measured as far too long, by a period of which most cycles are missing, leads far beyond the next MTC.
#[test]
fn cycles_that_outrun_the_clock_are_doubted_alike() {
    let memory = Sections([(CODE, vec![0x74, 0xfe])].into());
    let branches = Packet::Tnt { bits: 0b11_1111, count: 6 };
    // The second crystal has no whole ticks: its times go on at no pace.
    for (mtc_freq, tsc_ctc_ratio, period, few, many) in [(3, (168, 2), 672, 4, 1100), (9, (257, 2), 65_792, 658, 1000)]
    {
        let mut packets = psb_plus(Some(CODE));
        let tma = Packet::Tma { ctc: 0, fast_counter: 0 };
        packets.splice(1..1, [Packet::Tsc(period << 20), tma, Packet::Cbr { ratio: 20 }]);
        let run = |packets: &mut Vec<Packet>, count: u8| {
            packets.extend((0..17).flat_map(|_| [Packet::Cyc(period / 17), branches]));
            packets.push(Packet::Mtc(count));
        };
        (1..4).for_each(|count| run(&mut packets, count));
        packets.extend([Packet::Cyc(few), branches, Packet::Mtc(4)]);
        packets.extend((0..12).flat_map(|_| [Packet::Cyc(many), branches]));
        packets.push(Packet::Mtc(5));
        (6..40).for_each(|count| run(&mut packets, count));
        packets.extend([Packet::Pad; 32]);
        let config = Config { mtc_freq, tsc_ctc_ratio, nominal_ratio: 20, ..Config::default() };
        Case { memory: &memory, stream: &stream(&packets), config }.compare(&format!("a period of {period}"));
    }
}

/// Which targets were come to not long ago is known by the low bits of their addresses, and may change in the middle of what
/// was read ahead of a place that needs more than paths.
#[test]
fn targets_that_are_forgotten_in_the_meantime_are_told_alike() {
    const FAR: u64 = CODE + (1 << 24);
    let jump = |from: u64, to: u64| ((to - from - 6) as u32).to_le_bytes();
    let [je, again] =
        [jump(CODE + 0x40, FAR), jump(CODE + 0x28, FAR)].map(|to| [&[0x0f, 0x84][..], &to, &[0xff, 0xe0]].concat());
    let mut near = vec![0x90; 0x48];
    near[..2].copy_from_slice(&[0xff, 0xe0]); // 00: jmp rax
                                              // Four calls in a row, more than a path holds.
    for call in [0x10, 0x16, 0x1c, 0x22] {
        near[call..call + 5].copy_from_slice(&[0xe8, 1, 0, 0, 0]);
    }
    near[0x28..0x30].copy_from_slice(&again);
    near[0x40..].copy_from_slice(&je);
    let memory = Sections([(CODE, near), (FAR, vec![0xff, 0xe0])].into());
    let mut random = Random(0xfeed);
    for number in 0..300 {
        let mut packets = psb_plus(Some(CODE));
        for _ in 0..200 {
            let to = [CODE, CODE + 0x10, CODE + 0x40][random.below(3)];
            packets.push(Packet::Tip(full(to)));
            if to != CODE {
                packets.push(Packet::Tnt { bits: u64::from(random.below(16) == 0), count: 1 });
            }
        }
        let case = Case { memory: &memory, stream: &stream(&packets), config: Config::default() };
        let whole = case.compare(&format!("stream {number}"));
        assert!(whole > 200, "stream {number}: {whole}");
    }
}

#[test]
fn a_trace_of_a_processor_with_packets_of_any_kind_between_is_told_alike() {
    let Some(trace) = griffin("hello") else { return };
    let whole = timed(&trace.streams.into_values().next().unwrap());
    let mut random = Random(0x5eed);
    let errata = Errata::of(Cpu { family: 6, model: 0x5e, stepping: 3 }).unwrap();
    let known = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, errata, ..Config::default() };
    let mut compared = 0;
    for number in 0..40 {
        let rare = 8 << random.below(12);
        let mut stream = Vec::new();
        let mut reader = pt_packet::Reader::new(&whole);
        let (mut at, mut count) = (0, 0_u8);
        while let Ok(Some(_)) = reader.read() {
            stream.extend(&whole[at..reader.offset()]);
            at = reader.offset();
            match random.below(6 * rare) {
                0 => stream.extend([7, 0x02, 0xf3]),
                1 => writer::write(&mut stream, Packet::Cyc(random.below(1 << 30) as u64)),
                2 => writer::write(&mut stream, Packet::Tsc(16_800_000 + at as u64)),
                3 => writer::write(&mut stream, random.packet()),
                4..9 => {
                    count = count.wrapping_add(1);
                    writer::write(&mut stream, Packet::Mtc(count));
                }
                _ => {}
            }
        }
        for config in [known, Config { resume_at_address: true, ..known }, random.config()] {
            compared += Case { memory: &trace.memory, stream: &stream, config }.compare(&format!("trace {number}"));
        }
    }
    assert!(compared > 100_000, "{compared}");
}

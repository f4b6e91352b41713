//! Times of a stream of which a bit is damaged: those behind the next PSBs are right again.

use crate::flow::{full, stream};
use crate::mutations::CODE;
use crate::support::{blocks_of_parts, Recorder, Sections};
use pt_flow::{Block, Config, DisableKind, Flow, Loss, Notice, NoticeKind, Sink};
use pt_packet::{Execution, Packet, Reader};

/// TSC ticks of one MTC period, and periods of one PSB's.
pub const PERIOD: u64 = 672;
pub const PERIODS: u64 = 12;
const PSBS: u64 = 8;
const BEGIN: u64 = 1 << 40;

pub fn config() -> Config {
    Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() }
}

/// A jump to itself, with the packets of time that `wanted` takes.
fn recording(wanted: impl Fn(&Packet) -> bool) -> Vec<u8> {
    let mut packets = Vec::new();
    for psb in 0..PSBS {
        let now = BEGIN + psb * PERIODS * PERIOD;
        packets.extend([Packet::Psb, Packet::Tsc(now), tma(now), Packet::Cbr { ratio: 20 }]);
        packets.extend(periods(now));
    }
    with_times(packets, wanted)
}

pub fn tma(now: u64) -> Packet {
    Packet::Tma { ctc: (now / 84) as u16, fast_counter: (now % 84) as u16 }
}

/// The rest of a PSB+ at that time, and the periods behind it.
pub fn periods(now: u64) -> Vec<Packet> {
    let mut packets = vec![Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true }];
    packets.extend([Packet::Fup(full(CODE)), Packet::Psbend]);
    for period in 1..=PERIODS {
        let branches = Packet::Tnt { bits: 0b11_1111, count: 6 };
        let mtc = Packet::Mtc(((now + period * PERIOD) / PERIOD) as u8);
        packets.extend([Packet::Cyc(PERIOD / 2), branches, Packet::Cyc(PERIOD / 2), mtc, branches]);
    }
    packets
}

/// The stream of the packets, of those of time the ones that `wanted` takes.
pub fn with_times(mut packets: Vec<Packet>, wanted: impl Fn(&Packet) -> bool) -> Vec<u8> {
    let timed =
        |packet: &Packet| matches!(packet, Packet::Tsc(_) | Packet::Tma { .. } | Packet::Mtc(_) | Packet::Cyc(_));
    packets.retain(|packet| !timed(packet) || wanted(packet));
    stream(&packets)
}

/// The times of blocks, and the uncertainties as they were told.
#[derive(Default)]
struct Times {
    blocks: Recorder,
    uncertainties: Vec<Option<u64>>,
}

impl Sink for Times {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.blocks.block(block, tsc);
    }
    fn notice(&mut self, notice: &Notice, _: u64) {
        if let NoticeKind::Uncertainty(ticks) = notice.kind {
            self.uncertainties.push(ticks);
        }
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

fn times(data: &[u8]) -> Times {
    let memory = Sections([(CODE, vec![0x74, 0xfe])].into());
    let mut times = Times::default();
    Flow::new(&memory).decode(data, &config(), &[], &mut times);
    assert!(times.blocks.times.is_sorted());
    times
}

/// Blocks of one PSB's.
const BLOCKS: usize = 12 * PERIODS as usize;

fn kinds() -> [(&'static str, Vec<u8>); 4] {
    let tsc = |packet: &Packet| matches!(packet, Packet::Tsc(_));
    [
        ("all", recording(|_| true)),
        ("no cycles", recording(|packet| !matches!(packet, Packet::Cyc(_)))),
        ("cycles", recording(|packet| tsc(packet) || matches!(packet, Packet::Cyc(_)))),
        ("TSC alone", recording(tsc)),
    ]
}

/// Where such packets stand.
fn offsets(data: &[u8], wanted: impl Fn(&Packet) -> bool) -> Vec<usize> {
    let packets = Reader::new(data).filter_map(|read| read.ok());
    packets.filter(|(_, packet)| wanted(packet)).map(|(offset, _)| offset).collect()
}

#[test]
fn a_tsc_later_than_those_of_the_next_psbs_is_no_time() {
    for (kind, whole) in kinds() {
        let right = times(&whole).blocks.times;
        let tscs = offsets(&whole, |packet| matches!(packet, Packet::Tsc(_)));
        for (psb, &offset) in tscs.iter().enumerate().take(PSBS as usize - 2) {
            for bit in 0..56 {
                let mut damaged = whole.clone();
                damaged[offset + 1 + bit / 8] ^= 1 << (bit % 8);
                let Times { blocks, uncertainties } = times(&damaged);
                let told = blocks.times;
                assert_eq!(told.len(), right.len());
                assert_eq!(told[..psb * BLOCKS], right[..psb * BLOCKS], "{kind}: before {psb}, bit {bit}");
                let right_again = (psb + 3).min(PSBS as usize) * BLOCKS;
                assert_eq!(told[right_again..], right[right_again..], "{kind}: behind {psb}, bit {bit}");
                let later = damaged[offset + 1 + bit / 8] > whole[offset + 1 + bit / 8];
                let far = later && 1 << bit > 2 * PERIODS * PERIOD;
                assert!(!far || told[..right_again].last() <= right[..right_again].last(), "{kind}: {psb}, bit {bit}");
                // Nobody knows how far off times are, until the next TSC.
                let unbounded = psb == 0 || uncertainties.is_empty() || uncertainties.contains(&None);
                assert!(unbounded || !far, "{kind}: {psb}, bit {bit}: {uncertainties:?}");
                assert!(kind != "all" || psb == 0 || far == unbounded, "{psb}, bit {bit}: {uncertainties:?}");
            }
        }
    }
}

#[test]
fn several_threads_tell_the_times_of_one() {
    let memory = Sections([(CODE, vec![0x74, 0xfe])].into());
    for (kind, whole) in kinds() {
        let tscs = offsets(&whole, |packet| matches!(packet, Packet::Tsc(_)));
        for bit in tscs.iter().flat_map(|offset| (8..64).map(move |bit| offset * 8 + bit)) {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let told = |threads, part_bytes| blocks_of_parts(&memory, &damaged, &config(), threads, part_bytes);
            let (alone, parts) = (told(1, usize::MAX), told(2, 1));
            assert_eq!((alone.1, parts.1), (1, PSBS), "{kind}");
            assert_eq!(alone.0, parts.0, "{kind}: bit {bit}");
        }
    }
}

/// Without MTC packets cycles of up to three bytes are not looked at, with them those of up to two; times do not go back behind
/// them.
#[test]
fn whatever_bit_is_damaged_times_behind_the_next_psbs_are_right() {
    for (kind, whole) in kinds() {
        let right = times(&whole).blocks.times;
        let psbs = offsets(&whole, |packet| *packet == Packet::Psb);
        for bit in psbs[2] * 8..psbs[3] * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let told = times(&damaged).blocks.times;
            let most = right[5 * BLOCKS] + if kind == "all" { 9 * PERIOD } else { 1 << 19 };
            for (&told, &right) in told.iter().rev().zip(right.iter().rev()).take(2 * BLOCKS) {
                let is_right = told == right || (right..most).contains(&told);
                assert!(is_right, "{kind}: {told} for {right}, bit {} of {:x}", bit % 8, bit / 8 - psbs[2]);
            }
        }
    }
}

/// Cycles by the thousand, a core cycle a tick, and nothing but them from PSB to PSB.
#[test]
fn a_ratio_that_is_damaged_leads_no_further_than_the_next_psbs() {
    const INTERVAL: u64 = 1 << 22;
    let recording = |damaged: usize| {
        let psb = |number: u64| {
            let ratio = if number == damaged as u64 { 1 } else { 20 };
            let status = [Packet::Psb, Packet::Tsc(BEGIN + number * INTERVAL), Packet::Cbr { ratio }];
            let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true };
            let cycles = [Packet::Cyc(INTERVAL / 1024), Packet::Tnt { bits: 0b11_1111, count: 6 }];
            [&status[..], &[mode, Packet::Fup(full(CODE)), Packet::Psbend], &cycles.repeat(1024)].concat()
        };
        times(&stream(&(0..PSBS).flat_map(psb).collect::<Vec<_>>()))
    };
    let right = recording(usize::MAX);
    assert!(!right.uncertainties[1..].contains(&None));
    const BLOCKS: usize = 6 * 1024;
    for damaged in 1..PSBS as usize - 2 {
        let told = recording(damaged);
        let last = BEGIN + (damaged as u64 + 2) * INTERVAL + (1 << 19);
        assert!(told.blocks.times[..(damaged + 1) * BLOCKS].iter().all(|&time| time <= last), "{damaged}");
        let (told_again, right_again) = (&told.blocks.times, &right.blocks.times);
        let again = (damaged + 2) * BLOCKS + BLOCKS / 4;
        assert_eq!(told_again[again..], right_again[again..], "{damaged}");
        assert!(told.uncertainties[1..].contains(&None));
    }
}

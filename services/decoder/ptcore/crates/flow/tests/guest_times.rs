//! Times where a host and its guest run in turns, whose TSCs differ (SDM section "System-Wide Tracing").

use crate::damaged_times::{config, periods, tma, with_times, PERIOD, PERIODS};
use crate::flow::full;
use crate::mutations::CODE;
use crate::support::{blocks_of_parts, Recorder, Sections};
use pt_flow::{Block, DisableKind, Flow, Loss, Sink};
use pt_packet::Packet;

const BEGIN: u64 = PERIOD << 31;

/// Blocks of one PSB's.
const BLOCKS: usize = 12 * PERIODS as usize;

/// A jump to itself, in a guest from each PSB on for which `guest` says so; its TSC is `offset` ahead of the host's.
fn recording(guest: &[bool], offset: i64, wanted: impl Fn(&Packet) -> bool) -> Vec<u8> {
    recording_with(guest, offset, wanted, |paging| vec![paging])
}

/// The same with what `turns` makes of the PIP of a VM entry or exit.
fn recording_with(
    guest: &[bool],
    offset: i64,
    wanted: impl Fn(&Packet) -> bool,
    turns: impl Fn(Packet) -> Vec<Packet>,
) -> Vec<u8> {
    let (mut packets, mut before) = (Vec::new(), None);
    for (psb, &non_root) in guest.iter().enumerate() {
        let now = BEGIN + psb as u64 * PERIODS * PERIOD;
        let tsc = |now: u64| Packet::Tsc(now.wrapping_add_signed(if non_root { offset } else { 0 }));
        let paging = Packet::Pip { cr3: 0x1000, non_root };
        if before.replace(non_root).is_some_and(|before| before != non_root) {
            packets.extend(turns(paging));
        }
        packets.extend([Packet::Psb, tsc(now), tma(now), paging, Packet::Cbr { ratio: 20 }]);
        packets.extend(periods(now));
    }
    with_times(packets, wanted)
}

fn times(data: &[u8]) -> Vec<u64> {
    let memory = Sections([(CODE, vec![0x74, 0xfe])].into());
    let mut recorder = Recorder::default();
    Flow::new(&memory).decode(data, &config(), &[], &mut Blocks(&mut recorder));
    assert!(recorder.times.is_sorted());
    recorder.times
}

struct Blocks<'r>(&'r mut Recorder);

impl Sink for Blocks<'_> {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.0.block(block, tsc);
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

type Wanted = fn(&Packet) -> bool;

const KINDS: [(&str, Wanted); 4] = [
    ("all", |_| true),
    ("no cycles", |packet| !matches!(packet, Packet::Cyc(_))),
    ("cycles", |packet| matches!(packet, Packet::Tsc(_) | Packet::Cyc(_))),
    ("TSC alone", |packet| matches!(packet, Packet::Tsc(_))),
];

const BEHIND: i64 = -(1 << 39);
const AHEAD: i64 = 1 << 39;

/// More PSBs in the guest than are looked at for a later time.
const TURNS: [bool; 16] =
    [false, false, true, true, true, true, true, true, false, true, true, true, true, true, false, false];

#[test]
fn the_hosts_times_are_told_whatever_the_guests_are() {
    for (kind, wanted) in KINDS {
        let alone_times = times(&recording(&[false; TURNS.len()], 0, wanted));
        for offset in [BEHIND, AHEAD, 1000, -1000] {
            let told = times(&recording(&TURNS, offset, wanted));
            assert_eq!(told.len(), alone_times.len());
            for (psb, (told, alone)) in told.chunks(BLOCKS).zip(alone_times.chunks(BLOCKS)).enumerate() {
                if kind == "TSC alone" && TURNS[psb] {
                    // Nothing tells more than when the host ran before.
                    let before = TURNS[..psb].iter().rposition(|guest| !guest).expect("the host ran first");
                    assert_eq!(told, &alone_times[before * BLOCKS..][..BLOCKS], "{kind}, {offset}: {psb}");
                } else {
                    assert_eq!(told, alone, "{kind}, {offset}: {psb}");
                }
            }
        }
    }
}

#[test]
fn the_hosts_times_are_right_where_the_recording_begins_in_a_guest() {
    let turns = [true, true, false, false, true, false];
    for (kind, wanted) in KINDS {
        let alone = times(&recording(&[false; 6], 0, wanted));
        for offset in [BEHIND, AHEAD] {
            let told = times(&recording(&turns, offset, wanted));
            for psb in [2, 3, 5] {
                let blocks = psb * BLOCKS + 1..(psb + 1) * BLOCKS;
                assert_eq!(told[blocks.clone()], alone[blocks], "{kind}, {offset}: {psb}");
            }
        }
    }
}

#[test]
fn where_a_guest_is_all_there_is_its_times_are_told() {
    for (kind, wanted) in KINDS {
        let guest = times(&recording(&[true; 6], BEHIND, wanted));
        let host = times(&recording(&[false; 6], 0, wanted));
        let moved: Vec<u64> = host.iter().map(|time| time.wrapping_add_signed(BEHIND)).collect();
        assert_eq!(guest, moved, "{kind}");
    }
}

#[test]
fn several_threads_tell_the_times_of_one() {
    let memory = Sections([(CODE, vec![0x74, 0xfe])].into());
    for ((kind, wanted), offset) in KINDS.into_iter().flat_map(|kind| [BEHIND, AHEAD].map(|offset| (kind, offset))) {
        let data = recording(&TURNS, offset, wanted);
        let told = |threads, part_bytes| blocks_of_parts(&memory, &data, &config(), threads, part_bytes).0;
        assert_eq!(told(1, usize::MAX), told(2, 1), "{kind}, {offset}");
    }
}

#[test]
fn the_psb_behind_a_turn_that_no_packet_tells_says_whose_its_tsc_is() {
    let memory = Sections([(CODE, vec![0x74, 0xfe])].into());
    let turns: [fn(Packet) -> Vec<Packet>; 2] = [|_| vec![Packet::Ovf, Packet::Fup(full(CODE))], |_| vec![]];
    for ((kind, wanted), offset) in KINDS.into_iter().flat_map(|kind| [BEHIND, AHEAD].map(|offset| (kind, offset))) {
        let right = times(&recording(&[false; TURNS.len()], 0, wanted));
        for turns in turns {
            let data = recording_with(&TURNS, offset, wanted, turns);
            let whole = blocks_of_parts(&memory, &data, &config(), 1, usize::MAX).0;
            assert!(whole.iter().map(|(_, tsc)| *tsc).eq(times(&data)), "{kind}, {offset}");
            assert_eq!(whole, blocks_of_parts(&memory, &data, &config(), 2, 1).0, "{kind}, {offset}");
            for (psb, (told, right)) in whole.chunks(BLOCKS).zip(right.chunks(BLOCKS)).enumerate() {
                let told = told.iter().map(|(_, tsc)| tsc);
                assert!(TURNS[psb] || told.eq(right), "{kind}, {offset}: {psb}");
            }
        }
    }
}

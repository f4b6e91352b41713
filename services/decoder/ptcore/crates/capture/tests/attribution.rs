//! Where a thread takes over from another.

use pt_capture::{divide, place, Epochs, SwitchRecords, Turn};
use pt_flow::Config;
use pt_packet::{writer::write, Compression, Ip, Packet};

fn full(payload: u64) -> Ip {
    Ip { compression: Compression::Full, payload }
}

const TAKEN: Packet = Packet::Tnt { bits: 1, count: 1 };

/// A stream of one PSB and what follows, with the offsets of the packets.
struct Stream {
    data: Vec<u8>,
    at: Vec<usize>,
}

fn stream(packets: &[Packet]) -> Stream {
    let mut stream = stream_of([Packet::Psb, Packet::Psbend].iter().chain(packets));
    stream.at.drain(..2);
    stream
}

fn stream_of<'p>(packets: impl IntoIterator<Item = &'p Packet>) -> Stream {
    let mut stream = Stream { data: Vec::new(), at: Vec::new() };
    for &packet in packets {
        stream.at.push(stream.data.len());
        write(&mut stream.data, packet);
    }
    stream
}

fn placed(stream: &Stream, turns: &[Turn]) -> Vec<(usize, u32)> {
    place(&stream.data, &Config::default(), 0, turns).epochs
}

fn turn(from: u64, to: u64, view: u32) -> Turn {
    Turn { from, to, view, pid: view }
}

fn stop() -> Packet {
    Packet::TipPgd(Ip::SUPPRESSED)
}

fn go(ip: u64) -> Packet {
    Packet::TipPge(full(ip))
}

#[test]
fn user_code_changes_threads_while_nothing_is_traced() {
    let stream = stream(&[
        Packet::Tsc(1000),
        go(0x1000),
        TAKEN,
        stop(),
        go(0x1010),
        Packet::Tsc(1500),
        TAKEN,
        stop(),
        go(0x2000),
        Packet::Tsc(2000),
        TAKEN,
    ]);
    assert_eq!(placed(&stream, &[turn(1600, 1700, 1)]), [(0, 0), (stream.at[8], 1)]);
    assert_eq!(placed(&stream, &[turn(1200, 1300, 1)]), [(0, 0), (stream.at[4], 1)]);
    assert_eq!(
        placed(&stream, &[turn(1200, 1300, 1), turn(1600, 1700, 2)]),
        [(0, 0), (stream.at[4], 1), (stream.at[8], 2)]
    );
}

#[test]
fn a_thread_that_goes_on_where_it_was_interrupted_is_the_same() {
    let stream = stream(&[
        Packet::Tsc(1000),
        go(0x1000),
        Packet::Fup(full(0x1004)),
        stop(),
        go(0x1004),
        Packet::Fup(full(0x1008)),
        stop(),
        go(0x5000),
        Packet::Fup(full(0x5008)),
        stop(),
        go(0x5008),
        TAKEN,
        Packet::Tsc(2000),
    ]);
    assert_eq!(placed(&stream, &[turn(1900, 1910, 1)]), [(0, 0), (stream.at[7], 1)]);
}

#[test]
fn between_gaps_that_are_alike_the_nearest_in_time_is_taken_and_counted() {
    let mut packets = vec![Packet::Tsc(1000), go(0x1000)];
    for _ in 0..10 {
        packets.extend([TAKEN, stop(), go(0x1000)]);
    }
    packets.push(Packet::Tsc(2000));
    let stream = stream(&packets);
    let placed = place(&stream.data, &Config::default(), 0, &[turn(1500, 1500, 1)]);
    assert_eq!(placed.ambiguous, 1);
    let middle = (stream.at[0] + stream.at[32]) / 2;
    assert!(placed.epochs[1].0.abs_diff(middle) < 16, "{placed:?} {middle}");
}

#[test]
fn a_time_that_the_next_one_contradicts_ends_no_turn() {
    let around = |tsc: u64| {
        stream(&[
            Packet::Tsc(1000),
            go(0x1000),
            stop(),
            Packet::Tsc(tsc),
            go(0x1000),
            TAKEN,
            Packet::Tsc(2000),
            stop(),
            go(0x3000),
            TAKEN,
            Packet::Tsc(3000),
        ])
    };
    for tsc in [1200, 1200 | 1 << 46, 1200 | 1 << 54] {
        let stream = around(tsc);
        assert_eq!(placed(&stream, &[turn(2500, 2500, 1)]), [(0, 0), (stream.at[8], 1)], "{tsc}");
    }
}

/// The TSC of a guest is its host's, offset and scaled (SDM section "System-Wide Tracing").
#[test]
fn tscs_of_guests_end_no_turn() {
    let pip = |non_root| Packet::Pip { cr3: 0x5000, non_root };
    let psb = |tsc, non_root| [Packet::Psb, Packet::Tsc(tsc), pip(non_root), Packet::Fup(full(0x1000)), Packet::Psbend];
    // The second is between the host's, which is far from the one before.
    for (offset, far) in [(1 << 40, 0), (0, 1 << 31), (u64::MAX << 10, 0)] {
        for begins_in_guest in [false, true] {
            let guest = |tsc: u64| tsc.wrapping_add(offset) & (u64::MAX >> 8);
            let begin = psb(if begins_in_guest { guest(900) } else { 900 }, begins_in_guest);
            let before = [pip(false), Packet::Tsc(1000), go(0x1000), stop()];
            let host = [Packet::Tsc(2000 + far), go(0x1000), TAKEN, pip(true), Packet::Tsc(guest(2100))];
            let inside = [psb(guest(2200), true), psb(guest(2300), true)].concat();
            let behind = [pip(false), Packet::Tsc(2400 + far), stop(), go(0x3000), TAKEN, Packet::Tsc(3000 + far)];
            let stream = stream_of(&[&begin[..], &before, &host, &inside, &behind].concat());
            let turn = turn(2500 + far, 2500 + far, 1);
            let placed: Vec<_> = placed(&stream, &[turn]);
            assert_eq!(placed, [(0, 0), (stream.at[27], 1)], "{offset:#x}, {far:#x}, {begins_in_guest}");
        }
    }
}

#[test]
fn a_gap_that_a_clock_packet_is_in_is_known_by_where_it_ends() {
    let stream = stream(&[
        Packet::Tsc(1000),
        go(0x1000),
        TAKEN,
        stop(),
        go(0x1010),
        TAKEN,
        Packet::Fup(full(0x1020)),
        stop(),
        Packet::Tsc(2000),
        go(0x2000),
        TAKEN,
    ]);
    let placed = place(&stream.data, &Config::default(), 0, &[turn(1100, 1900, 1)]);
    assert_eq!((placed.epochs, placed.ambiguous), (vec![(0, 0), (stream.at[8], 1)], 0));
}

#[test]
fn core_cycles_tell_gaps_between_two_clock_packets_apart() {
    let stream = |ratio| {
        stream(&[
            Packet::Cbr { ratio },
            Packet::Tsc(1000),
            Packet::Cyc(0),
            go(0x1000),
            Packet::Cyc(50),
            stop(),
            Packet::Cyc(25),
            go(0x1010),
            Packet::Cyc(50),
            stop(),
            Packet::Cyc(2500),
            go(0x1020),
            Packet::Cyc(50),
            stop(),
            Packet::Cyc(25),
            go(0x1030),
            TAKEN,
            Packet::Tsc(8000),
        ])
    };
    let config = Config { nominal_ratio: 20, ..Config::default() };
    let of = |ratio, from, to| {
        let stream = stream(ratio);
        let placed = place(&stream.data, &config, 0, &[turn(from, to, 1)]);
        let number = stream.at.iter().position(|&at| at == placed.epochs[1].0);
        (number, placed.ambiguous)
    };
    // A core cycle is two ticks: tracing is off from 1100 to 1150, from 1250 to 6250, from 6350 to 6400.
    assert_eq!(of(10, 1110, 1140), (Some(6), 0));
    assert_eq!(of(10, 1400, 6000), (Some(10), 0));
    // Far behind the last clock packet cycles are right to some part of them: the long gap may have lasted longer.
    assert_eq!(of(10, 6360, 6390), (Some(14), 1));
    // Too long for the others, however wrong the time of their begin may be.
    assert_eq!(of(10, 1300, 1400), (Some(10), 0));
    // A ratio that is not known tells nothing: of gaps that are alike the nearest in bytes is taken.
    assert_eq!(of(0, 1400, 6000), (Some(6), 1));
}

#[test]
fn the_kernel_changes_address_spaces_by_writing_cr3() {
    let pip = |cr3| Packet::Pip { cr3, non_root: false };
    let (one, two) = (0x10_0000, 0x20_0000);
    let stream = stream(&[
        Packet::Tsc(1000),
        go(0xffff_8000_0000_0000),
        // The user's and the kernel's page tables of one process differ in bit 12.
        pip(one),
        pip(one | 0x1000),
        TAKEN,
        Packet::Tsc(1500),
        pip(one),
        TAKEN,
        pip(two),
        TAKEN,
        pip(two | 0x1000),
        Packet::Tsc(2000),
    ]);
    assert_eq!(placed(&stream, &[turn(1600, 1700, 1)]), [(0, 0), (stream.at[8], 1)]);
}

#[test]
fn without_any_sign_the_clock_tells() {
    let status = [Packet::Psb, Packet::Tsc(1000), Packet::Fup(full(0x1000)), Packet::Psbend];
    let stream = stream(&[&status[..], &[TAKEN, Packet::Tsc(1500), TAKEN, Packet::Tsc(2000), TAKEN]].concat());
    let placed = place(&stream.data, &Config::default(), 0, &[turn(1400, 1450, 1)]);
    assert_eq!((placed.coarse, &placed.epochs[..]), (1, &[(0, 0), (stream.at[5], 1)][..]));
}

#[test]
fn a_turn_to_what_holds_already_needs_no_sign() {
    let status = [Packet::Psb, Packet::Tsc(1000), Packet::Fup(full(0x1000)), Packet::Psbend];
    let stream = stream(&[&status[..], &[TAKEN, Packet::Tsc(1500), TAKEN, Packet::Tsc(2000), TAKEN]].concat());
    let placed = place(&stream.data, &Config::default(), 1, &[turn(1400, 1450, 1)]);
    assert_eq!((placed.coarse, placed.ambiguous, &placed.epochs[..]), (0, 0, &[(0, 1)][..]));
}

#[test]
fn turns_before_the_stream_hold_from_its_beginning() {
    let stream = stream(&[Packet::Tsc(1000), go(0x1000), TAKEN]);
    assert_eq!(placed(&stream, &[turn(10, 20, 1), turn(30, 40, 2)]), [(0, 2)]);
}

#[test]
fn places_keep_the_order_of_the_turns_whatever_the_stream() {
    let mut seed = 11u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let mut packets = Vec::new();
        for _ in 0..random(60) {
            packets.push(match random(8) {
                0 => Packet::Tsc(random(4000)),
                1 => go(random(1 << 40)),
                2 => stop(),
                3 => Packet::Fup(full(random(1 << 40))),
                4 => Packet::Pip { cr3: random(4) << 13, non_root: false },
                5 => Packet::Ovf,
                6 => Packet::Psb,
                _ => TAKEN,
            });
        }
        let mut stream = stream(&packets);
        for _ in 0..random(4) {
            let at = random(stream.data.len() as u64) as usize;
            stream.data[at] = random(256) as u8;
        }
        let mut time = 0;
        let turns: Vec<_> = (1..=random(20) as u32)
            .map(|view| {
                let from = time + random(300);
                time = from + random(50);
                turn(from, time, view)
            })
            .collect();
        let placed = placed(&stream, &turns);
        assert!(placed.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "{placed:?}");
        assert!(placed.iter().all(|&(offset, _)| offset <= stream.data.len()));
    }
}

/// `struct permille_switch`
fn record(tsc: u64, core: u32, pid: u32, tid: u32, enters: bool) -> Vec<u8> {
    let words = [core, pid, tid, u32::from(enters)].map(u32::to_le_bytes);
    [&tsc.to_le_bytes()[..], &words.concat()].concat()
}

/// Offset, thread and epoch from which on they hold.
fn division(stream: &Stream, records: &[Vec<u8>], epochs: &Epochs) -> Vec<(usize, u32, u32)> {
    let divided = divide(&stream.data, &Config::default(), &SwitchRecords::read(&records.concat()), 2, epochs);
    divided.turns.into_iter().map(|(offset, view)| (offset, view.tid, view.epoch)).collect()
}

#[test]
fn a_core_where_nobody_else_is_traced_is_divided_among_its_threads_wholly() {
    let stream = stream(&[
        Packet::Tsc(1000),
        go(0x1000),
        TAKEN,
        stop(),
        go(0x2000),
        Packet::Tsc(1500),
        TAKEN,
        stop(),
        go(0x1000),
        Packet::Tsc(2000),
        TAKEN,
    ]);
    let records = [
        record(1010, 2, 7, 71, true),
        record(1100, 5, 9, 99, true),
        record(1200, 2, 7, 71, false),
        record(1300, 2, 8, 81, true),
        record(1600, 2, 8, 81, false),
        record(1700, 2, 7, 71, true),
        record(2100, 2, 7, 71, false),
    ];
    let (one, two) = (stream.at[4], stream.at[8]);
    assert_eq!(division(&stream, &records, &Epochs::new()), [(0, 71, 0), (one, 81, 0), (two, 71, 0)]);
    // The first record is that a thread leaves: it was there before.
    assert_eq!(division(&stream, &records[2..], &Epochs::new()), [(0, 71, 0), (one, 81, 0), (two, 71, 0)]);
    // Where another image holds since a time between two stays, the second stay is of that one.
    let epochs = Epochs::from([(7, vec![(1650, 3)]), (8, vec![])]);
    assert_eq!(division(&stream, &records, &epochs), [(0, 71, 0), (one, 81, 0), (two, 71, 3)]);
    assert_eq!(division(&stream, &[], &Epochs::new()), [(0, 0, 0)]);
}

#[test]
fn a_thread_that_was_on_another_core_meanwhile_has_come_from_there() {
    let stream = stream(&[
        Packet::Tsc(1000),
        go(0x1000),
        TAKEN,
        stop(),
        go(0x1000),
        TAKEN,
        stop(),
        Packet::Tsc(1500),
        go(0x1000),
        TAKEN,
        Packet::Tsc(2000),
    ]);
    let ran = [(1010, 2, 1050), (1060, 2, 1100), (1200, 5, 1300), (1600, 2, 1700)];
    let record = |(since, core, until)| [record(since, core, 7, 71, true), record(until, core, 7, 71, false)];
    let divided = |ran: &[(u64, u32, u64)]| {
        let records = ran.iter().flat_map(|&ran| record(ran)).collect::<Vec<_>>().concat();
        divide(&stream.data, &Config::default(), &SwitchRecords::read(&records), 2, &Epochs::new()).turns
    };
    let turns = divided(&ran);
    let turns: Vec<_> = turns.iter().map(|(at, view)| (*at, view.tid, view.stay)).collect();
    assert_eq!(turns, [(0, 71, 0), (stream.at[7], 71, 2)]);
    // Where nothing is known of the other core, it has never left.
    assert_eq!(divided(&[ran[0], ran[1], ran[3]]).len(), 1);
}

#[test]
fn a_core_is_divided_as_well_where_packets_have_not_all_the_bits_of_the_time() {
    const WRAP: u64 = 1 << 56;
    // Soon after the machine was started; long after; while the bits that packets have wrap.
    for since in [0, WRAP, 5 * WRAP - 1400] {
        let tsc = |time: u64| Packet::Tsc((since + time) % WRAP);
        let stream = stream(&[
            tsc(1000),
            go(0x1000),
            TAKEN,
            stop(),
            go(0x2000),
            tsc(1500),
            TAKEN,
            stop(),
            go(0x1000),
            tsc(2000),
            TAKEN,
        ]);
        let records = [
            record(since + 1010, 2, 7, 71, true),
            record(since + 1200, 2, 7, 71, false),
            record(since + 1300, 2, 8, 81, true),
            record(since + 1600, 2, 8, 81, false),
            record(since + 1700, 2, 7, 71, true),
        ];
        let epochs = Epochs::from([(7, vec![(since + 1650, 3)]), (8, vec![])]);
        let config = Config { reference_tsc: since, ..Config::default() };
        let divided = divide(&stream.data, &config, &SwitchRecords::read(&records.concat()), 2, &epochs);
        let turns: Vec<_> = divided.turns.iter().map(|(at, view)| (*at, view.tid, view.epoch)).collect();
        assert_eq!(turns, [(0, 71, 0), (stream.at[4], 81, 0), (stream.at[8], 71, 3)], "since {since:#x}");
    }
}

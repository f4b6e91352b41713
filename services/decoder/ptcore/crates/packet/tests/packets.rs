use pt_packet::{find_psb, writer, Compression, Errata, ErrorKind, Execution, Ip, Packet, Reader, PSB};

fn full(payload: u64) -> Ip {
    Ip { compression: Compression::Full, payload }
}

fn one_of_each() -> Vec<Packet> {
    use Compression::*;
    let mut packets = vec![
        Packet::Pad,
        Packet::Psb,
        Packet::Psbend,
        Packet::Pip { cr3: 0x1234_5678_9ae0, non_root: true },
        Packet::ModeExec { mode: Execution::Bits16, interrupt_flag: false },
        Packet::ModeExec { mode: Execution::Bits32, interrupt_flag: false },
        Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true },
        Packet::ModeTsx { in_transaction: true, aborted: false },
        Packet::ModeTsx { in_transaction: false, aborted: true },
        Packet::TraceStop,
        Packet::Cbr { ratio: 0x24 },
        Packet::Tsc(0x00ab_cdef_0123_4567),
        Packet::Mtc(0xfe),
        Packet::Tma { ctc: 0xbeef, fast_counter: 0x1a5 },
        Packet::Vmcs(0xab_cdef_0123 << 12),
        Packet::Ovf,
        Packet::Mnt(0x0102_0304_0506_0708),
        Packet::Ptw { payload: 0xdead_beef, size: 4, fup: false },
        Packet::Ptw { payload: 0xdead_beef_0bad_cafe, size: 8, fup: true },
        Packet::Exstop { fup: false },
        Packet::Exstop { fup: true },
        Packet::Mwait { hints: 0x60, extensions: 1 },
        Packet::Pwre { state: 3, sub_state: 5, hardware: true },
        Packet::Pwrx { last: 2, deepest: 7, wake: 4 },
        Packet::Cfe { kind: 1, vector: 14, fup: true },
        Packet::Evd { kind: 0, payload: 0xffff_8000_1234_5678 },
        Packet::Bbp { kind: 4, size: 8 },
        Packet::Bip { id: 21, payload: 0x8877_6655_4433_2211 },
        Packet::Bep { fup: true },
        Packet::Trig { number: 7, instructions: None, multiple: true, fup: false },
        Packet::Trig { number: 0xa1, instructions: Some(0x1234), multiple: false, fup: true },
    ];
    for ip in [
        Ip::SUPPRESSED,
        Ip { compression: Update16, payload: 0x1234 },
        Ip { compression: Update32, payload: 0x1234_5678 },
        Ip { compression: SignExtend48, payload: 0x8234_5678_9abc },
        Ip { compression: Update48, payload: 0x1234_5678_9abc },
        full(0xffff_8234_5678_9abc),
    ] {
        packets.extend([Packet::Tip(ip), Packet::TipPge(ip), Packet::TipPgd(ip), Packet::Fup(ip)]);
    }
    packets.extend((1..=47).map(|count| Packet::Tnt { bits: 0x5a5a_5a5a_5a5a & ((1 << count) - 1), count }));
    packets.extend([0, 31, 32, 4095, 4096, u64::MAX >> 4].map(Packet::Cyc));
    packets
}

#[test]
fn every_packet_reads_as_it_was_written() {
    let packets = one_of_each();
    let mut bytes = Vec::new();
    for &packet in &packets {
        writer::write(&mut bytes, packet);
    }
    let read: Vec<_> = Reader::new(&bytes).map(|item| item.unwrap().1).collect();
    assert_eq!(read, packets);
}

#[test]
fn pads_are_passed_over_as_far_as_they_go() {
    let mut bytes = vec![0; 1000];
    for packet in [Packet::Tsc(7), Packet::Pad, Packet::Pad] {
        writer::write(&mut bytes, packet);
    }
    let mut reader = Reader::new(&bytes);
    assert_eq!((reader.skip_pads(70), reader.offset()), (70, 70));
    assert_eq!((reader.skip_pads(usize::MAX), reader.offset()), (930, 1000));
    assert_eq!((reader.skip_pads(usize::MAX), reader.read()), (0, Ok(Some(Packet::Tsc(7)))));
    assert_eq!((reader.skip_pads(usize::MAX), reader.read()), (2, Ok(None)));
    // Between BBP and BEP they are the same.
    let mut block = Vec::new();
    for packet in [Packet::Bbp { kind: 0, size: 4 }, Packet::Pad, Packet::Bip { id: 1, payload: 5 }] {
        writer::write(&mut block, packet);
    }
    let mut reader = Reader::new(&block);
    reader.read().unwrap();
    assert_eq!((reader.skip_pads(usize::MAX), reader.in_block()), (1, true));
    assert_eq!(reader.read(), Ok(Some(Packet::Bip { id: 1, payload: 5 })));
}

#[test]
fn what_stands_behind_pads_is_read_with_its_offset() {
    let mut bytes = vec![0; 1000];
    writer::write(&mut bytes, Packet::Tsc(7));
    bytes.extend([0, 0, 0x05]);
    let mut reader = Reader::new(&bytes);
    assert_eq!(reader.read_behind_pads(), Ok(Some((1000, Packet::Tsc(7)))));
    assert_eq!(reader.read_behind_pads().unwrap_err().offset, bytes.len() - 1);
    assert_eq!(Reader::new(&bytes[..1000]).read_behind_pads(), Ok(None));
}

#[test]
fn offsets_are_those_of_the_first_bytes() {
    let mut bytes = Vec::new();
    for packet in [Packet::Psb, Packet::Tsc(1), Packet::Psbend, Packet::Pad] {
        writer::write(&mut bytes, packet);
    }
    let offsets: Vec<_> = Reader::new(&bytes).map(|item| item.unwrap().0).collect();
    assert_eq!(offsets, [0, 16, 24, 26]);
}

#[test]
fn a_packet_cut_short_is_an_error_at_its_first_byte() {
    for packet in one_of_each() {
        let mut bytes = Vec::new();
        writer::write(&mut bytes, Packet::Bbp { kind: 0, size: 8 });
        let start = bytes.len();
        writer::write(&mut bytes, packet);
        for end in start + 1..bytes.len() {
            let error = Reader::new(&bytes[..end]).find_map(Result::err).unwrap();
            assert_eq!((error.kind, error.offset), (ErrorKind::Truncated, start), "{packet:?} cut at {end}");
        }
    }
}

#[test]
fn packets_are_the_same_near_to_the_end_and_far_from_it() {
    for errata in [Errata::default(), Errata { skd007: true, ..Errata::default() }] {
        for first in 0..=u16::MAX {
            for filling in [0x00, 0x02, 0x55, 0x81, 0xf3, 0xff] {
                let mut bytes = [filling; 32];
                bytes[..2].copy_from_slice(&first.to_le_bytes());
                let [far, near] = [&bytes[..], &bytes[..15]].map(|bytes| {
                    let mut reader = Reader::with_errata(bytes, errata);
                    (reader.read(), reader.offset(), reader.in_block())
                });
                assert_eq!(far, near, "{bytes:02x?} {errata:?}");
            }
        }
    }
}

#[test]
fn no_packet_tells_of_no_branch_and_none_counts_beyond_64_bits() {
    let cyc = |extended: usize, last: u8| [&[7][..], &vec![1; extended - 1], &[last], &[0; 16]].concat();
    let tnt = |payload: u8| [&[0x02, 0xa3, payload][..], &[0; 21]].concat();
    let first = |bytes: &[u8]| Reader::new(bytes).next().unwrap().map(|(_, packet)| packet).map_err(|error| error.kind);
    assert_eq!(first(&cyc(8, 0xfe)), Ok(Packet::Cyc(0x7f << 54)));
    assert_eq!(first(&cyc(9, 0)), Err(ErrorKind::Unknown));
    assert_eq!(first(&tnt(2)), Ok(Packet::Tnt { bits: 0, count: 1 }));
    assert_eq!([0, 1].map(|payload| first(&tnt(payload))), [Err(ErrorKind::Unknown); 2]);
}

#[test]
fn unknown_bytes_are_named() {
    let error = Reader::new(&[0x00, 0x02, 0xff, 0x07, 0x55]).find_map(Result::err).unwrap();
    assert_eq!((error.kind, error.offset, error.bytes), (ErrorKind::Unknown, 1, [0x02, 0xff, 0x07, 0x55]));
    assert_eq!(error.to_string(), "at offset 0x1: no packet begins with 02 ff 07 55");
}

#[test]
fn any_bytes_end_in_packets_or_one_error() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56) as u8
            })
            .collect();
        let errors = Reader::new(&bytes).filter(Result::is_err).count();
        assert!(errors <= 1);
    }
}

#[test]
fn a_psb_is_found_wherever_it_begins() {
    for before in 0..40 {
        for filler in [0x00, 0x02, 0x82, 0x55] {
            let mut bytes = vec![filler; before];
            bytes.extend(PSB);
            bytes.push(0x99);
            assert_eq!(find_psb(&bytes, 0), Some(before), "{before} times {filler:02x}");
            assert_eq!(find_psb(&bytes, before + 1), None);
        }
    }
}

#[test]
fn addresses_complete_the_last_one() {
    let last = 0x7fff_1111_2222_3333;
    let resolve = |compression, payload| Ip { compression, payload }.resolve(last);
    assert_eq!(resolve(Compression::Suppressed, 0), None);
    assert_eq!(resolve(Compression::Update16, 0xaaaa), Some(0x7fff_1111_2222_aaaa));
    assert_eq!(resolve(Compression::Update32, 0xaaaa_bbbb), Some(0x7fff_1111_aaaa_bbbb));
    assert_eq!(resolve(Compression::SignExtend48, 0x8000_0000_0001), Some(0xffff_8000_0000_0001));
    assert_eq!(resolve(Compression::Update48, 0xaaaa_bbbb_cccc), Some(0x7fff_aaaa_bbbb_cccc));
    assert_eq!(resolve(Compression::Full, 1), Some(1));
}

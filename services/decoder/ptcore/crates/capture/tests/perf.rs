//! perf.data against what perf itself says (Debian's package linux-perf).

use crate::support::{reference_data, Told};
use pt_capture::{open, Capture, Kind, Of, Options, Threads};
use pt_packet::{Compression, Execution, Ip, Packet, Reader};
use std::path::Path;
use std::process::Command;

const RECORDING: &str = "pt/perf/perf.data.intel_pt-4.14";

fn recording() -> Option<Capture> {
    Some(open(&reference_data()?.join(RECORDING), &Options::default()).unwrap())
}

#[test]
fn a_recording_per_core() {
    let Some(capture) = recording() else { return };
    assert_eq!((capture.kind, capture.cpu), (Kind::PerfData, Some((6, 78, 3))));
    let config = capture.config;
    assert_eq!((config.mtc_freq, config.tsc_ctc_ratio, config.nominal_ratio), (3, (100, 2), 12));
    let streams: Vec<_> = capture.streams.iter().map(|stream| (stream.of, stream.data.len())).collect();
    assert_eq!(streams, [(Of::Core(0), 12_240), (Of::Core(3), 137_728)]);
    // Of 152 switch records 30 are of two cores that left no packets.
    let switches: Vec<_> = capture.streams.iter().map(|stream| stream.switches.len()).collect();
    assert_eq!(switches, [28, 94]);
    assert_eq!(capture.names[&(3174, 3174)], "echo");
    // The thread was traced wherever it ran: every stretch of packets is its own.
    let threads = |stream: &pt_capture::Stream| -> Vec<_> {
        stream.epochs.iter().map(|&(offset, view)| (offset, capture.views[view as usize].tid)).collect()
    };
    assert_eq!(threads(&capture.streams[0]), [(0, 3174), (0x2fc9, 0)]);
    assert_eq!(threads(&capture.streams[1]), [(0, 3174)]);
    let libc = "/lib64/libc-2.23.so, mapped 1 times: no file with build id 93fdba25fc55b597068e81c42f82e7766da372cb";
    assert!(capture.warnings.iter().any(|warning| warning.starts_with(libc)), "{:#?}", capture.warnings);
}

/// The output of perf, by line; `None`, with a word on stderr, where there is no perf.
fn perf(arguments: &[&str], file: &Path) -> Option<Vec<String>> {
    let Ok(output) = Command::new("perf").args(arguments).arg("-i").arg(file).output() else {
        eprintln!("skipped: perf is not installed (Debian package linux-perf)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn what_is_missing_or_left_over_behind_the_records_is_told() {
    let Some(capture) = recording() else { return };
    let whole = std::fs::read(reference_data().unwrap().join(RECORDING)).unwrap();
    let path = std::env::temp_dir().join(format!("pt-capture-behind-{}", std::process::id()));
    let opened = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let capture = open(&path, &Options::default());
        std::fs::remove_file(&path).unwrap();
        capture.unwrap()
    };
    let told = |capture: &Capture, what: &str| capture.warnings.iter().filter(|told| told.contains(what)).count();
    let (cut, left) = ("what stands behind the records is said to end at ", "bytes behind the end of the perf data");
    assert_eq!((told(&capture, cut), told(&capture, left)), (0, 0));
    // From the last byte on, from a feature before the processor, from their table, from the records.
    for (missing, known, count) in [(1, true, 1), (12_000, false, 1), (12_800, false, 1), (13_000, false, 0)] {
        let short = opened(&whole[..whole.len() - missing]);
        assert_eq!(told(&short, cut), count, "{missing}: {:#?}", short.warnings);
        assert_eq!(short.cpu.is_some(), known, "{missing}");
    }
    let twice = opened(&whole.repeat(2));
    assert_eq!((told(&twice, left), twice.cpu), (1, capture.cpu));
    assert_eq!(twice.warnings.len(), capture.warnings.len() + 1, "{:#?}", twice.warnings);
}

#[test]
fn packets_are_those_that_perf_tells() {
    let Some(capture) = recording() else { return };
    let file = reference_data().unwrap().join(RECORDING);
    let Some(lines) = perf(&["report", "-D"], &file) else { return };
    let theirs: Vec<_> = lines.iter().filter_map(|line| packet_line(line)).collect();
    let ours: Vec<_> = capture.streams.iter().flat_map(|stream| dump(&stream.data)).collect();
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert!(ours.len() > 80_000, "{}", ours.len());
}

/// Offset and text of `.  00000017:  7d 00 d3 60 b9 ff ff 00        FUP 0xffffb960d300`.
fn packet_line(line: &str) -> Option<(usize, String)> {
    let (offset, rest) = line.strip_prefix(".  ")?.split_once(":  ")?;
    if offset.len() != 8 {
        return None;
    }
    let words = rest.split(' ').skip_while(|word| word.len() == 2 && u8::from_str_radix(word, 16).is_ok());
    let text = words.collect::<Vec<_>>().join(" ").trim().to_owned();
    Some((usize::from_str_radix(offset, 16).ok()?, text))
}

/// Packets as perf prints them: a packet of less than eight bytes takes the PADs behind it in, up to eight.
fn dump(data: &[u8]) -> Vec<(usize, String)> {
    let mut dump = Vec::new();
    let mut reader = Reader::new(data);
    let mut covered = 0;
    loop {
        let offset = reader.offset();
        let Some(packet) = reader.read().unwrap() else { return dump };
        if packet == Packet::Pad && offset < covered {
            continue;
        }
        let size = reader.offset() - offset;
        covered = if size < 8 { offset + 8 } else { 0 };
        dump.push((offset, text(&packet)));
    }
}

fn text(packet: &Packet) -> String {
    let name = packet.name();
    match *packet {
        Packet::Tnt { bits, count } => {
            let branches: String = (0..count).rev().map(|bit| if bits >> bit & 1 != 0 { 'T' } else { 'N' }).collect();
            format!("TNT {branches} ({count})")
        }
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => match ip {
            Ip { compression: Compression::Suppressed, .. } => format!("{name} no ip"),
            Ip { payload, .. } => format!("{name} {payload:#x}"),
        },
        Packet::Pip { cr3, non_root } => format!("PIP {:#x} (NR={})", cr3 >> 5, u8::from(non_root)),
        Packet::ModeExec { mode, interrupt_flag } => {
            let bits = match mode {
                Execution::Bits16 => 16,
                Execution::Bits32 => 32,
                Execution::Bits64 => 64,
            };
            format!("MODE.Exec IF:{} {bits}", u8::from(interrupt_flag))
        }
        Packet::ModeTsx { in_transaction, aborted } => {
            format!("MODE.TSX TXAbort:{} InTX:{}", u8::from(aborted), u8::from(in_transaction))
        }
        Packet::Cbr { ratio } => format!("CBR {ratio:#x}"),
        Packet::Tsc(ticks) => format!("TSC {ticks:#x}"),
        Packet::Mtc(ticks) => format!("MTC {ticks:#x}"),
        Packet::Tma { ctc, fast_counter } => format!("TMA CTC {ctc:#x} FC {fast_counter:#x}"),
        Packet::Cyc(cycles) => format!("CYC {cycles:#x}"),
        _ => name.to_owned(),
    }
}

/// Body of perf.data, its attributes as they stand in the file, and what stands behind.
struct Parts {
    attributes: Vec<Vec<u8>>,
    body: Vec<u8>,
}

fn parts() -> Option<Parts> {
    let file = std::fs::read(reference_data()?.join(RECORDING)).unwrap();
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (entry, table, size, body, length) = (number(16), number(24), number(32), number(40), number(48));
    let attribute = |entry: &[u8]| {
        let place = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap()) as usize;
        let (ids, size) = (place(entry.len() - 16), place(entry.len() - 8));
        [&entry[..entry.len() - 16], &file[ids..ids + size]].concat()
    };
    let attributes = file[table..table + size].chunks_exact(entry).map(attribute).collect();
    Some(Parts { attributes, body: file[body..body + length].to_vec() })
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = (body.len() as u16 + 8).to_le_bytes();
    [&kind.to_le_bytes()[..], &[0, 0], &size, body].concat()
}

/// What `perf record -o -` would have written.
fn piped(parts: &Parts, body: &[u8]) -> Vec<u8> {
    let mut pipe = [&b"PERFILE2"[..], &16u64.to_le_bytes()].concat();
    for attribute in &parts.attributes {
        pipe.extend(record(64, attribute));
    }
    let cpu = b"GenuineIntel,6,78,3\0";
    pipe.extend(record(80, &[&9u64.to_le_bytes()[..], &(cpu.len() as u32).to_le_bytes(), cpu].concat()));
    pipe.extend(body);
    pipe
}

fn opened(name: &str, bytes: &[u8]) -> Capture {
    let path = std::env::temp_dir().join(format!("pt-capture-{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let capture = open(&path, &Options::default());
    std::fs::remove_file(&path).unwrap();
    capture.unwrap()
}

fn assert_same(one: &Capture, other: &Capture) {
    assert_eq!((one.config, &one.names, &one.views), (other.config, &other.names, &other.views));
    assert_eq!(one.streams.len(), other.streams.len());
    for (one, other) in one.streams.iter().zip(&other.streams) {
        assert_eq!((&one.name, one.of, &one.epochs), (&other.name, other.of, &other.epochs));
        assert_eq!(one.switches, other.switches);
        assert_eq!(one.data[..], other.data[..]);
    }
}

#[test]
fn a_pipe_tells_the_same_as_a_file() {
    let (Some(capture), Some(parts)) = (recording(), parts()) else { return };
    assert_same(&opened("pipe", &piped(&parts, &parts.body)), &capture);
}

#[test]
fn compressed_records_tell_the_same() {
    let (Some(capture), Some(parts)) = (recording(), parts()) else { return };
    let (mut own, mut kernels) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < parts.body.len() {
        let head = &parts.body[at..];
        let kind = u32::from_le_bytes(head[..4].try_into().unwrap());
        let size = usize::from(u16::from_le_bytes(head[6..8].try_into().unwrap()));
        let packets = if kind == 71 { u64::from_le_bytes(head[8..16].try_into().unwrap()) as usize } else { 0 };
        let to = if kind < 64 { &mut kernels } else { &mut own };
        to.extend(&head[..size + packets]);
        at += size + packets;
    }
    // perf flushes its stream and never ends it.
    let open_end = |kernels: &[u8]| {
        let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x58];
        for block in kernels.chunks(3000) {
            stream.extend(&((block.len() as u32) << 3).to_le_bytes()[..3]);
            stream.extend(block);
        }
        stream
    };
    let (one, two) = kernels.split_at(kernels.len() / 2);
    let ended =
        |kernels: &[u8]| ruzstd::encoding::compress_to_vec(kernels, ruzstd::encoding::CompressionLevel::Fastest);
    for packed in [ended(&kernels), open_end(&kernels), [ended(one), open_end(two)].concat()] {
        // Cut anywhere: the pieces are one zstd stream.
        let pieces = packed.chunks(1001).flat_map(|piece| record(81, piece));
        let body = own.iter().copied().chain(pieces).collect::<Vec<_>>();
        assert_same(&opened("compressed", &piped(&parts, &body)), &capture);
    }
}

#[test]
fn a_stream_in_pieces_is_joined_and_says_where_a_piece_is_missing() {
    let Some(parts) = parts() else { return };
    let mut body = Vec::new();
    for (offset, packets) in [(0u64, vec![2; 64]), (64, vec![3; 32]), (200, pt_packet::PSB.to_vec())] {
        let mut fields = [packets.len() as u64, offset, 0].map(u64::to_le_bytes).concat();
        fields.extend([5u32, 77, 5, 0].map(u32::to_le_bytes).concat());
        body.extend(record(71, &fields));
        body.extend(packets);
    }
    let capture = opened("pieces", &piped(&parts, &body));
    assert_eq!(capture.streams[0].data[..], [vec![2; 64], vec![3; 32], pt_packet::PSB.to_vec()].concat());
    assert_eq!((capture.streams[0].of, &capture.streams[0].lost), (Of::Core(5), &vec![96]));
    assert!(capture.warnings.contains(&"core 5: packets were lost at 1 places: 0x60".to_owned()));
}

/// LLDB's session of two cores as perf would have recorded it.
fn two_cores_by_perf(data: &Path) -> Vec<u8> {
    const PID: u32 = 3497234;
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let halves = |halves: &[u32]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<_>>();
    // perf_event_attr: type and size, config, period, sample_type TID TIME CPU, read_format, exclude_kernel and
    // sample_id_all.
    let attribute = [halves(&[8, 64]), words(&[0x400, 0, 0x86, 0, 1 << 5 | 1 << 18, 0, 0])].concat();
    let mut file = [&b"PERFILE2"[..], &16u64.to_le_bytes()].concat();
    file.extend(record(64, &attribute));
    let times = [31, 1076264588, 18433473881008870804, 1];
    file.extend(record(70, &[words(&[1, 8]), words(&times), words(&[0x400, 0x800, 3, 0, 1])].concat()));
    let name = b"/tmp/m.out\0\0\0\0\0\0";
    let place = words(&[0x400000, 0x2000, 0, 0, 0, 0]);
    let mapping = [halves(&[PID, PID]), place, halves(&[5, 2]), name.to_vec(), words(&[0, 0, 0])].concat();
    file.extend(record(10, &mapping));
    for core in [45u32, 51] {
        let switches = std::fs::read(data.join(format!("cores/{core}.perf_context_switch_trace"))).unwrap();
        for switch in switches.chunks_exact(32) {
            let mut switch = [switch, &halves(&[core, 0])].concat();
            switch[6] = 40;
            file.extend(switch);
        }
        let mut packets = std::fs::read(data.join(format!("cores/{core}.intelpt_trace"))).unwrap();
        packets.resize(packets.len().next_multiple_of(8), 0);
        file.extend(record(71, &[words(&[packets.len() as u64, 0, 0]), halves(&[core, u32::MAX, core, 0])].concat()));
        file.extend(packets);
    }
    file
}

#[test]
fn threads_of_cores_are_those_of_the_same_session_by_lldb() {
    let Some(data) = reference_data() else { return };
    let bundle = data.join("pt/lldb/intelpt-multi-core-trace");
    let path = std::env::temp_dir().join(format!("pt-capture-cores-{}", std::process::id()));
    std::fs::write(&path, two_cores_by_perf(&bundle)).unwrap();
    let options = Options { symbols: vec![bundle.join("modules")], cpu: Some((6, 85, 4)), ..Options::default() };
    let capture = open(&path, &options);
    std::fs::remove_file(&path).unwrap();
    let capture = capture.unwrap();
    assert_eq!(capture.warnings, Vec::<String>::new());
    let memory = capture.memory();
    let mut flow = pt_flow::Flow::new(&memory);
    let mut threads = std::collections::BTreeMap::new();
    for stream in &capture.streams {
        let mut sink = Threads::new(&capture.views, |_| Told::default());
        flow.decode(&stream.data, &capture.config, &stream.epochs, &mut sink);
        threads.extend(sink.finish());
    }
    let of = |tid: u32| threads.iter().find(|&(&(_, one), _)| one == tid).unwrap().1.instructions.len();
    assert!((19_400..19_600).contains(&of(3497496)));
    assert!((61_700..61_900).contains(&of(3497497)));
    // LLDB's cores write around: what one of them has of a thread may be overwritten.
    let by_lldb = open(&bundle, &Options::default()).unwrap();
    assert_eq!((capture.groups(&[1, 0]), by_lldb.groups(&[1, 0])), (vec![vec![1, 0]], vec![vec![1], vec![0]]));
    // PERF_RECORD_LOST with id, count and a sample_id: what is missing may have told that a thread was on another core.
    let lost = record(2, &[0u64, 3, 0, 0, 45].map(u64::to_le_bytes).concat());
    std::fs::write(&path, [two_cores_by_perf(&bundle), lost].concat()).unwrap();
    let with_lost = open(&path, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(with_lost.warnings, ["3 records of the kernel were lost"]);
    assert_eq!(with_lost.groups(&[0, 1]), [[0], [1]]);
    let mut flow = pt_flow::Flow::new(memory);
    let (together, _) = capture.decode_cores(&[0, 1], &mut flow, |_, _| Told::default(), || panic!("it is whole"));
    for ((pid, tid, _), told) in together.finish() {
        assert!(told.instructions == threads[&(pid, tid)].instructions, "thread {tid}");
    }
}

#[test]
fn a_raw_file_with_the_records_of_perf_beside_it() {
    let Some(data) = reference_data() else { return };
    let capture = open(&data.join("pt/dynamorio/pt.bin"), &Options::default()).unwrap();
    assert_eq!(capture.warnings, ["[vdso], mapped 1 times: the file is not there"]);
    assert_eq!(capture.streams[0].of, Of::Thread { pid: 0x36af7, tid: 0x36af7 });
    assert_eq!(capture.names[&(0x36af7, 0x36af7)], "hello");
    let (memory, mut told) = (capture.memory(), Told::default());
    let stream = &capture.streams[0];
    pt_flow::Flow::new(&memory).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
    assert_eq!((told.instructions.len(), told.losses.len()), (8, 0));
}

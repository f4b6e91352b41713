//! Griffin containers.

use crate::support::{reference_data, Told};
use pt_capture::{open, Capture, Kind, Of, Options, Stream};
use pt_flow::{Flow, Reason};
use pt_packet::{writer::write, Compression, Ip, Packet};

#[test]
fn every_container_decodes_without_loss() {
    let Some(data) = reference_data() else { return };
    for (name, bytes, instructions) in [
        ("last", 171_568, 1_873_231),
        ("ovf-01-ben", 9_024, 176_141),
        ("cve-2004-0597-poc", 24_416, 472_852),
        ("cve-2005-0105-poc", 31_600, 671_163),
    ] {
        let capture = open(&data.join(format!("pt/griffin/{name}.griffin.gz")), &Options::default()).unwrap();
        assert_eq!((capture.kind, capture.warnings.len()), (Kind::Griffin, 0), "{name}: {:?}", capture.warnings);
        let [stream] = &capture.streams[..] else { panic!("{name} has one thread") };
        assert!(matches!(stream.of, Of::Thread { .. }));
        assert_eq!(stream.data.len(), bytes, "{name}");
        let mut told = Told::default();
        let memory = capture.memory();
        let counts = Flow::new(&memory).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
        assert_eq!(told.losses, [], "{name}");
        assert_eq!(counts.instructions, instructions, "{name}");
    }
}

#[test]
fn a_record_that_is_too_long_is_named_by_its_offset() {
    let folder = std::env::temp_dir().join(format!("pt-capture-griffin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("bad.griffin");
    let mut bytes = vec![0xee, 0xff, 0xc0, 0x51, 0, 0, 0, 0, 4, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f];
    bytes.extend([0; 16]);
    std::fs::write(&path, bytes).unwrap();
    let Err(error) = open(&path, &Options::default()) else { panic!("it must not be taken") };
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(error.to_string().contains("at offset 0x8: a record of kind 4 says its size is 2147483647"), "{error}");
}

#[test]
fn a_container_that_is_cut_off_is_read_up_to_there() {
    let folder = std::env::temp_dir().join(format!("pt-capture-griffin-cut-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("cut.griffin");
    let mut bytes = vec![0xee, 0xff, 0xc0, 0x51, 1, 0, 0, 0];
    // A buffer of one thread: process, thread, sequence number, size.
    bytes.extend([0u32, 8 + 32 + 4].map(u32::to_le_bytes).concat());
    bytes.extend([7u64, 8, 0, 4].map(u64::to_le_bytes).concat());
    bytes.extend([0; 4]);
    for (rest, what) in [
        (&[2, 0, 0, 0, 16][..], "the head of a record has 8 bytes; 5 bytes are left"),
        (&[2, 0, 0, 0, 16, 0, 0, 0, 1], "a record of kind 2 says its size is 16; 9 bytes are left"),
    ] {
        std::fs::write(&path, [&bytes, rest].concat()).unwrap();
        let capture = open(&path, &Options::default()).unwrap();
        assert_eq!(capture.streams[0].data.len(), 4);
        assert_eq!(capture.warnings, [format!("at offset 0x34: {what}; the container ends here")]);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn pages_that_are_inherited_far_too_often_are_refused() {
    let folder = std::env::temp_dir().join(format!("pt-capture-griffin-forks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("forks.griffin");
    let mut bytes = vec![0xee, 0xff, 0xc0, 0x51, 1, 0, 0, 0];
    let mut record = |kind: u32, words: &[u64], rest: &[u8]| {
        bytes.extend([kind, 8 + words.len() as u32 * 8 + rest.len() as u32].map(u32::to_le_bytes).concat());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(rest);
    };
    const SIZE: u64 = 1 << 22;
    record(4, &[1, 0x1000, SIZE], &vec![0x90; SIZE as usize]);
    for pid in 2..300 {
        record(6, &[1, 1, pid, pid], b"");
        record(0, &[pid, pid, 0, 0], b"");
    }
    std::fs::write(&path, bytes).unwrap();
    let Err(error) = open(&path, &Options::default()) else { panic!("it must not be taken") };
    std::fs::remove_dir_all(&folder).unwrap();
    let what = "the pages of all processes have more than 1073741824 bytes, with those that they inherit";
    assert!(error.to_string().ends_with(what), "{error}");
}

const CODE: u64 = 0x40_0000;
const NOP_RET: [u8; 2] = [0x90, 0xc3];
const TWO_NOPS_RET: [u8; 3] = [0x90, 0x90, 0xc3];

/// A container, record by record.
struct Container(Vec<u8>);

impl Container {
    fn new() -> Self {
        Container(vec![0xee, 0xff, 0xc0, 0x51, 1, 0, 0, 0])
    }

    fn record(&mut self, kind: u32, words: &[u64], rest: &[u8]) -> &mut Self {
        self.0.extend([kind, 8 + words.len() as u32 * 8 + rest.len() as u32].map(u32::to_le_bytes).concat());
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.0.extend(rest);
        self
    }

    /// The process executes a program.
    fn executes(&mut self, pid: u64, code: &[u8]) -> &mut Self {
        self.record(1, &[pid, 4], b"work\0").record(2, &[pid, pid], b"").page(pid, CODE, code)
    }

    fn page(&mut self, pid: u64, address: u64, code: &[u8]) -> &mut Self {
        self.record(4, &[pid, address, code.len() as u64], code)
    }

    /// Its thread of the same number runs from an address until it returns.
    fn ran(&mut self, pid: u64, sequence: u64) -> &mut Self {
        let full = |payload| Ip { compression: Compression::Full, payload };
        let mut data = Vec::new();
        let run = [Packet::Psb, Packet::Psbend, Packet::TipPge(full(CODE)), Packet::TipPgd(full(1))];
        run.into_iter().for_each(|packet| write(&mut data, packet));
        self.record(0, &[pid, pid, sequence, data.len() as u64], &data)
    }

    fn open(&self, name: &str) -> Capture {
        let path = std::env::temp_dir().join(format!("pt-capture-griffin-{name}-{}", std::process::id()));
        std::fs::write(&path, &self.0).unwrap();
        let capture = open(&path, &Options::default());
        std::fs::remove_file(&path).unwrap();
        capture.unwrap()
    }
}

/// How many instructions each stream has.
fn instructions(capture: &Capture) -> Vec<u64> {
    let memory = capture.memory();
    let count = |stream: &Stream| {
        let mut told = Told::default();
        let counts = Flow::new(&memory).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
        assert_eq!(told.losses, []);
        counts.instructions
    };
    capture.streams.iter().map(count).collect()
}

#[test]
fn a_process_that_executes_a_program_again_keeps_what_it_ran_before() {
    let mut container = Container::new();
    container.executes(7, &NOP_RET).ran(7, 0).ran(7, 1).executes(7, &TWO_NOPS_RET);
    // The last buffer of the first program is written late; those of the second one are counted anew.
    container.ran(7, 2).ran(7, 0).ran(7, 1);
    // A child's numbers begin behind those of its parent.
    container.record(6, &[7, 7, 8, 8], b"").record(1, &[8, 4], b"work\0").record(2, &[8, 8], b"");
    container.ran(8, 5).executes(8, &NOP_RET).ran(8, 0).ran(8, 1);
    let capture = container.open("exec");
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(capture.streams.iter().map(|stream| stream.epochs.len()).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(instructions(&capture), [3 * 2 + 2 * 3, 3 + 2 * 2]);
}

#[test]
fn a_process_that_is_forked_with_the_number_of_one_that_ended_runs_what_its_parent_does() {
    let mut container = Container::new();
    container.executes(7, &NOP_RET).ran(7, 0);
    let forked = |container: &mut Container, program: bool| {
        container.record(6, &[7, 7, 8, 8], b"");
        if program {
            container.record(1, &[8, 4], b"work\0").record(2, &[8, 8], b"");
        }
    };
    forked(&mut container, true);
    container.ran(8, 1).executes(8, &TWO_NOPS_RET).ran(8, 0).ran(8, 1);
    container.ran(7, 1).ran(7, 2);
    forked(&mut container, true);
    container.ran(8, 4);
    forked(&mut container, false);
    container.ran(8, 9);
    let capture = container.open("again");
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(instructions(&capture), [3 * 2, 2 + 2 * 3 + 2 * 2]);
}

#[test]
fn a_buffer_that_is_missing_is_a_loss_at_its_place() {
    let mut container = Container::new();
    container.executes(7, &NOP_RET).ran(7, 3).ran(7, 5);
    let capture = container.open("missing");
    assert_eq!(capture.warnings, ["thread 7: buffers are missing at 1 places"]);
    let [stream] = &capture.streams[..] else { panic!("one thread") };
    assert_eq!(stream.lost, [stream.data.len() / 2]);
    let (mut told, memory) = (Told::default(), capture.memory());
    capture.decode(0, &mut Flow::new(memory), &mut told, || unreachable!());
    let losses: Vec<_> = told.losses.iter().map(|loss| (loss.offset, loss.reason)).collect();
    assert_eq!(losses, [(stream.lost[0], Reason::MissingPackets)]);
}

#[test]
fn a_record_that_is_too_short_for_what_it_says_costs_itself_only() {
    let mut container = Container::new();
    container.executes(7, &NOP_RET).ran(7, 0);
    let at = container.0.len() + 8;
    // A page and packets that should have more bytes, a fork of nobody.
    container.record(4, &[7, CODE, 100], &TWO_NOPS_RET).record(0, &[7, 7, 1, 100], &[0; 8]).record(6, &[7, 7], b"");
    let capture = container.ran(7, 2).open("short");
    let short = "3 records are shorter than what they should hold and are left out";
    let first = format!("{:#x} in one of kind 4: 100 bytes are wanted, 3 are there", at + 24);
    let missing = "thread 7: buffers are missing at 1 places".to_owned();
    assert_eq!(capture.warnings, [format!("{short}, first at offset {first}"), missing]);
    assert_eq!(instructions(&capture), [4]);
}

#[test]
fn a_record_of_what_cannot_be_costs_itself_only() {
    let mut container = Container::new();
    container.executes(7, &NOP_RET);
    let at = container.0.len() + 8;
    // A page behind the last address, one of process 7 and 2^32, packets of a thread that no system has.
    container.page(7, u64::MAX - 1, &TWO_NOPS_RET).page(1 << 32 | 7, CODE, &TWO_NOPS_RET).ran(1 << 31, 0);
    let capture = container.ran(7, 0).open("impossible");
    let what = "3 bytes from 0xfffffffffffffffe on reach beyond all addresses";
    let first = format!("first at offset {at:#x} in one of kind 4: {what}");
    assert_eq!(capture.warnings, [format!("3 records say what cannot be and are left out, {first}")]);
    assert_eq!(instructions(&capture), [2]);
    assert_eq!(capture.streams[0].of, Of::Thread { pid: 7, tid: 7 });
}

#[test]
fn the_numbers_of_processes_and_threads_have_64_bits_and_are_not_cut() {
    let large = 1 << 32 | 7;
    let mut container = Container::new();
    container.executes(large, &NOP_RET).ran(large, 0).record(6, &[7, 7, large, large], b"");
    let capture = container.executes(7, &TWO_NOPS_RET).ran(7, 0).open("large");
    let what = format!("no system has a process or thread {large}");
    assert!(capture.warnings[0].starts_with("5 records say what cannot be ") && capture.warnings[0].ends_with(&what));
    assert_eq!(instructions(&capture), [3]);
}

#[test]
fn code_that_is_mapped_later_stands_over_what_was_there() {
    let mut container = Container::new();
    container.executes(7, &[0xcc]).page(7, CODE + 1, &NOP_RET).page(7, CODE, &TWO_NOPS_RET).ran(7, 0);
    let capture = container.open("replaced");
    let what = "nothing says when: the last is taken to have been there from the beginning";
    assert_eq!(capture.warnings, [format!("1 times code was mapped where other code had been, and {what}")]);
    assert_eq!(instructions(&capture), [3]);
}

#[test]
fn records_of_later_versions_are_told_once() {
    let mut container = Container::new();
    // A thread with its name, sections, the end of a thread, system calls.
    container.executes(7, &NOP_RET).record(2, &[7, 9], b"worker\0\0\0\0\0\0\0\0\0\0").ran(9, 0);
    container.record(7, &[7, 1], b"").record(8, &[7, 9], b"");
    for _ in 0..1000 {
        container.record(9, &[1, 2, 3], b"").record(70, &[], b"");
    }
    let capture = container.open("later");
    assert_eq!(capture.warnings, ["1000 records are of kind 70, which is not known here: they are left out"]);
    assert_eq!(capture.names[&(7, 9)], "worker");
}

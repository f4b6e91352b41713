//! Files of records beside packets, as the scripts of libipt take them out of what perf recorded.

use crate::perf::recording::{
    halves, kcore, packets, program, runs, text, words, Folder, Pipe, KERNEL, NOP_RET, TWO_NOPS_RET, USER,
};
use crate::{open, Capture, Of, Options, RawImage};
use pt_packet::PSB;

/// Times are told from other numbers by their size.
const T: u64 = 1 << 40;

/// Programs of which each process has its own: 7 one of two instructions, 8 one of three.
fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    folder
}

/// How perf's clock, which is the TSC, belongs to it (TIME_CONV), and what the processes mapped.
fn begins(core: u32) -> Pipe {
    let mut pipe = Pipe(Vec::new());
    pipe.record(79, 0, &[words(&[0, 1, 0, 0, 0]), vec![1, 0, 0, 0, 0, 0, 0, 0]].concat());
    pipe.maps((7, 7, T, core), USER, 4, 0x1000, "/one");
    pipe.maps((8, 8, T, core), USER, 4, 0x1000, "/two");
    pipe
}

fn beside(folder: &Folder, packets: &str, data: &[u8]) -> Capture {
    let path = folder.add(packets, data);
    open(&path, &Options { symbols: vec![folder.0.clone()], ..Options::default() }).unwrap()
}

/// Process 8 runs on core 2 all the time, while on core 5 process 7 goes and 8 comes.
fn two_cores(folder: &Folder, aux: [u64; 2]) {
    for (core, size) in [2, 5].into_iter().zip(aux) {
        let mut pipe = if core == 2 { begins(core) } else { Pipe(Vec::new()) };
        if core == 2 {
            pipe.enters((8, 8, T + 5, core));
        } else {
            pipe.enters((7, 7, T + 10, core));
            pipe.leaves((7, 7, T + 150, core));
            pipe.enters((8, 9, T + 150, core));
        }
        if size > 0 {
            pipe.event(11, 0, &words(&[0, size, 0]), (7, 7, T + 300, core));
        }
        folder.add(&format!("perf.data-sideband-cpu{core}.pevent"), &pipe.0);
    }
}

#[test]
fn the_packets_of_a_core_are_divided_by_its_switches() {
    let folder = folder("loose-cores");
    let data = packets(&[(T + 100, USER), (T + 200, USER)]);
    two_cores(&folder, [data.len() as u64 + 100, data.len() as u64 - 3]);
    // The kernel handed out as many bytes of core 5, whatever the number of the file.
    for name in ["perf.data-aux-idx0.bin", "perf.data-aux-idx1.bin", "perf.data-aux-idx2.bin"] {
        let capture = beside(&folder, name, &data);
        assert_eq!(capture.warnings, Vec::<String>::new());
        assert_eq!((capture.streams[0].of, runs(&capture)), (Of::Core(5), vec![(7, vec![2]), (9, vec![3])]));
        assert!(capture.stays.is_none());
    }
}

#[test]
fn without_a_word_of_the_kernel_the_number_of_the_file_or_the_first_of_the_records_tells_the_core() {
    let folder = folder("loose-numbers");
    let data = packets(&[(T + 100, USER), (T + 200, USER)]);
    two_cores(&folder, [0, 0]);
    let told = |core: u32, capture: Capture| {
        let wanted = format!(
            "the records are of cores {}, and do not say whose the packets are: they are taken for those of core {core}; \
             give the records of another core first (--sideband)",
            if core == 2 { "2, 5" } else { "5, 2" }
        );
        assert_eq!((capture.streams[0].of, &capture.warnings[..]), (Of::Core(core), &[wanted][..]));
        runs(&capture)
    };
    assert_eq!(told(2, beside(&folder, "perf.data-aux-idx0.bin", &data)), [(8, vec![3, 3])]);
    assert_eq!(told(5, beside(&folder, "perf.data-aux-idx1.bin", &data)), [(7, vec![2]), (9, vec![3])]);
    let named = |cores: &[u32]| {
        let path = |core: &u32| folder.0.join(format!("perf.data-sideband-cpu{core}.pevent"));
        let options = Options {
            sideband: cores.iter().map(path).collect(),
            symbols: vec![folder.0.clone()],
            ..Options::default()
        };
        open(&folder.0.join("perf.data-aux-idx0.bin"), &options).unwrap()
    };
    assert_eq!(told(5, named(&[5, 2])), [(7, vec![2]), (9, vec![3])]);
    assert_eq!(named(&[2]).warnings, Vec::<String>::new());
}

#[test]
fn what_the_kernel_ran_without_a_thread_is_none_of_the_thread_before() {
    let folder = folder("loose-idle");
    let mut pipe = begins(0);
    pipe.enters((7, 7, T + 10, 0));
    pipe.leaves((7, 7, T + 150, 0));
    pipe.enters((0, 0, T + 151, 0));
    pipe.leaves((0, 0, T + 250, 0));
    pipe.enters((7, 7, T + 251, 0));
    folder.add("perf.data-sideband-cpu0.pevent", &pipe.0);
    let path = folder.add("perf.data-aux-idx0.bin", &packets(&[(T + 100, USER), (T + 200, KERNEL), (T + 300, KERNEL)]));
    let code = RawImage { file: folder.add("code", &NOP_RET), offset: 0, size: None, address: KERNEL };
    let told = |options: Options| runs(&open(&path, &Options { symbols: vec![folder.0.clone()], ..options }).unwrap());
    let of_each = [(0, vec![2]), (7, vec![2, 2])];
    assert_eq!(told(Options { images: vec![code], ..Options::default() }), of_each);
    assert_eq!(told(kcore(&folder)), of_each);
    // Of a kernel without code a change of it says that it was traced.
    assert_eq!(told(Options::default()), [(7, vec![2, 0])]);
    pipe.event(20, 1, &[words(&[KERNEL]), vec![1, 0, 1, 0, 0xc3, 0x90], vec![0; 6]].concat(), (7, 7, T + 150, 0));
    folder.add("perf.data-sideband-cpu0.pevent", &pipe.0);
    assert_eq!(told(Options::default()), [(0, vec![0]), (7, vec![2])]);
}

#[test]
fn a_thread_that_was_on_another_core_meanwhile_comes_back_to_another_stay() {
    let folder = folder("loose-stays");
    let mut own = begins(0);
    own.enters((7, 7, T + 10, 0));
    own.leaves((7, 7, T + 150, 0));
    own.enters((7, 7, T + 190, 0));
    let mut other = Pipe(Vec::new());
    other.enters((7, 7, T + 160, 1));
    other.leaves((7, 7, T + 180, 1));
    folder.add("perf.data-sideband-cpu0.pevent", &own.0);
    folder.add("perf.data-sideband-cpu1.pevent", &other.0);
    let capture = beside(&folder, "perf.data-aux-idx0.bin", &packets(&[(T + 100, USER), (T + 200, USER)]));
    let stays = |offset_and_view: &(usize, u32)| capture.views[offset_and_view.1 as usize].stay;
    let of_stream: Vec<_> = capture.streams[0].epochs.iter().map(stays).collect();
    assert_eq!((of_stream.first(), of_stream.last()), (Some(&0), Some(&2)));
}

/// Records of threads of which each has its packets in a file of its own.
fn of_threads(threads: &[(u32, u64)]) -> Pipe {
    let mut pipe = begins(0);
    for &(tid, size) in threads {
        pipe.event(12, 0, &halves(&[7, tid]), (7, tid, T + 10, 0));
        if size > 0 {
            pipe.event(11, 0, &words(&[0, size, 0]), (7, tid, T + 300, 0));
        }
    }
    pipe
}

#[test]
fn packets_of_a_thread_are_those_of_which_the_kernel_handed_out_as_many_bytes() {
    let folder = folder("loose-threads");
    let data = packets(&[(T + 100, USER)]);
    folder.add("perf.data-sideband.pevent", &of_threads(&[(70, data.len() as u64), (71, 400)]).0);
    let capture = beside(&folder, "perf.data-aux-idx0.bin", &data);
    assert_eq!((capture.streams[0].of, runs(&capture)), (Of::Thread { pid: 7, tid: 70 }, vec![(70, vec![2])]));
    assert_eq!(capture.warnings, Vec::<String>::new());
}

#[test]
fn whose_the_packets_are_is_always_the_same_guess_and_told() {
    let folder = folder("loose-guess");
    folder.add("perf.data-sideband.pevent", &of_threads(&[(71, 0), (70, 0)]).0);
    let data = packets(&[(T + 100, USER)]);
    let capture = beside(&folder, "perf.data-aux-idx0.bin", &data);
    let warning = |count: u32, tid: u32| {
        format!(
            "the records are of {count} threads, and do not say whose the packets are: they are taken for those of thread {tid} \
             of process 7; give the records of one alone (--sideband)"
        )
    };
    assert_eq!((capture.streams[0].of, capture.warnings), (Of::Thread { pid: 7, tid: 70 }, vec![warning(2, 70)]));
    // Nothing says for which of them tracing began.
    let mut pipe = begins(0);
    for tid in (7..40).rev() {
        pipe.event(3, 0, &[halves(&[7, tid]), text("work")].concat(), (7, tid, T + 10, 0));
    }
    folder.add("perf.data-sideband.pevent", &pipe.0);
    for _ in 0..4 {
        let capture = beside(&folder, "perf.data-aux-idx0.bin", &data);
        assert_eq!((capture.streams[0].of, capture.warnings), (Of::Thread { pid: 7, tid: 7 }, vec![warning(33, 7)]));
    }
}

#[test]
fn what_the_kernel_could_not_write_is_told_where_packets_begin_anew() {
    let folder = folder("loose-lost");
    let (first, last) = (packets(&[(T + 100, USER)]), packets(&[(T + 200, USER)]));
    let filled = first.len().next_multiple_of(8);
    let data = [&first[..], &vec![0; filled - first.len()], &last].concat();
    assert!(filled > first.len() && last.starts_with(&PSB));
    let mut pipe = begins(0);
    pipe.event(12, 0, &halves(&[7, 7]), (7, 7, T + 10, 0));
    pipe.event(11, 0, &words(&[0, first.len() as u64, 1]), (7, 7, T + 150, 0));
    pipe.event(11, 0, &words(&[first.len() as u64, last.len() as u64, 0]), (7, 7, T + 250, 0));
    folder.add("perf.data-sideband.pevent", &pipe.0);
    let capture = beside(&folder, "perf.data-aux-idx0.bin", &data);
    assert_eq!(capture.streams[0].lost, [filled]);
    let warning = format!("perf.data-aux-idx0.bin: packets were lost at 1 places: {filled:#x}");
    assert_eq!((runs(&capture), capture.warnings), (vec![(7, vec![2, 2])], vec![warning]));
}

//! What records of the kernel make of the code and the threads of a stream.

use super::mapped::COMPLETED;
use crate::perf::recording::{
    halves, kcore, named, program, runs, text, words, Folder, Id, Pipe, KERNEL, NOP_RET, TWO_NOPS_RET, USER,
};
use crate::{pieces, Options, Stream, Switch};
use pt_flow::Config;
use pt_packet::{writer::write, Compression, Ip, Packet};
use std::process::Command;

#[test]
fn a_text_poke_changes_the_kernel_from_its_time_on() {
    let folder = Folder::new("poke");
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    pipe.event(20, 1, &[words(&[KERNEL]), vec![1, 0, 1, 0, 0x90, 0xc3], vec![0; 6]].concat(), (7, 7, 150, 0));
    pipe.ran(0, &[(100, KERNEL), (200, KERNEL)]);
    assert_eq!(runs(&pipe.open(&folder, kcore(&folder))), [(7, vec![2, 1])]);
}

#[test]
fn what_a_text_poke_replaced_is_what_ran_before_whenever_the_kernel_was_copied() {
    let folder = Folder::new("poked");
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    // The copy of the kernel has two instructions, of which the first came by this change.
    pipe.event(20, 1, &[words(&[KERNEL]), vec![1, 0, 1, 0, 0xc3, 0x90], vec![0; 6]].concat(), (7, 7, 150, 0));
    pipe.ran(0, &[(100, KERNEL), (200, KERNEL)]);
    assert_eq!(runs(&pipe.open(&folder, kcore(&folder))), [(7, vec![1, 2])]);
}

#[test]
fn kernel_and_modules_are_mapped_also_where_records_with_build_ids_tell_no_protection() {
    const MODULE: u64 = 0xffff_ffff_c000_0000;
    let folder = Folder::new("buildid-mmap");
    let mut pipe = Pipe::new();
    // MMAP2 of `perf record --buildid-mmap`: size of the build id and its bytes in place of device and inode.
    for (address, offset, name) in [(KERNEL, KERNEL, "[kernel.kallsyms]_text"), (MODULE, 0, "[net]")] {
        let place = [halves(&[u32::MAX, 0]), words(&[address, 0x1000, offset])].concat();
        let id = [&[20, 0, 0, 0][..], &[0xab; 20]].concat();
        pipe.event(10, 1 << 14 | 1, &[place, id, halves(&[0, 0]), text(name)].concat(), (u32::MAX, 0, 0, 0));
    }
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, KERNEL), (200, MODULE)]);
    let capture = pipe.open(&folder, Options::default());
    let none = format!("no vmlinux with build id {} is there: what the kernel ran cannot be followed", "ab".repeat(20));
    assert!(capture.warnings[0].ends_with(&none), "{:?}", capture.warnings);
    let capture = pipe.open(&folder, kcore(&folder));
    assert_eq!(runs(&capture), [(7, vec![2, 0])]);
    let why = capture.memory().why_no_code(0, MODULE);
    assert_eq!(why, format!("[net]: {} has no code there", folder.0.join("kcore").display()));
}

#[test]
fn records_that_say_nothing_of_code_or_threads_change_nothing() {
    let folder = Folder::new("namespaces");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
    pipe.enters((7, 7, 10, 0));
    let namespaces = [halves(&[7, 7]), words(&[2, 3, 0xeffffffe, 3, 0xefffffff])].concat();
    pipe.event(16, 0, &namespaces, (7, 7, 20, 0));
    // CGROUP, AUX_OUTPUT_HW_ID, CALLCHAIN_DEFERRED.
    pipe.event(19, 0, &[words(&[1]), text("/user.slice")].concat(), (7, 7, 20, 0));
    pipe.event(21, 0, &words(&[1]), (7, 7, 20, 0));
    pipe.event(22, 2, &words(&[1, 2, 0x1000, 0x1001]), (7, 7, 20, 0));
    pipe.ran(0, &[(100, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2])]);
}

#[test]
fn what_perf_says_of_its_own_errors_is_told() {
    let folder = Folder::new("errors");
    let mut pipe = Pipe::new();
    // AUXTRACE_ERROR: type, code, core, process, thread, format, address and, but for the first format, a time.
    for format in [0, 1] {
        let place = [halves(&[1, 5, 0, 7, 7, format]), words(&[0x1234]), words(&[99][..format as usize])].concat();
        pipe.record(72, 0, &[place, text("Failed to get instruction")].concat());
    }
    pipe.packets(0, 0, &[0; 8]);
    assert_eq!(pipe.open(&folder, Options::default()).warnings, ["perf says: Failed to get instruction"; 2]);
}

#[test]
fn records_of_kinds_that_nobody_knows_yet_are_counted() {
    let folder = Folder::new("unknown");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
    pipe.enters((7, 7, 10, 0));
    for kind in [63, 99, 63] {
        pipe.event(kind, 0, &words(&[1]), (7, 7, 20, 0));
    }
    pipe.ran(0, &[(100, USER)]);
    let capture = pipe.open(&folder, Options::default());
    let warning =
        |count, kind| format!("{count} records are of kind {kind}, which is not known here: what they say is left out");
    assert_eq!(capture.warnings, [warning(2, 63), warning(1, 99)]);
    assert_eq!(runs(&capture), [(7, vec![2])]);
}

#[test]
fn a_switch_is_found_behind_a_packet_that_an_erratum_spoiled() {
    let folder = Folder::new("erratum");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    // A Skylake server, which may spoil TMA packets (SKZ84).
    pipe.cpu("GenuineIntel,6,85,4");
    for (pid, name) in [(7, "/one"), (8, "/two")] {
        pipe.maps((pid, pid, 5, 0), USER, 4, 0x1000, name);
    }
    pipe.enters((7, 7, 10, 0));
    pipe.leaves((7, 7, 150, 0));
    pipe.enters((8, 8, 160, 0));
    let full = |payload| Ip { compression: Compression::Full, payload };
    let mut data = Vec::new();
    let mut ran = |tsc, spoiled: &[u8]| {
        for packet in [Packet::Tsc(tsc), Packet::TipPge(full(USER)), Packet::TipPgd(full(0x77))] {
            write(&mut data, packet);
        }
        data.extend(spoiled);
    };
    ran(100, &[0x02, 0x73, 1, 2, 0xff, 4, 0]);
    ran(200, &[]);
    let mut stream = Vec::new();
    [Packet::Psb, Packet::Psbend].into_iter().for_each(|packet| write(&mut stream, packet));
    pipe.packets(0, 0, &[stream, data].concat());
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![2]), (8, vec![3])]);
}

#[test]
fn a_recording_that_does_not_name_its_processor_is_told() {
    let folder = Folder::new("processor");
    let mut pipe = Pipe::of_unknown_cpu(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1]);
    let warnings = |pipe: &Pipe, cpu| pipe.open(&folder, Options { cpu, ..Options::default() }).warnings;
    // Without packets there are none to be read otherwise.
    assert!(!warnings(&pipe, None).iter().any(|warning| warning.contains("--cpu")));
    pipe.packets(0, 0, &[0; 8]);
    let what = "the recording does not name its processor, which is taken to have no errata: name it with --cpu, such as 6/85/4";
    assert_eq!(warnings(&pipe, None), [what]);
    assert_eq!(warnings(&pipe, Some((6, 85, 4))), Vec::<String>::new());
    pipe.cpu("AuthenticAMD,25,1,1");
    assert_eq!(warnings(&pipe, None), [what]);
}

#[test]
fn a_program_of_32_bits_has_a_vdso_of_its_own() {
    const LOW: u64 = 0xf7fc_5000;
    let folder = Folder::new("vdso32");
    let vdso = crate::vdso::own().unwrap();
    folder.add(vdso.build_id(), vdso.code(0));
    let mut pipe = Pipe::new();
    let id: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&vdso.build_id()[2 * at..][..2], 16).unwrap()).collect();
    for (name, id) in [("[vdso]", id), ("[vdso32]", vec![0xab; 20])] {
        pipe.record(67, 2, &[halves(&[u32::MAX]), id, vec![0; 4], text(name)].concat());
    }
    pipe.maps((7, 7, 5, 0), 0x7fff_f7fc_5000, 0x2000, 0, "[vdso]");
    pipe.maps((8, 8, 5, 0), LOW, 0x2000, 0, "[vdso]");
    pipe.enters((8, 8, 10, 0));
    pipe.ran(0, &[(100, LOW)]);
    let capture = pipe.open(&folder, Options::default());
    let why = format!("no file with build id {} is there", "ab".repeat(20));
    assert_eq!(capture.warnings, [format!("[vdso], mapped 1 times: {why}")]);
    let last = capture.streams[0].epochs.last().unwrap().1;
    assert_eq!(capture.memory().why_no_code(last, LOW), format!("[vdso]: {why}"));
}

#[test]
fn branches_that_a_library_was_told_as_it_was_loaded_are_told() {
    let folder = Folder::new("text-relocations");
    let source = folder.add("library.s", b".globl work\n.type work, @function\nwork: nop\ncall outside\nret\n");
    let mut cc = Command::new("cc");
    cc.args(["-m32", "-nostdlib", "-shared", "-Wl,-z,notext", "-Wa,--noexecstack"]);
    match cc.arg(source).arg("-o").arg(folder.0.join("library.so")).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: no C compiler: {error}"),
    }
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 0, 0), 0xf7d0_0000, 0x1000, 0x1000, "/library.so");
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, 0xf7d0_0000)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, [format!("/library.so, mapped 1 times: 1 branches of it are {COMPLETED}")]);
    assert_eq!(runs(&capture), [(7, vec![1])]);
}

#[test]
fn the_page_of_vsyscalls_is_no_file_that_is_missing() {
    let folder = Folder::new("vsyscall");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 0, 0), USER, 4, 0x1000, "/work");
    // perf tells of it for each process that it finds.
    pipe.maps((7, 7, 0, 0), 0xffff_ffff_ff60_0000, 0x1000, 0, "[vsyscall]");
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2])]);
}

#[test]
fn what_a_guest_maps_is_not_that_of_the_host_process_with_its_pid() {
    let folder = Folder::new("guest-pid");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    pipe.enters((7, 7, 10, 0));
    // `perf inject --guest-data` puts records of guests among those of the host, and says so in each (GUEST_USER).
    let place = [words(&[USER, 4, 0x1000]), vec![0; 24], halves(&[5, 2])].concat();
    pipe.event(10, 5, &[halves(&[7, 7]), place, text("/two")].concat(), (7, 7, 20, 0));
    pipe.event(15, 1 << 13 | 4, &halves(&[0, 0]), (7, 7, 30, 0));
    pipe.event(15, 4, &halves(&[0, 0]), (8, 8, 40, 0));
    pipe.ran(0, &[(100, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2])]);
}

#[test]
fn a_process_that_was_there_before_has_its_own_mappings_alone() {
    let folder = Folder::new("synthesized");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 0, 0), USER, 4, 0x1000, "/one");
    // perf tells of the processes that it finds with FORK_EXEC.
    pipe.event(7, 1 << 13, &[halves(&[8, 7, 8, 7]), words(&[0])].concat(), (7, 7, 0, 0));
    pipe.maps((8, 8, 0, 0), USER + 0x1000, 4, 0x1000, "/two");
    pipe.enters((8, 8, 10, 0));
    pipe.ran(0, &[(100, USER + 0x1000), (200, USER)]);
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(8, vec![3, 0])]);
}

#[test]
fn a_function_that_was_there_before_runs_where_a_copy_of_the_kernel_has_it() {
    let folder = Folder::new("trampoline");
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    let place = [halves(&[u32::MAX, 0]), words(&[KERNEL, 1 << 28, KERNEL])].concat();
    pipe.event(1, 1, &[place, text("[kernel.kallsyms]_text")].concat(), (u32::MAX, 0, 0, 0));
    // perf tells of what it finds in /proc/kallsyms (KSYMBOL): of a trampoline it has no code.
    let body = |address| [words(&[address]), halves(&[4, 1]), text("bpf_trampoline_6442464573")].concat();
    pipe.event(17, 1, &body(KERNEL), (0, 0, 0, 0));
    pipe.event(17, 1, &body(KERNEL + 0x1000), (0, 0, 0, 0));
    pipe.ran(0, &[(100, KERNEL), (200, KERNEL + 0x1000)]);
    let capture = pipe.open(&folder, kcore(&folder));
    assert_eq!(runs(&capture), [(7, vec![2, 0])]);
    let why = capture.memory().why_no_code(0, KERNEL + 0x1000);
    assert!(why.starts_with("bpf_trampoline_6442464573: "), "{why}");
}

#[test]
fn code_that_the_kernel_writes_for_a_function_that_it_told_of_has_its_name() {
    let folder = Folder::new("out-of-line");
    let trampoline = KERNEL + 0x2000;
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    // OUT_OF_LINE, then its code in place of nothing, which is patched later.
    let body = [words(&[trampoline]), halves(&[4]), vec![2, 0, 0, 0], text("ftrace_trampoline")].concat();
    pipe.event(17, 1, &body, (7, 7, 20, 0));
    pipe.event(20, 1, &[words(&[trampoline]), vec![0, 0, 4, 0], TWO_NOPS_RET.to_vec()].concat(), (7, 7, 21, 0));
    pipe.event(20, 1, &[words(&[trampoline + 1]), vec![1, 0, 1, 0, 0x90, 0xc3], vec![0; 6]].concat(), (7, 7, 150, 0));
    pipe.ran(0, &[(100, trampoline), (200, trampoline)]);
    let capture = pipe.open(&folder, kcore(&folder));
    assert_eq!(runs(&capture), [(7, vec![3, 2])]);
    assert_eq!(named(&capture, trampoline), "ftrace_trampoline");
    assert_eq!(named(&capture, trampoline + 1), "ftrace_trampoline");
}

#[test]
fn what_stood_in_the_kernel_is_told_by_the_first_change_on_whichever_core() {
    let folder = Folder::new("poked-cores");
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    let poke = |old, new| [words(&[KERNEL]), vec![1, 0, 1, 0, old, new], vec![0; 6]].concat();
    pipe.event(20, 1, &poke(0xc3, 0x90), (7, 7, 250, 0));
    // Of another core, whose records come behind.
    pipe.event(20, 1, &poke(0x90, 0xc3), (7, 7, 150, 1));
    pipe.ran(0, &[(100, KERNEL), (200, KERNEL), (300, KERNEL)]);
    assert_eq!(runs(&pipe.open(&folder, kcore(&folder))), [(7, vec![2, 1, 2])]);
}

#[test]
fn processes_whose_mappings_perf_did_not_read_are_told() {
    let folder = Folder::new("unread");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    let place = [words(&[USER, 4, 0x1000]), vec![0; 24], halves(&[5, 2])].concat();
    pipe.event(10, 1 << 12 | 2, &[halves(&[7, 7]), place, text("/work")].concat(), (7, 7, 0, 0));
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, USER)]);
    let warnings = pipe.open(&folder, Options::default()).warnings;
    let what = "perf gave up to read what 1 processes had mapped: record with a larger --proc-map-timeout";
    assert_eq!(warnings, [what]);
}

#[test]
fn hardware_traces_of_another_kind_are_no_packets() {
    let folder = Folder::new("spe");
    // Arm SPE.
    let mut pipe = Pipe::with(&[4, 8, 0]);
    pipe.packets(0, 0, &[0; 64]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.streams.len(), 0);
    assert_eq!(capture.warnings[0], "hardware trace of type 4 (Arm SPE) is no Intel PT: left out");
    let none = "perf recorded no Processor Trace (another hardware trace alone): use `perf record -e intel_pt//`";
    assert_eq!(capture.warnings[1], none);
}

#[test]
fn a_clock_that_perf_does_not_vouch_for_is_none() {
    // AUXTRACE_INFO knows of no conversion; TIME_CONV: shift, mult, zero, cycles, mask, cap_user_time_zero.
    const UNKNOWN: [u64; 11] = [1, 8, 0, 0, 0, 0, 0x400, 0x800, 3, 0, 1];
    let folder = Folder::new("time-conv");
    for (known, conversion) in [(0, None), (1, Some(1))] {
        let mut pipe = Pipe::with(&UNKNOWN);
        pipe.record(79, 0, &words(&[0, 1, 0, 0, 0, known]));
        pipe.packets(0, 0, &[0; 8]);
        let told = pipe.open(&folder, Options::default()).conversion;
        assert_eq!(told.map(|told| told.mult), conversion);
    }
}

#[test]
fn a_new_thread_has_the_name_of_whoever_made_it_until_it_has_its_own() {
    let folder = Folder::new("names");
    let mut pipe = Pipe::new();
    let comm =
        |pipe: &mut Pipe, tid, name, tsc| pipe.event(3, 0, &[halves(&[7, tid]), text(name)].concat(), (7, tid, tsc, 0));
    comm(&mut pipe, 7, "server", 5);
    for tid in [8, 9] {
        pipe.event(7, 0, &[halves(&[7, 7, tid, 7]), words(&[20])].concat(), (7, 7, 20, 0));
    }
    comm(&mut pipe, 9, "worker", 30);
    pipe.packets(0, 0, &[0; 8]);
    let names: Vec<_> = pipe.open(&folder, Options::default()).names.into_iter().collect();
    let called = |tid, name: &str| ((7, tid), name.to_owned());
    assert_eq!(names, [called(7, "server"), called(8, "server"), called(9, "worker")]);
}

#[test]
fn threads_change_and_mappings_hold_as_well_long_after_the_machine_was_started() {
    const WRAP: u64 = 1 << 56;
    let folder = Folder::new("uptime");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    // The records begin before the bits that packets have of the time wrap, or all stand behind that.
    for first in [2 * WRAP - 5, 2 * WRAP + 5] {
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, first, 0), USER, 4, 0x1000, "/one");
        pipe.maps((8, 8, first, 0), USER, 4, 0x1000, "/two");
        pipe.enters((7, 7, 2 * WRAP + 50, 0));
        pipe.leaves((7, 7, 2 * WRAP + 150, 0));
        pipe.enters((8, 8, 2 * WRAP + 160, 0));
        pipe.leaves((8, 8, 2 * WRAP + 250, 0));
        pipe.enters((7, 7, 2 * WRAP + 260, 0));
        pipe.ran(0, &[(100, USER), (200, USER), (300, USER)]);
        for timing in [None, Some(Config::default())] {
            let capture = pipe.open(&folder, Options { timing, ..Options::default() });
            assert_eq!(runs(&capture), [(7, vec![2, 2]), (8, vec![3])]);
            let piece = &pieces(&capture.streams[0], &capture.config, 1 << 20)[0];
            assert_eq!((piece.first_tsc, piece.last_tsc), (2 * WRAP + 1, 2 * WRAP + 301));
        }
    }
}

#[test]
fn a_core_changes_threads_at_the_switches() {
    let folder = Folder::new("switches");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    pipe.maps((8, 8, 5, 0), USER, 4, 0x1000, "/two");
    pipe.enters((7, 7, 50, 0));
    pipe.leaves((7, 7, 150, 0));
    pipe.enters((8, 8, 160, 0));
    pipe.leaves((8, 8, 250, 0));
    pipe.enters((7, 7, 260, 0));
    // Another core is no matter here.
    pipe.enters((9, 9, 270, 1));
    pipe.ran(0, &[(100, USER), (200, USER), (300, USER)]);
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![2, 2]), (8, vec![3])]);
}

/// ITRACE_START.
fn traced(pipe: &mut Pipe, id: Id) {
    pipe.event(12, 0, &halves(&[id.0, id.1]), id);
}

#[test]
fn a_thread_that_runs_as_tracing_begins_needs_no_switch() {
    let folder = Folder::new("traced");
    program(&folder, "one", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    traced(&mut pipe, (7, 9, 10, 0));
    pipe.ran(0, &[(100, USER), (200, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(9, vec![2, 2])]);
    let Stream { begins, switches, .. } = &capture.streams[0];
    let began = Switch { tsc: 10, pid: 7, tid: 9, enters: true };
    assert_eq!((*begins, &switches[..]), (Some(began), &[began][..]));
}

#[test]
fn a_thread_holds_from_the_beginning_where_packets_have_no_times() {
    let folder = Folder::new("timeless");
    program(&folder, "one", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    traced(&mut pipe, (7, 7, 10, 0));
    let full = |payload| Ip { compression: Compression::Full, payload };
    let mut data = Vec::new();
    for packet in [Packet::Psb, Packet::Psbend, Packet::TipPge(full(USER)), Packet::TipPgd(full(0x77))] {
        write(&mut data, packet);
    }
    pipe.packets(0, 0, &data);
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![2])]);
}

#[test]
fn without_times_a_thread_runs_the_program_that_it_became() {
    let folder = Folder::new("timeless-exec");
    program(&folder, "perf", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/perf");
    traced(&mut pipe, (7, 7, 10, 0));
    pipe.event(3, 1 << 13, &[halves(&[7, 7]), text("two")].concat(), (7, 7, 20, 0));
    pipe.maps((7, 7, 25, 0), USER, 4, 0x1000, "/two");
    exits(&mut pipe, (7, 7, 90, 0));
    let full = |payload| Ip { compression: Compression::Full, payload };
    let mut data = Vec::new();
    let run = [Packet::TipPge(full(USER)), Packet::TipPgd(full(0x77))];
    for packet in [Packet::Psb, Packet::Psbend].into_iter().chain(run).chain(run) {
        write(&mut data, packet);
    }
    pipe.packets(0, 0, &data);
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![3, 3])]);
}

#[test]
fn tracing_that_begins_for_several_threads_of_a_core_says_when_each_runs() {
    let folder = Folder::new("several");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    pipe.maps((8, 8, 5, 0), USER, 4, 0x1000, "/two");
    traced(&mut pipe, (7, 7, 10, 0));
    traced(&mut pipe, (8, 8, 150, 0));
    pipe.ran(0, &[(100, USER), (200, USER)]);
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![2]), (8, vec![3])]);
}

#[test]
fn threads_to_which_tracing_is_attached_run_where_they_are_and_where_switches_bring_them() {
    let folder = Folder::new("attached");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    pipe.maps((8, 8, 5, 0), USER, 4, 0x1000, "/two");
    // One never leaves its core, the other leaves and comes back.
    traced(&mut pipe, (7, 7, 10, 0));
    traced(&mut pipe, (8, 8, 10, 1));
    pipe.leaves((8, 8, 150, 1));
    pipe.enters((8, 8, 250, 1));
    pipe.ran(0, &[(100, USER), (200, USER)]);
    pipe.ran(1, &[(100, USER), (300, USER)]);
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![2, 2]), (8, vec![3, 3])]);
}

#[test]
fn tracing_that_begins_behind_a_switch_leaves_what_was_before_to_others() {
    let folder = Folder::new("later");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    pipe.maps((8, 8, 5, 0), USER, 4, 0x1000, "/two");
    pipe.leaves((8, 8, 150, 0));
    traced(&mut pipe, (7, 7, 155, 0));
    pipe.enters((7, 7, 160, 0));
    pipe.ran(0, &[(100, USER), (200, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(runs(&capture), [(7, vec![2]), (8, vec![3])]);
    assert_eq!(capture.streams[0].switches.len(), 2, "it arrives once");
}

#[test]
fn without_a_common_clock_a_core_of_one_process_is_all_of_its_first_thread() {
    const UNKNOWN: [u64; 11] = [1, 8, 0, 0, 0, 0, 0x400, 0x800, 3, 0, 1];
    let folder = Folder::new("clockless");
    program(&folder, "one", &NOP_RET);
    let mut pipe = Pipe::with(&UNKNOWN);
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    traced(&mut pipe, (7, 7, 10, 0));
    pipe.enters((7, 8, 20, 0));
    pipe.ran(0, &[(100, USER), (200, USER)]);
    let capture = pipe.open(&folder, Options::default());
    let warning = &capture.warnings[0];
    assert!(warning.contains("nothing is split by time; where") && warning.ends_with("with --per-thread"), "{warning}");
    assert_eq!(runs(&capture), [(7, vec![2, 2])]);
    // Of two processes nobody knows when which ran.
    pipe.enters((9, 9, 30, 0));
    assert_eq!(runs(&pipe.open(&folder, Options::default())), [(0, vec![0])]);
}

/// AUXTRACE_INFO of a recording without switch records, or where samples are in their place.
const UNTOLD: [u64; 11] = [1, 8, 0, 1, 0, 1, 0x400, 0x800, 0, 0, 1];
const SAMPLED: [u64; 11] = [1, 8, 0, 1, 0, 1, 0x400, 0x800, 1, 0, 1];

#[test]
fn samples_of_sched_switch_tell_who_ran_where_the_kernel_has_no_switch_records() {
    const TRACEPOINT: u64 = 314;
    let folder = Folder::new("tracepoint");
    program(&folder, "one", &NOP_RET);
    program(&folder, "two", &TWO_NOPS_RET);
    let format = "name: sched_switch\nID: 314\nformat:\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
                  \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\nprint fmt: \"\"";
    // As perf does it each event has ids, and each record the id of its event behind or, a sample, before all.
    let recording = |info: &[u64], tracing_data: &[u8]| {
        let mut pipe = Pipe(Pipe::new().0[..16].to_vec());
        let attribute = |kind: u32, config: u64, sample_type: u64, id: u64| {
            [halves(&[kind, 64]), words(&[config, 0, sample_type, 0, 1 << 18, 0, 0, id])].concat()
        };
        pipe.record(64, 0, &attribute(8, 0, 1 << 16 | 0x86, 77));
        pipe.record(64, 0, &attribute(2, TRACEPOINT, 1 << 16 | 0x486, 78));
        pipe.record(70, 0, &words(info));
        pipe.cpu("GenuineIntel,6,122,1");
        pipe.record(66, 0, &halves(&[tracing_data.len() as u32]));
        pipe.0.extend(tracing_data);
        pipe.0.resize(pipe.0.len() + tracing_data.len().next_multiple_of(8) - tracing_data.len(), 0);
        for (pid, file) in [(7, "/one"), (8, "/two")] {
            let place = [words(&[USER, 4, 0x1000]), vec![0; 24], halves(&[5, 2])].concat();
            let id = [halves(&[pid, pid]), words(&[5]), halves(&[0, 0]), words(&[77])].concat();
            pipe.record(10, 2, &[halves(&[pid, pid]), place, text(file), id].concat());
        }
        for (tsc, leaves, enters) in [(50, 0, 7), (150, 7, 89), (250, 89, 7)] {
            let mut raw = vec![0; 64];
            raw[24..28].copy_from_slice(&u32::to_le_bytes(leaves));
            raw[56..60].copy_from_slice(&u32::to_le_bytes(enters));
            let id = [words(&[78]), halves(&[leaves, leaves]), words(&[tsc]), halves(&[0, 0])].concat();
            pipe.record(9, 0, &[id, halves(&[68]), raw, vec![0; 4]].concat());
        }
        // FORK: that the thread 89 is one of process 8 stands behind.
        let id = [halves(&[8, 8]), words(&[6]), halves(&[0, 0]), words(&[77])].concat();
        pipe.record(7, 0, &[halves(&[8, 8, 89, 8]), words(&[6]), id].concat());
        pipe.ran(0, &[(100, USER), (200, USER), (300, USER)]);
        pipe
    };
    let capture = recording(&SAMPLED, format.as_bytes()).open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2, 2]), (89, vec![3])]);
    let capture = recording(&SAMPLED, b"").open(&folder, Options::default());
    let begin = "samples of sched:sched_switch tell who ran, but their format is not in the file: ";
    assert!(capture.warnings[0].starts_with(begin), "{:?}", capture.warnings);
}

#[test]
fn several_threads_without_anything_that_tells_who_ran_are_warned_of() {
    let folder = Folder::new("untold");
    program(&folder, "one", &NOP_RET);
    let mut pipe = Pipe::with(&UNTOLD);
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
    traced(&mut pipe, (7, 7, 10, 0));
    pipe.ran(0, &[(100, USER)]);
    assert_eq!(pipe.open(&folder, Options::default()).warnings, Vec::<String>::new(), "there is but one");
    pipe.event(7, 0, &[halves(&[7, 7, 9, 7]), words(&[20])].concat(), (7, 7, 20, 0));
    let capture = pipe.open(&folder, Options::default());
    let end = "record with times and without --no-switch-events, or given threads with --per-thread";
    assert!(capture.warnings[0].ends_with(end), "{:?}", capture.warnings);
    assert_eq!(runs(&capture), [(7, vec![2])]);
    // Who asks for the records by hand has them.
    pipe.enters((7, 7, 30, 0));
    assert_eq!(pipe.open(&folder, Options::default()).warnings, Vec::<String>::new());
}

/// What the kernel says of a thread that it has no pid for any more.
const ENDED: u32 = u32::MAX;

/// EXIT: pid, parent's pid, tid, parent's tid, time.
fn exits(pipe: &mut Pipe, id: Id) {
    pipe.event(4, 0, &[halves(&[id.0, 1, id.1, 1]), words(&[id.2])].concat(), id);
}

/// Process, thread and whether it arrives, of core 0.
fn told(pipe: &Pipe, folder: &Folder) -> Vec<(u64, u32, u32, bool)> {
    let capture = pipe.open(folder, Options::default());
    capture.streams[0].switches.iter().map(|one| (one.tsc, one.pid, one.tid, one.enters)).collect()
}

#[test]
fn a_thread_that_has_ended_leaves_without_a_name() {
    let folder = Folder::new("ended");
    program(&folder, "one", &NOP_RET);
    let pid_and_tid = [(ENDED, ENDED), (7, 9)];
    let [unnamed, named] = pid_and_tid.map(|(pid, tid)| {
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/one");
        pipe.leaves((0, 0, 90, 0));
        pipe.enters((7, 9, 91, 0));
        pipe.leaves((pid, tid, 150, 0));
        pipe.enters((0, 0, 151, 0));
        // It came and went between two clock packets.
        let full = |payload| Ip { compression: Compression::Full, payload };
        let pip = |cr3| Packet::Pip { cr3, non_root: false };
        let mut data = Vec::new();
        for packet in [
            Packet::Psb,
            Packet::Tsc(80),
            pip(0x10000),
            Packet::Psbend,
            Packet::TipPge(full(KERNEL)),
            pip(0x20000),
            Packet::TipPgd(full(1)),
            Packet::TipPge(full(USER)),
            Packet::TipPgd(full(1)),
            Packet::TipPge(full(KERNEL)),
            pip(0x10000),
            Packet::TipPgd(full(1)),
            Packet::Tsc(160),
        ] {
            write(&mut data, packet);
        }
        pipe.packets(0, 0, &data);
        (told(&pipe, &folder), runs(&pipe.open(&folder, kcore(&folder))))
    });
    assert_eq!(unnamed, named);
    assert_eq!(unnamed.0[2], (150, 7, 9, false));
    assert_eq!(unnamed.1, [(0, vec![2]), (9, vec![2, 2])]);
}

#[test]
fn a_number_that_another_process_takes_over_is_another_thread() {
    let folder = Folder::new("taken-over");
    program(&folder, "first", &NOP_RET);
    program(&folder, "second", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/first");
    pipe.event(3, 0, &[halves(&[7, 9]), text("worker")].concat(), (7, 9, 6, 0));
    pipe.enters((7, 9, 50, 0));
    // EXIT of the worker, and a process that has its number.
    pipe.event(4, 0, &[halves(&[7, 7, 9, 7]), words(&[150])].concat(), (7, 9, 150, 0));
    pipe.event(3, 1 << 13, &[halves(&[9, 9]), text("second")].concat(), (9, 9, 160, 0));
    pipe.maps((9, 9, 165, 0), USER, 4, 0x1000, "/second");
    pipe.enters((9, 9, 170, 0));
    pipe.ran(0, &[(100, USER), (200, USER), (300, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(runs(&capture), [(9, vec![2]), (9, vec![3, 3])]);
    assert_eq!([&*capture.names[&(7, 9)], &*capture.names[&(9, 9)]], ["worker", "second"]);
    let [first, second] = [7, 9].map(|pid| capture.views.iter().find(|view| view.pid == pid).map(|view| view.thread()));
    assert_ne!(first, second);
}

#[test]
fn whoever_arrives_without_a_name_is_the_idle_thread() {
    let folder = Folder::new("unnamed");
    let mut pipe = Pipe::new();
    pipe.leaves((ENDED, ENDED, 40, 0));
    pipe.enters((ENDED, ENDED, 50, 0));
    pipe.leaves((ENDED, ENDED, 60, 0));
    pipe.packets(0, 0, &[0; 8]);
    assert_eq!(told(&pipe, &folder), [(40, 0, 0, false), (50, 0, 0, true), (60, 0, 0, false)]);
}

#[test]
fn a_thread_that_ends_leaves_then_unless_its_switch_is_told() {
    let folder = Folder::new("exits");
    let mut pipe = Pipe::new();
    // Nobody tells that the first one leaves, or that the last one arrived.
    pipe.enters((7, 7, 10, 0));
    exits(&mut pipe, (7, 7, 20, 0));
    pipe.enters((8, 8, 50, 0));
    exits(&mut pipe, (8, 8, 60, 0));
    pipe.leaves((ENDED, ENDED, 70, 0));
    exits(&mut pipe, (9, 9, 80, 0));
    pipe.packets(0, 0, &[0; 8]);
    let wanted = [(10, 7, 7, true), (20, 7, 7, false), (50, 8, 8, true), (70, 8, 8, false), (80, 9, 9, false)];
    assert_eq!(told(&pipe, &folder), wanted);
}

#[test]
fn a_thread_that_becomes_another_program_has_the_tid_of_its_process() {
    let folder = Folder::new("exec");
    let mut pipe = Pipe::new();
    pipe.enters((7, 9, 10, 0));
    pipe.event(3, 1 << 13, &[halves(&[7, 7]), text("new")].concat(), (7, 7, 20, 0));
    pipe.leaves((7, 7, 30, 0));
    pipe.packets(0, 0, &[0; 8]);
    assert_eq!(told(&pipe, &folder), [(10, 7, 9, true), (20, 7, 7, true), (30, 7, 7, false)]);
}

#[test]
fn a_child_runs_what_its_parent_mapped_until_it_becomes_another_program() {
    let folder = Folder::new("fork");
    program(&folder, "parent", &NOP_RET);
    program(&folder, "child", &TWO_NOPS_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/parent");
    // FORK: pid, parent's pid, tid, parent's tid, time.
    pipe.event(7, 0, &[halves(&[8, 7, 8, 7]), words(&[20])].concat(), (7, 7, 20, 0));
    pipe.enters((8, 8, 50, 0));
    pipe.event(3, 1 << 13, &[halves(&[8, 8]), text("child")].concat(), (8, 8, 150, 0));
    pipe.maps((8, 8, 160, 0), USER, 4, 0x1000, "/child");
    // EXIT, and the pid is used again.
    pipe.event(4, 0, &[halves(&[8, 7, 8, 7]), words(&[350])].concat(), (8, 8, 350, 0));
    pipe.event(7, 0, &[halves(&[8, 7, 8, 7]), words(&[360])].concat(), (7, 7, 360, 0));
    pipe.enters((8, 8, 370, 0));
    pipe.ran(0, &[(100, USER), (200, USER), (300, USER), (400, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.names[&(8, 8)], "child");
    assert_eq!(runs(&capture), [(8, vec![2, 3, 3, 2])]);
}

#[test]
fn code_of_a_jitdump_runs_from_its_time_on_and_has_its_name() {
    let folder = Folder::new("jitdump");
    // The head of the file: magic, version, size, ELF machine, padding, pid, time, flags (times are TSC ticks).
    let mut dump = [halves(&[0x4a69_5444, 1, 40, 62, 0, 7]), words(&[0, 1])].concat();
    for (number, (tsc, code)) in [(20u64, NOP_RET), (150, TWO_NOPS_RET)].into_iter().enumerate() {
        let head = [halves(&[7, 7]), words(&[USER, USER, 4, number as u64]), b"made\0".to_vec()].concat();
        let size = 16 + head.len() + code.len();
        dump.extend([halves(&[0, size as u32]), words(&[tsc]), head, code.to_vec()].concat());
    }
    folder.add("jit-7.dump", &dump);
    for name in ["/tmp/jit-7.dump", "/tmp/jit-7.dump (deleted)"] {
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, 5, 0), 0x7f00_0000_0000, 0x1000, 0, name);
        pipe.enters((7, 7, 10, 0));
        pipe.ran(0, &[(100, USER), (200, USER)]);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(capture.warnings, Vec::<String>::new());
        assert_eq!(runs(&capture), [(7, vec![2, 3])], "{name}");
        assert_eq!(named(&capture, USER), "made");
    }
}

#[test]
fn code_of_a_jitdump_whose_clock_is_behind_outlives_the_exec_that_the_program_began_with() {
    let folder = Folder::new("behind");
    // Its times are none of the TSC; they would be 50 and 60.
    let mut dump = [halves(&[0x4a69_5444, 1, 40, 62, 0, 7]), words(&[0, 0])].concat();
    for (tsc, address, code) in [(20u64, USER, NOP_RET), (30, USER + 0x100, TWO_NOPS_RET)] {
        let head = [halves(&[7, 7]), words(&[address, address, 4, address]), b"made\0".to_vec()].concat();
        dump.extend([halves(&[0, 16 + head.len() as u32 + 4]), words(&[tsc]), head, code.to_vec()].concat());
    }
    folder.add("jit-7.dump", &dump);
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    pipe.event(3, 1 << 13, &[halves(&[7, 7]), text("node")].concat(), (7, 7, 40, 0));
    pipe.maps((7, 7, 45, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-7.dump");
    pipe.ran(0, &[(100, USER), (200, USER + 0x100)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(runs(&capture), [(7, vec![2, 3])]);
}

/// A jitdump by a clock beside that of perf, made and with code at these times: one function behind the other.
fn dump_by_a_clock(made: u64, code: &[u64]) -> Vec<u8> {
    let mut dump = [halves(&[0x4a69_5444, 1, 40, 62, 0, 7]), words(&[made, 0])].concat();
    for (number, &tsc) in (0..).zip(code) {
        let address = USER + 0x100 * number;
        let head = [halves(&[7, 7]), words(&[address, address, 4, number]), b"made\0".to_vec()].concat();
        dump.extend([halves(&[0, 16 + head.len() as u32 + 4]), words(&[tsc]), head, NOP_RET.to_vec()].concat());
    }
    dump
}

#[test]
fn a_child_has_the_code_of_its_parent_also_where_the_clock_of_the_jitdump_is_ahead() {
    let folder = Folder::new("ahead");
    // It is ahead by 1000: the second function comes when the child is there.
    folder.add("jit-7.dump", &dump_by_a_clock(1045, &[1050, 1070]));
    let mut pipe = Pipe::new();
    pipe.enters((7, 7, 10, 0));
    pipe.maps((7, 7, 45, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-7.dump");
    pipe.event(7, 0, &[halves(&[8, 7, 8, 7]), words(&[60])].concat(), (7, 7, 60, 0));
    pipe.leaves((7, 7, 150, 0));
    pipe.enters((8, 8, 160, 0));
    pipe.ran(0, &[(100, USER), (110, USER + 0x100), (200, USER), (300, USER + 0x100)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(capture.warnings, Vec::<String>::new());
    assert_eq!(runs(&capture), [(7, vec![2, 2]), (8, vec![2, 0])]);
}

#[test]
fn which_code_a_child_has_of_its_parent_is_a_guess_where_nothing_says_how_far_the_clock_of_the_jitdump_is() {
    let folder = Folder::new("unplaced");
    folder.add("jit-7.dump", &dump_by_a_clock(40, &[50, 1070]));
    let told = |mapped: u64, execs: bool| {
        let mut pipe = Pipe::new();
        // What a process had mapped before perf began has no time.
        pipe.maps((7, 7, mapped, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-7.dump");
        pipe.enters((7, 7, 10, 0));
        pipe.event(7, 0, &[halves(&[8, 7, 8, 7]), words(&[60])].concat(), (7, 7, 60, 0));
        if execs {
            pipe.event(3, 1 << 13, &[halves(&[8, 8]), text("other")].concat(), (8, 8, 61, 0));
        }
        pipe.ran(0, &[(100, USER)]);
        pipe.open(&folder, Options::default()).warnings
    };
    let what = "/tmp/jit-7.dump: which of its code process 8 had when process 7 forked is a guess, as ";
    assert!(matches!(&told(0, false)[..], [one] if one.starts_with(what)), "{:?}", told(0, false));
    assert_eq!([told(0, true), told(45, false)], [Vec::<String>::new(), Vec::new()]);
}

#[test]
fn memory_that_is_made_executable_again_keeps_the_code_that_a_jitdump_told() {
    let folder = Folder::new("protected");
    let mut dump = [halves(&[0x4a69_5444, 1, 40, 62, 0, 7]), words(&[0, 1])].concat();
    for (number, (tsc, address)) in [(20, USER), (220, USER + 0x800)].into_iter().enumerate() {
        let head = [halves(&[7, 7]), words(&[address, address, 4, number as u64]), b"made\0".to_vec()].concat();
        dump.extend([halves(&[0, 16 + head.len() as u32 + 4]), words(&[tsc]), head, NOP_RET.to_vec()].concat());
    }
    folder.add("jit-7.dump", &dump);
    folder.add("perf-7.map", b"400000 10 old\n400f00 10 other\n");
    for name in ["//anon", "[anon:js-executable-memory]", "/memfd:doublemapper (deleted)"] {
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, 5, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-7.dump");
        pipe.enters((7, 7, 10, 0));
        // mprotect(2): the kernel tells of the mapping each time that it becomes executable.
        for tsc in [15, 150, 250] {
            pipe.maps((7, 7, tsc, 0), USER, 0x1000, 0, name);
        }
        // More of it, which was not told before.
        pipe.maps((7, 7, 350, 0), USER - 0x1000, 0x2000, 0, name);
        pipe.ran(0, &[(100, USER), (200, USER), (300, USER + 0x800), (400, USER)]);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(runs(&capture), [(7, vec![2, 2, 2, 2])], "{name}");
        assert_eq!(named(&capture, USER), "made", "{name}");
        assert_eq!(named(&capture, USER + 0xf08), "other+0x400f08", "{name}");
    }
}

#[test]
fn a_jitdump_is_that_of_the_first_process_that_maps_it() {
    let folder = Folder::new("owner");
    let head = [halves(&[7, 7]), words(&[USER, USER, 4, 1]), b"made\0".to_vec()].concat();
    let load = [halves(&[0, 16 + head.len() as u32 + 4]), words(&[20]), head, NOP_RET.to_vec()].concat();
    folder.add("jit-1.dump", &[halves(&[0x4a69_5444, 1, 40, 62, 0, 1]), words(&[0, 1]), load].concat());
    let mut pipe = Pipe::new();
    // In containers they are both 1.
    for pid in [7, 8] {
        pipe.maps((pid, pid, 5, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-1.dump");
    }
    pipe.enters((8, 8, 10, 0));
    pipe.leaves((8, 8, 150, 0));
    pipe.enters((7, 7, 160, 0));
    pipe.ran(0, &[(200, USER), (300, USER)]);
    let capture = pipe.open(&folder, Options::default());
    let what = "it is taken for that of process 7, others have another of this name";
    assert_eq!(capture.warnings, [format!("/tmp/jit-1.dump, mapped 1 times: {what}")]);
    assert_eq!(runs(&capture), [(7, vec![2, 2])]);
}

#[test]
fn a_program_that_takes_the_place_of_written_code_runs_there() {
    let folder = Folder::new("replaced");
    program(&folder, "two", &TWO_NOPS_RET);
    let head = [halves(&[7, 7]), words(&[USER, USER, 4, 1]), b"made\0".to_vec()].concat();
    let load = [halves(&[0, 16 + head.len() as u32 + 4]), words(&[20]), head, NOP_RET.to_vec()].concat();
    folder.add("jit-7.dump", &[halves(&[0x4a69_5444, 1, 40, 62, 0, 7]), words(&[0, 1]), load].concat());
    let mut pipe = Pipe::new();
    // The dump is mapped twice, and read once.
    pipe.maps((7, 7, 5, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-7.dump");
    pipe.maps((7, 7, 6, 0), 0x7f00_0000_0000, 0x1000, 0, "/tmp/jit-7.dump");
    pipe.enters((7, 7, 10, 0));
    pipe.maps((7, 7, 15, 0), USER, 0x1000, 0, "//anon");
    pipe.maps((7, 7, 150, 0), USER, 4, 0x1000, "/two");
    pipe.maps((7, 7, 250, 0), USER, 0x1000, 0, "//anon");
    pipe.ran(0, &[(100, USER), (200, USER), (300, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!(runs(&capture), [(7, vec![2, 3, 0])]);
}

#[test]
fn a_perf_map_names_what_has_no_code() {
    let folder = Folder::new("map");
    folder.add("perf-7.map", b"400000 10 LazyCompile:work app.js:1\n400010 20 other\n");
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 0x1000, 0, "//anon");
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, USER + 0x18)]);
    let capture = pipe.open(&folder, Options::default());
    let view = capture.views.iter().position(|view| view.tid == 7).unwrap() as u32;
    assert_eq!(
        capture.memory().why_no_code(view, USER + 0x18),
        "other: perf-7.map names code that was written at run time: only a jitdump file has its bytes"
    );
    assert_eq!(named(&capture, USER + 8), "LazyCompile:work app.js:1+0x400008");
    assert_eq!(named(&capture, USER + 0x18), "other+0x400018");
}

#[test]
fn a_perf_map_names_memory_without_a_file_whatever_it_is_called() {
    let folder = Folder::new("unnamed-maps");
    folder.add("perf-7.map", b"400000 10 work\n");
    let names = [
        "[anon:v8]",
        "[anon_shmem:code]",
        "[heap]",
        "/anon_hugepage (deleted)",
        "/dev/zero (deleted)",
        "/SYSV00000000",
    ];
    for name in names {
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, 5, 0), USER, 0x1000, 0, name);
        pipe.enters((7, 7, 10, 0));
        pipe.ran(0, &[(100, USER)]);
        let capture = pipe.open(&folder, Options::default());
        assert_eq!(capture.warnings, Vec::<String>::new(), "{name}: no file is missing");
        assert_eq!(named(&capture, USER + 8), "work+0x400008", "{name}");
    }
    // Programs run from memory files too: that one is missing is said.
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 0x1000, 0, "/memfd:doublemapper (deleted)");
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(100, USER)]);
    let capture = pipe.open(&folder, Options::default());
    assert_eq!((capture.warnings.len(), named(&capture, USER + 8)), (1, "work+0x400008".to_owned()));
}

#[test]
fn what_a_virtual_machine_runs_is_not_taken_for_what_its_host_has_there() {
    let folder = Folder::new("guest");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
    pipe.enters((7, 7, 10, 0));
    let full = |payload| Ip { compression: Compression::Full, payload };
    let pip = |non_root| Packet::Pip { cr3: 0x5000, non_root };
    let mut data = Vec::new();
    for packet in [
        &[Packet::Psb, Packet::Tsc(1), Packet::Psbend, Packet::Tsc(100), Packet::TipPge(full(KERNEL))][..],
        // The host's kernel enters the machine, whose program stands where one of the host does. It is left by an interrupt.
        &[pip(true), Packet::Tip(full(USER)), Packet::Tip(full(KERNEL))],
        &[Packet::Fup(full(USER)), pip(false), Packet::Tip(full(KERNEL))],
        &[Packet::Tip(full(USER)), Packet::TipPgd(full(0x77))],
    ]
    .concat()
    {
        write(&mut data, packet);
    }
    pipe.packets(0, 0, &data);
    let capture = pipe.open(&folder, kcore(&folder));
    assert!(capture.warnings[0].ends_with("virtual machines ran 1 times: what ran in them is not in the recording"));
    let told = runs(&capture);
    let ran: Vec<_> = told.iter().map(|(tid, runs)| (*tid, runs.iter().sum::<u32>())).filter(|ran| ran.1 > 0).collect();
    // What called the machine and what it was left for, and the program of the host that this returned to.
    assert_eq!(ran, [(7, 2 + 2 + 2)]);
    let guest = capture.views.iter().position(|view| view.tid == 0 && view.kernel == u32::MAX).unwrap() as u32;
    assert_eq!(capture.memory().why_no_code(guest, USER), "a virtual machine ran");
}

#[test]
fn where_threads_change_is_not_looked_for_where_nobody_asks() {
    let folder = Folder::new("packets");
    program(&folder, "work", &NOP_RET);
    let mut pipe = Pipe::new();
    pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
    pipe.enters((7, 7, 10, 0));
    pipe.ran(0, &[(20, USER)]);
    let of_all = pipe.open(&folder, Options::default());
    let of_packets = pipe.open(&folder, Options { packets_only: true, ..Options::default() });
    assert_eq!(*of_packets.streams[0].data, *of_all.streams[0].data);
    assert_eq!((of_packets.views.len(), of_packets.streams[0].epochs.len()), (0, 0));
}

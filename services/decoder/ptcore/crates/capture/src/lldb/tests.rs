use super::*;
use crate::elf;
use crate::perf::record::kind;
use pt_flow::CodeMemory;
use pt_packet::{writer, Compression, Ip, Packet};

#[test]
fn a_bundle_leads_to_no_file_that_holds_something_else_and_lacks_what_is_gone() {
    let home = std::env::temp_dir().join(format!("pt-capture-bundle-{}", std::process::id()));
    let folder = home.join("bundle");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(home.join("secret"), "root:$6$secret:1:0").unwrap();
    std::fs::write(home.join("packets"), pt_packet::PSB).unwrap();
    std::os::unix::fs::symlink(home.join("secret"), folder.join("linked")).unwrap();
    let gone = r#"{"file": "gone", "systemPath": "/gone/program", "loadAddress": 4096}"#;
    let opened = |cores: &str, trace: &str| {
        let text = format!(
            r#"{{"type": "intel-pt", "cpuInfo": {{"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4}},
            "tscPerfZeroConversion": {{"timeMult": 1, "timeShift": 0, "timeZero": "0"}}, "cpus": [{cores}],
            "processes": [{{"pid": 1, "modules": [{gone}], "threads": [{{"tid": 1, "iptTrace": "{trace}"}}]}}]}}"#
        );
        read(&folder.join("trace.json"), text.as_bytes(), &Options::default())
    };
    let secret = home.join("secret");
    for named in ["../secret", "linked", secret.to_str().unwrap()] {
        let refused = opened("", named).map(drop).unwrap_err().to_string();
        assert!(
            refused.ends_with("is outside of the bundle's folder, and holds no Processor Trace packets"),
            "{refused}"
        );
        let core = format!(r#"{{"id": 0, "contextSwitchTrace": "{named}", "iptTrace": "../packets"}}"#);
        let refused = opened(&core, "../packets").map(drop).unwrap_err().to_string();
        assert!(refused.ends_with("is outside of the bundle's folder, and holds no records of perf"), "{refused}");
    }
    let missing = opened("", "gone").map(drop).unwrap_err().to_string();
    assert!(missing.contains("trace.json: processes[0].threads[0].iptTrace: ") && missing.contains("gone: No such"));
    let capture = opened("", "../packets").unwrap();
    let told = "the bundle names files outside of its folder, which were read (1): ../packets";
    let missing = "/gone/program at 0x1000: the file is not there";
    assert_eq!(capture.warnings, [missing, told]);
    std::fs::remove_dir_all(home).unwrap();
}

fn record(out: bool, pid: i32, tid: i32, time: u64) -> Vec<u8> {
    switch(out, [pid, tid], [0, 0], time)
}

/// `other`: who comes, or left in front of it.
fn switch(out: bool, who: [i32; 2], other: [i32; 2], time: u64) -> Vec<u8> {
    let misc = if out { 1u16 << 13 } else { 0 };
    let who = [other, who].concat().into_iter().flat_map(i32::to_le_bytes).collect::<Vec<_>>();
    [&kind::SWITCH_CPU_WIDE.to_le_bytes()[..], &misc.to_le_bytes(), &[32, 0], &who, &time.to_le_bytes()].concat()
}

#[test]
fn a_thread_that_has_ended_leaves_without_a_name() {
    let records = [record(false, 7, 9, 10), record(true, -1, -1, 20), record(false, -1, -1, 30)].concat();
    let clock = Conversion { mult: 1, shift: 0, zero: 0 };
    let switches = Switches::read(Path::new("45"), &records, clock, 45, &mut Impossible::default()).unwrap();
    let told: Vec<_> =
        switches.on_core.switches().1.iter().map(|one| (one.tsc, one.pid, one.tid, one.enters)).collect();
    assert_eq!(told, [(10, 7, 9, true), (20, 7, 9, false), (30, 0, 0, true)]);
}

/// A folder as LLDB writes it, with one thread's packets and a program, and the description of it.
struct Saved {
    home: PathBuf,
    folder: PathBuf,
}

const MODULE: u64 = 0x40_0000;
const KERNEL_CODE: u64 = 0xffff_ffff_8100_0000;

impl Saved {
    fn new(name: &str) -> Saved {
        let home = std::env::temp_dir().join(format!("pt-capture-lldb-{name}-{}", std::process::id()));
        let folder = home.join("bundle");
        std::fs::create_dir_all(folder.join("modules/usr/bin")).unwrap();
        std::fs::create_dir_all(folder.join("modules/boot")).unwrap();
        let program = |base| elf::file(base, &[0x90, 0xc3], &[]);
        std::fs::write(folder.join("modules/usr/bin/work"), program(MODULE)).unwrap();
        std::fs::write(folder.join("modules/boot/vmlinux"), program(KERNEL_CODE)).unwrap();
        std::fs::write(folder.join("9.trace"), pt_packet::PSB).unwrap();
        std::fs::write(folder.join("0.switches"), record(false, 7, 9, 10)).unwrap();
        Saved { home, folder }
    }

    fn open(&self, text: &str) -> Capture {
        read(&self.folder.join("trace.json"), text.as_bytes(), &Options::default()).unwrap()
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.home).unwrap();
    }
}

#[test]
fn a_bundle_of_lldb_14_is_read_where_it_was_moved_to() {
    let saved = Saved::new("14");
    let capture = saved.open(
        r#"{"trace": {"type": "intel-pt", "cpuInfo": {"vendor": "intel", "family": 6, "model": 85, "stepping": 4}},
        "processes": [{"pid": 7, "triple": "x86_64-unknown-linux-gnu",
            "threads": [{"tid": 9, "traceFile": "/home/other/bundle/9.trace"},
                {"tid": 10, "traceFile": "/home/other/bundle/10.trace"}],
            "modules": [{"file": "/home/other/bundle/modules/usr/bin/work", "systemPath": "/usr/bin/work",
                "loadAddress": "0x400000"}]}]}"#,
    );
    assert_eq!(capture.warnings, ["/home/other/bundle/10.trace is not there: its thread was not traced"]);
    assert_eq!(capture.cpu, Some((6, 85, 4)));
    assert_eq!(capture.streams.iter().map(|stream| stream.of).collect::<Vec<_>>(), [Of::Thread { pid: 7, tid: 9 }]);
    let code = capture.memory().read(capture.streams[0].epochs[0].1, MODULE).map(|code| code.bytes[..2].to_vec());
    assert_eq!(code, Some(vec![0x90, 0xc3]));
}

#[test]
fn the_kernel_of_a_bundle_is_its_copy_among_the_modules() {
    let saved = Saved::new("kernel");
    let capture = saved.open(
        r#"{"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4},
        "tscPerfZeroConversion": {"timeMult": 1, "timeShift": 0, "timeZero": "0"},
        "cpus": [{"id": 0, "contextSwitchTrace": "0.switches", "iptTrace": "9.trace"}],
        "kernel": {"file": "/boot/vmlinux", "loadAddress": "0xffffffff81000000"}}"#,
    );
    assert_eq!(capture.warnings, Vec::<String>::new());
    let code = capture.memory().read(capture.streams[0].epochs[0].1, KERNEL_CODE).map(|code| code.bytes[..2].to_vec());
    assert_eq!(code, Some(vec![0x90, 0xc3]));
}

#[test]
fn a_file_is_loaded_from_its_first_program_header_on() {
    let saved = Saved::new("first");
    let parts = [(KERNEL_CODE, &[0x90, 0xc3][..]), (KERNEL_CODE + 0x100_0000, &[1; 16]), (0, &[2; 16])];
    std::fs::write(saved.folder.join("modules/boot/vmlinux"), elf::file_of(&parts)).unwrap();
    for (place, moved) in [("", 0), (r#", "loadAddress": "0xffffffff8f000000""#, 0xe00_0000)] {
        let capture = saved.open(&format!(
            r#"{{"type": "intel-pt", "cpuInfo": {{"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4}},
            "tscPerfZeroConversion": {{"timeMult": 1, "timeShift": 0, "timeZero": "0"}},
            "cpus": [{{"id": 0, "contextSwitchTrace": "0.switches", "iptTrace": "9.trace"}}],
            "kernel": {{"file": "/boot/vmlinux"{place}}}}}"#
        ));
        let (memory, view) = (capture.memory(), capture.streams[0].epochs[0].1);
        let code = memory.read(view, KERNEL_CODE + moved).map(|code| code.bytes[..2].to_vec());
        assert_eq!(code, Some(vec![0x90, 0xc3]), "{:?}", capture.warnings);
    }
}

#[test]
fn a_core_whose_files_are_damaged_costs_no_other() {
    let saved = Saved::new("damaged");
    let (records, gone) = (saved.folder.join("1.switches"), saved.folder.join("4.trace"));
    std::fs::write(&records, [0; 5]).unwrap();
    std::fs::write(saved.folder.join("4.switches"), record(false, 8, 8, 10)).unwrap();
    let core = |id: u32, switches: &str, trace: &str| {
        format!(r#"{{"id": {id}, "contextSwitchTrace": "{switches}", "iptTrace": "{trace}"}}"#)
    };
    let open = |cores: &[String]| {
        let text = format!(
            r#"{{"type": "intel-pt", "cpuInfo": {{"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4}},
            "tscPerfZeroConversion": {{"timeMult": 1, "timeShift": 0, "timeZero": "0"}}, "cpus": [{}]}}"#,
            cores.join(", ")
        );
        read(&saved.folder.join("trace.json"), text.as_bytes(), &Options::default())
    };
    let bad = [core(1, "1.switches", "9.trace"), core(2, "2.switches", "9.trace"), core(4, "4.switches", "4.trace")];
    let told = [
        format!("{}: at offset 0x0: the head of a record: 2 bytes are wanted, 1 are there", records.display()),
        format!("{}: cpus[2].contextSwitchTrace: ", saved.folder.join("trace.json").display()),
        format!("{}: cpus[3].iptTrace: {}: ", saved.folder.join("trace.json").display(), gone.display()),
    ];
    let capture = open(&[&[core(0, "0.switches", "9.trace")][..], &bad].concat()).unwrap();
    assert_eq!(capture.streams.iter().map(|stream| stream.of).collect::<Vec<_>>(), [Of::Core(0)]);
    assert_eq!(capture.warnings.len(), told.len(), "{:?}", capture.warnings);
    for (warning, told) in capture.warnings.iter().zip(&told) {
        assert!(warning.starts_with(told) && warning.ends_with(": these packets are left out"), "{warning}");
    }
    let Err(error) = open(&bad) else { panic!("nothing is left") };
    assert_eq!(error.to_string(), told[0]);
}

/// A bundle of process 7, whose only core has these files.
fn of_core(saved: &Saved, switches: &[u8], trace: &[u8]) -> Capture {
    std::fs::write(saved.folder.join("0.switches"), switches).unwrap();
    std::fs::write(saved.folder.join("9.trace"), trace).unwrap();
    saved.open(
        r#"{"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4},
        "tscPerfZeroConversion": {"timeMult": 1, "timeShift": 0, "timeZero": "0"},
        "cpus": [{"id": 0, "contextSwitchTrace": "0.switches", "iptTrace": "9.trace"}],
        "processes": [{"pid": 7, "threads": [{"tid": 9}], "modules": [{"file": "modules/usr/bin/work",
            "systemPath": "/usr/bin/work", "loadAddress": "0x400000"}]}]}"#,
    )
}

/// Runs of user code of 50 ticks, each with its time and first address, and where they begin.
fn ran(runs: &[(u64, u64)]) -> (Vec<u8>, Vec<usize>) {
    let (mut trace, mut begins) = (Vec::new(), Vec::new());
    [Packet::Psb, Packet::Psbend].into_iter().for_each(|packet| writer::write(&mut trace, packet));
    for &(tsc, payload) in runs {
        writer::write(&mut trace, Packet::Tsc(tsc));
        begins.push(trace.len());
        let enables = Packet::TipPge(Ip { compression: Compression::Full, payload });
        let run = [enables, Packet::Tsc(tsc + 50), Packet::TipPgd(Ip::SUPPRESSED)];
        run.into_iter().for_each(|packet| writer::write(&mut trace, packet));
    }
    (trace, begins)
}

/// Whose run is which.
fn whose(capture: &Capture, begins: &[usize]) -> Vec<(u32, u32)> {
    let epochs = &capture.streams[0].epochs;
    let view = |at: usize| capture.views[epochs[epochs.partition_point(|&(from, _)| from <= at) - 1].1 as usize];
    begins.iter().map(|&at| (view(at).pid, view(at).tid)).collect()
}

#[test]
fn what_ran_while_the_records_tell_of_nobody_is_nobodys() {
    let saved = Saved::new("compact");
    let (ours, other, idle) = ([7, 9], [99, 99], [0, 0]);
    let (trace, begins) = ran(&[(110, MODULE), (210, 0x1000), (310, 0x2000), (410, 0x1000), (510, MODULE)]);
    let all = |comes: [i32; 2]| {
        let first = [switch(false, ours, idle, 100), switch(true, ours, comes, 200)].concat();
        let last = [switch(false, ours, comes, 500), switch(true, ours, idle, 600)].concat();
        (first, last)
    };
    let (nobody, thread) = ((0, 0), (7, 9));
    for comes in [other, idle] {
        let (first, last) = all(comes);
        let capture = of_core(&saved, &[first, last].concat(), &trace);
        assert_eq!(whose(&capture, &begins), [thread, nobody, nobody, nobody, thread], "{:?}", capture.warnings);
        assert_eq!(capture.warnings, Vec::<String>::new());
    }
    let (first, last) = all(other);
    let between = [switch(false, other, ours, 201), switch(true, other, ours, 499)].concat();
    let capture = of_core(&saved, &[first, between, last].concat(), &trace);
    assert_eq!(whose(&capture, &begins), [thread, (99, 99), (99, 99), (99, 99), thread]);
}

#[test]
fn a_thread_that_left_unseen_was_there_until_the_next_one_came() {
    let saved = Saved::new("unseen");
    let (trace, begins) = ran(&[(110, MODULE), (210, 0x1000), (310, MODULE)]);
    let told = |left: [i32; 2]| {
        let records = [switch(false, [7, 9], [0, 0], 100), switch(false, [7, 8], left, 300)].concat();
        let capture = of_core(&saved, &records, &trace);
        assert_eq!(whose(&capture, &begins), [(7, 9), (7, 9), (7, 8)]);
        capture.warnings
    };
    assert_eq!(told([-1, -1]), Vec::<String>::new());
    let [warning] = &told([99, 99])[..] else { panic!("one warning") };
    assert!(warning.contains("thread 8 comes, and thread 9 has not left"), "{warning}");
}

#[test]
fn records_of_switches_that_were_lost_are_told() {
    let saved = Saved::new("lost");
    let lost = |kind: u32, body: &[u64]| {
        let body: Vec<_> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
        [&kind.to_le_bytes()[..], &[0, 0], &(8 + body.len() as u16).to_le_bytes(), &body].concat()
    };
    let (first, second) = (lost(kind::LOST, &[0, 4, 9 << 32 | 7, 550]), lost(kind::LOST_SAMPLES, &[2, 0, 580]));
    let records = [record(false, 7, 9, 100), first, second, record(true, 7, 9, 600)].concat();
    let doubt = "what ran there may be told of another thread";
    let told = format!("core 0: 6 records of switches were lost, the first in front of TSC 550: {doubt}");
    assert_eq!(of_core(&saved, &records, &pt_packet::PSB).warnings, [told]);
}

#[test]
fn records_whose_times_go_back_are_followed_and_told_where_they_contradict_others() {
    let saved = Saved::new("times");
    let records = [record(false, 7, 9, 1 << 40), record(true, 7, 9, 20), record(false, 8, 8, 30)].concat();
    let capture = of_core(&saved, &records, &pt_packet::PSB);
    assert_eq!(capture.streams[0].data[..], pt_packet::PSB);
    assert_eq!(capture.warnings.len(), 1, "{:?}", capture.warnings);
    assert!(capture.warnings[0].contains("records of switches contradict others, the first on core 0"));
}

#[test]
fn files_that_are_empty_are_told_where_something_ran() {
    let saved = Saved::new("empty");
    let told = |switches: &[u8], trace: &[u8]| of_core(&saved, switches, trace).warnings;
    let (ours, others) = (record(false, 7, 9, 10), record(false, 8, 8, 10));
    assert!(told(&ours, &pt_packet::PSB).is_empty() && told(&others, &[]).is_empty());
    let [warning] = &told(&[], &pt_packet::PSB)[..] else { panic!("one warning") };
    assert!(warning.ends_with("tells of no switch: nobody knows whose the packets of core 0 are"), "{warning}");
    let [warning] = &told(&ours, &[])[..] else { panic!("one warning") };
    assert!(warning.contains("cpus[0].iptTrace: ") && warning.ends_with("9.trace is empty"), "{warning}");
}

#[test]
fn a_module_that_is_cut_off_is_told() {
    let saved = Saved::new("cut");
    let path = saved.folder.join("modules/usr/bin/work");
    let whole = elf::file(MODULE, &[0x90; 64], &[]);
    let end = whole.windows(2).position(|two| two == [0x90; 2]).unwrap() + 8;
    std::fs::write(&path, &whole[..end]).unwrap();
    let capture = of_core(&saved, &record(false, 7, 9, 10), &pt_packet::PSB);
    let reason = format!("{} is cut off: of its code 8 of 64 bytes are there", path.display());
    assert!(capture.warnings.iter().any(|warning| warning.ends_with(&reason)), "{:?}", capture.warnings);
    let (memory, view) = (capture.memory(), capture.views.len() as u32 - 1);
    assert_eq!(memory.read(view, MODULE).map(|code| code.bytes.len()), Some(8));
    assert_eq!(memory.why_no_code(view, MODULE + 8), format!("/usr/bin/work: {reason}"));
}

#[test]
fn a_module_that_cannot_be_read_costs_its_own_code_only() {
    let saved = Saved::new("module");
    let capture = saved.open(
        r#"{"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4},
        "processes": [{"pid": 7, "threads": [{"tid": 9, "iptTrace": "9.trace"}],
            "modules": [{"file": "9.trace", "systemPath": "/usr/bin/other", "loadAddress": "0x600000"},
                {"file": "modules/usr/bin/work", "systemPath": "/usr/bin/work", "loadAddress": "0x400000"}]}]}"#,
    );
    let place = format!("{}: processes[0].modules[0]: ", saved.folder.join("trace.json").display());
    assert!(capture.warnings.len() == 1 && capture.warnings[0].starts_with(&place), "{:?}", capture.warnings);
    let code = capture.memory().read(capture.streams[0].epochs[0].1, MODULE).map(|code| code.bytes[..2].to_vec());
    assert_eq!(code, Some(vec![0x90, 0xc3]));
}

#[test]
fn a_module_that_names_no_file_is_looked_for_in_the_folder_and_not_outside() {
    let saved = Saved::new("nofile");
    let code = elf::file(MODULE, &[0x90, 0xc3], &[]);
    std::fs::write(saved.folder.join("near"), &code).unwrap();
    std::fs::write(saved.home.join("far"), &code).unwrap();
    std::os::unix::fs::symlink(saved.home.join("far"), saved.folder.join("linked")).unwrap();
    let found = |name: &str, id: &str| {
        let capture = saved.open(&format!(
            r#"{{"type": "intel-pt", "cpuInfo": {{"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4}},
            "processes": [{{"pid": 7, "threads": [{{"tid": 9, "iptTrace": "9.trace"}}],
                "modules": [{{"systemPath": "{name}", "loadAddress": "0x400000"{id}}}]}}]}}"#
        ));
        let there = capture.memory().read(capture.streams[0].epochs[0].1, MODULE).is_some();
        assert_eq!(capture.warnings.len(), usize::from(!there), "{:?}", capture.warnings);
        there
    };
    assert!(found("near", "") && found("modules/usr/bin/work", ""));
    assert!(!found("linked", "") && !found("../far", "") && !found("gone", ""));
    assert!(!found("near", r#", "uuid": "0123""#));
}

//! Sessions of permille's own archive.

use crate::support::{reference_data, Told};
use pt_capture::{open, Kind, Of, Options};
use pt_flow::Flow;
use pt_image::Symbols;
use ruzstd::encoding::{compress_to_vec, CompressionLevel};
use std::path::PathBuf;
use std::process::Command;

struct Store(PathBuf);

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store with one session: a real trace and its program, as the recorder would have left them.
fn store(name: &str, maps: &str) -> Option<Store> {
    let data = reference_data()?.join("pt/lldb/intelpt-trace");
    let store = Store(std::env::temp_dir().join(format!("pt-capture-{name}-{}", std::process::id())));
    let session = store.0.join("raw/s1");
    std::fs::create_dir_all(&session).unwrap();
    std::fs::create_dir_all(store.0.join("binaries")).unwrap();
    let packed = |path: &str| compress_to_vec(&std::fs::read(data.join(path)).unwrap()[..], CompressionLevel::Fastest);
    std::fs::write(session.join("segment-0.pt.zst"), packed("3842849.trace")).unwrap();
    std::fs::write(session.join("code.bin.zst"), compress_to_vec(&[0x90u8, 0xc3][..], CompressionLevel::Fastest))
        .unwrap();
    std::fs::write(store.0.join("binaries/b1"), packed("a.out")).unwrap();
    std::fs::write(session.join("maps.json"), maps).unwrap();
    let manifest = r#"{"version": 1, "session_id": "s1", "backend": "vpt",
        "pt": {"family": 6, "model": 79, "stepping": 1, "mtc_freq": 3, "tsc_ctc_ratio": [108, 1], "nominal_ratio": 27},
        "segments": [{"key": "raw/s1/segment-0.pt.zst", "pid": 7, "tid": 8, "thread_name": "main",
                      "epochs": [[0, 1], [4000, 2]]}],
        "maps": {"key": "raw/s1/maps.json"}, "code": {"key": "raw/s1/code.bin.zst"}}"#;
    std::fs::write(session.join("manifest.json"), manifest).unwrap();
    Some(store)
}

const MAPS: &str = r#"{"version": 1, "processes": [{"pid": 7, "changes": [
    {"epoch": 2, "event": "code", "address": 8192, "size_bytes": 2, "code_offset": 0},
    {"epoch": 1, "event": "map", "address": 4194304, "size_bytes": 1788, "offset": 0, "path": "/x/a.out",
     "binary": "binaries/b1"}]}]}"#;

#[test]
fn a_session_is_its_segments_with_the_images_of_their_epochs() {
    let Some(store) = store("session", MAPS) else { return };
    let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
    assert_eq!((capture.kind, capture.warnings.len(), capture.cpu), (Kind::Session, 0, Some((6, 79, 1))));
    assert_eq!((capture.config.mtc_freq, capture.config.tsc_ctc_ratio), (3, (108, 1)));
    let stream = &capture.streams[0];
    assert_eq!((stream.of, capture.names[&(7, 8)].as_str()), (Of::Thread { pid: 7, tid: 8 }, "main"));
    let epochs: Vec<_> = capture.views.iter().map(|view| view.epoch).collect();
    assert_eq!((&stream.epochs[..], &epochs[..]), (&[(0, 0), (4000, 1)][..], &[1, 2][..]));
    let (memory, mut told) = (capture.memory(), Told::default());
    Flow::new(&memory).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
    assert_eq!(told.instructions.len(), 21);
    let code = |view| pt_flow::CodeMemory::read(&memory, view, 8192).map(|code| code.bytes.len());
    assert_eq!((code(0), code(1)), (None, Some(2)));
}

#[test]
fn a_session_may_be_of_some_addresses_alone() {
    let Some(store) = store("filter", MAPS) else { return };
    let folder = store.0.join("raw/s1");
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let read = |value: &str| {
        let changed = manifest.replace("\"family\"", &format!("\"filter\": {value}, \"family\""));
        std::fs::write(folder.join("manifest.json"), changed).unwrap();
        open(&folder, &Options::default()).map(|capture| capture.config.filter.ranges)
    };
    assert_eq!(read("[]").unwrap(), [None; 4]);
    let high = u64::MAX;
    let ranges = [Some((16, 31)), Some((64, high)), None, None];
    assert_eq!(read(&format!("[[16, 31], [64, {high}]]")).unwrap(), ranges);
    assert!(read("[16]").unwrap_err().to_string().contains("pt.filter[0]"));
}

#[test]
fn a_session_may_be_without_conditional_branches() {
    let Some(store) = store("without-tnt", MAPS) else { return };
    let folder = store.0.join("raw/s1");
    let read = || open(&folder, &Options::default()).map(|capture| capture.config.without_tnt);
    assert!(matches!(read(), Ok(false)));
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let with = |value: &str| {
        let changed = manifest.replace("\"family\"", &format!("\"without_tnt\": {value}, \"family\""));
        std::fs::write(folder.join("manifest.json"), changed).unwrap();
    };
    with("true");
    assert!(matches!(read(), Ok(true)));
    with("1");
    assert!(read().unwrap_err().to_string().ends_with("pt.without_tnt: true or false is wanted, not 1"));
}

#[test]
fn keys_stay_inside_the_store_and_code_inside_its_file() {
    for (maps, wanted) in [
        (MAPS.replace("binaries/b1", "../../etc/passwd"), "../../etc/passwd is no key of an object"),
        (MAPS.replace("\"code_offset\": 0", "\"code_offset\": 1"), "2 bytes from 1 of the code file, which has 2"),
        (
            MAPS.replace("4194304", "\"x\""),
            "changes[1].address: a number, or a text that holds one is wanted, not \"x\"",
        ),
    ] {
        let Some(store) = store("bad-session", &maps) else { return };
        let Err(error) = open(&store.0.join("raw/s1"), &Options::default()) else { panic!("{wanted}") };
        assert!(error.to_string().ends_with(wanted), "{error}");
    }
}

#[test]
fn a_thread_s_segment_says_where_packets_are_missing_and_the_manifest_what_is_to_be_known() {
    let Some(store) = store("lost-offsets", MAPS) else { return };
    let manifest = store.0.join("raw/s1/manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let text = text.replace("\"epochs\"", "\"lost_offsets\": [120, 110, 120], \"epochs\"");
    std::fs::write(&manifest, text.replace("\"maps\"", "\"notes\": [\"it began late\"], \"maps\"")).unwrap();
    let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
    assert_eq!(
        (&capture.streams[0].lost[..], &capture.warnings[..]),
        (&[110, 120][..], &["it began late".to_owned()][..])
    );
}

#[test]
fn segments_of_one_object_are_the_stream_of_a_core() {
    let Some(store) = store("core-session", MAPS) else { return };
    let manifest = store.0.join("raw/s1/manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let (head, rest) = text.split_once("\"segments\": [").unwrap();
    let (_, tail) = rest.split_once("}],").unwrap();
    let common = r#""key": "raw/s1/segment-0.pt.zst", "core": 3, "pid": 7"#;
    let segments = format!(
        r#"{{{common}, "tid": 8, "thread_name": "main", "turns": [[0, 7, 8, 1, 0], [100, 7, 9, 2, 0, 3]]}},
           {{{common}, "tid": 9, "thread_name": "other", "lost_offsets": [120, 110]}}"#
    );
    std::fs::write(&manifest, format!("{head}\"segments\": [{segments}],{tail}")).unwrap();
    let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
    let [stream] = &capture.streams[..] else { panic!("it is one stream") };
    assert_eq!((stream.of, &stream.epochs[..]), (Of::Core(3), &[(0, 0), (100, 1)][..]));
    // Each segment says what its thread has lost.
    assert_eq!(stream.lost, [110, 120]);
    // The last number was not always there.
    let views: Vec<_> = capture.views.iter().map(|view| (view.tid, view.epoch, view.stay)).collect();
    assert_eq!(views, [(8, 1, 0), (9, 2, 3)]);
    assert_eq!((&*capture.names[&(7, 8)], &*capture.names[&(7, 9)]), ("main", "other"));
    let mut told = Told::default();
    Flow::new(capture.memory()).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
    assert_eq!(told.instructions.len(), 21);
}

#[test]
fn an_elf_file_may_stand_in_the_code_file_and_what_is_missing_says_why() {
    let Some(data) = reference_data() else { return };
    let program = std::fs::read(data.join("pt/lldb/intelpt-trace/a.out")).unwrap();
    let size = program.len();
    let maps = format!(
        r#"{{"version": 1, "processes": [{{"pid": 7, "changes": [
            {{"epoch": 0, "event": "map", "address": 4194304, "size_bytes": 1788, "offset": 0, "path": "[jit]",
              "binary": "", "code_offset": 3, "code_size": {size}}},
            {{"epoch": 0, "event": "map", "address": 6291456, "size_bytes": 16, "offset": 1024, "path": "[jit]",
              "binary": "", "code_offset": 3, "code_size": {size}}},
            {{"epoch": 0, "event": "map", "address": 8388608, "size_bytes": 4096, "path": "/x/lib.so", "binary": "",
              "missing": "no file with build id 07 is there"}}]}}]}}"#
    );
    let Some(store) = store("inside-session", &maps) else { return };
    let code = compress_to_vec(&[b"...", &program[..]].concat()[..], CompressionLevel::Fastest);
    std::fs::write(store.0.join("raw/s1/code.bin.zst"), code).unwrap();
    let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
    let (memory, mut told) = (capture.memory(), Told::default());
    let stream = &capture.streams[0];
    Flow::new(memory).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
    assert_eq!(told.instructions.len(), 21);
    let whose = |address| memory.binary(memory.place(0, address).space).map(std::sync::Arc::as_ptr);
    assert!(whose(4194304).is_some() && whose(4194304) == whose(6291456), "it is one file");
    assert_eq!(memory.why_no_code(0, 8388608), "/x/lib.so: no file with build id 07 is there");
}

#[test]
fn the_switch_records_say_who_ran_on_a_core_where_the_segment_does_not() {
    let Some(store) = store("switched-session", MAPS) else { return };
    let manifest = store.0.join("raw/s1/manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let (head, rest) = text.split_once("\"segments\": [").unwrap();
    let (_, tail) = rest.split_once("}],").unwrap();
    let segment = r#"{"key": "raw/s1/segment-0.pt.zst", "kind": "core", "core": 3, "pid": 0, "tid": 0}"#;
    let more = r#""switches": {"key": "raw/s1/switches.bin"}, "threads": [{"tid": 8, "name": "main"}, {"pid": 1, "tid": 8, "name": "later"}],"#;
    std::fs::write(&manifest, format!("{head}{more} \"segments\": [{segment}],{tail}")).unwrap();
    let record = |core: u32, tid: u32| {
        let words = [core, 7, tid, 1].map(u32::to_le_bytes);
        [&1u64.to_le_bytes()[..], &words.concat()].concat()
    };
    std::fs::write(store.0.join("raw/s1/switches.bin"), [record(4, 9), record(3, 8)].concat()).unwrap();
    let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
    let [stream] = &capture.streams[..] else { panic!("it is one stream") };
    assert_eq!((stream.of, &stream.epochs[..], &*capture.names[&(7, 8)]), (Of::Core(3), &[(0, 0)][..], "main"));
    assert_eq!((capture.views[0].pid, capture.views[0].tid, capture.views[0].image), (7, 8, 0));
    // Another process had the number behind it.
    assert_eq!(capture.names[&(1, 8)], "later");
    assert!(capture.stays.is_some() && stream.lost.is_empty());
    for (what, loses, tells_all) in [("full", true, true), ("overwritten", false, false)] {
        let segment = segment.replace("\"pid\": 0", &format!("\"{what}\": true, \"pid\": 0"));
        std::fs::write(&manifest, format!("{head}{more} \"segments\": [{segment}],{tail}")).unwrap();
        let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
        assert_eq!((capture.stays.is_some(), !capture.streams[0].lost.is_empty()), (tells_all, loses), "{what}");
    }
    let more = more.replace("switches.bin\"", "switches.bin\", \"dropped\": 1");
    std::fs::write(&manifest, format!("{head}{more} \"segments\": [{segment}],{tail}")).unwrap();
    let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
    assert!(capture.stays.is_none(), "a record that is missing may have told of another core");
}

#[test]
fn what_is_damaged_of_a_binary_is_named_as_the_store_has_it() {
    let Some(store) = store("damaged-binaries", MAPS) else { return };
    let opened = || open(&store.0.join("raw/s1"), &Options::default()).unwrap();
    let told = |capture: &pt_capture::Capture| capture.warnings.iter().any(|warning| warning.contains("binaries/b1"));
    let debug = store.0.join("binaries/b1.debug");
    std::fs::write(&debug, &compress_to_vec(&[7u8; 5000][..], CompressionLevel::Fastest)[..9]).unwrap();
    let capture = opened();
    assert!(told(&capture) && capture.warnings[0].contains("its debug file cannot be used"), "{:?}", capture.warnings);
    assert!(pt_flow::CodeMemory::read(&capture.memory(), 0, 0x40_0500).is_some(), "the code is there without it");
    std::fs::remove_file(debug).unwrap();
    std::fs::write(store.0.join("binaries/b1"), compress_to_vec(&[7u8; 5000][..], CompressionLevel::Fastest)).unwrap();
    let capture = opened();
    assert!(told(&capture) && capture.warnings[0].contains("is no ELF file"), "{:?}", capture.warnings);
}

#[test]
fn binaries_of_a_session_that_was_copied_alone_are_found_by_build_id_where_symbols_are() {
    let id = "6aa9a4e26f282f33377d59fece874c715b41261a";
    let maps = MAPS.replace("binaries/b1\"", &format!("binaries/{id}\", \"build_id\": \"{id}\""));
    let Some(store) = store("copied-alone", &maps) else { return };
    let open = |folder: &PathBuf| {
        let symbols = vec![folder.clone()];
        let capture = open(&store.0.join("raw/s1"), &Options { symbols, ..Options::default() }).unwrap();
        (pt_flow::CodeMemory::read(&capture.memory(), 0, 0x40_0500).is_some(), capture.warnings)
    };
    let (there, warnings) = open(&store.0);
    assert!(!there && warnings[0].contains(&format!("no file with build id {id} is there")), "{warnings:?}");
    // As the store had it, and as it is installed.
    let elsewhere = store.0.join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    std::fs::copy(store.0.join("binaries/b1"), elsewhere.join(id)).unwrap();
    assert_eq!(open(&elsewhere), (true, Vec::new()));
    assert_eq!(open(&reference_data().unwrap().join("pt/lldb/intelpt-trace")), (true, Vec::new()));
    // Another file of that name.
    std::fs::write(elsewhere.join(id), [7; 100]).unwrap();
    assert!(!open(&elsewhere).0);
}

#[test]
fn a_segment_that_cannot_be_used_costs_its_own_packets() {
    let Some(store) = store("damaged-segment", MAPS) else { return };
    let folder = store.0.join("raw/s1");
    let (first, manifest) = (folder.join("segment-0.pt.zst"), folder.join("manifest.json"));
    let text = std::fs::read_to_string(&manifest).unwrap();
    let another = r#""segments": [{"key": "raw/s1/segment-1.pt.zst", "pid": 7, "tid": 9},"#;
    std::fs::write(&manifest, text.replace("\"segments\": [", another)).unwrap();
    let whole = std::fs::read(&first).unwrap();
    let other = folder.join("segment-1.pt.zst");
    for damaged in [true, false] {
        if damaged {
            std::fs::write(&other, &whole[..whole.len() / 2]).unwrap();
        } else {
            std::fs::remove_file(&other).unwrap();
        }
        let capture = open(&folder, &Options::default()).unwrap();
        let sizes: Vec<_> = capture.streams.iter().map(|stream| stream.data.len()).collect();
        let [warning] = &capture.warnings[..] else { panic!("{:?}", capture.warnings) };
        assert_eq!(sizes, [0, 4096]);
        assert!(warning.contains("segment-1.pt.zst: ") && warning.ends_with("are left out"), "{warning}");
    }
    // A bit that nothing else tells of: the packets are others.
    std::fs::write(&other, compress_to_vec(&[0u8; 100][..], CompressionLevel::Fastest)).unwrap();
    let with = |sha256: &str| format!(r#"segment-1.pt.zst", "sha256": "{sha256}","#);
    let plain = std::fs::read_to_string(&manifest).unwrap();
    let of_zeros = "cd00e292c5970d3c5e2f0ffa5171e555bc46bfc4faddfb4a418b6840b86e79a3";
    for (sha256, size) in [(of_zeros, 100), ("", 100), (&of_zeros.replace('c', "d"), 0)] {
        std::fs::write(&manifest, plain.replace(r#"segment-1.pt.zst","#, &with(sha256))).unwrap();
        let capture = open(&folder, &Options::default()).unwrap();
        let sizes: Vec<_> = capture.streams.iter().map(|stream| stream.data.len()).collect();
        assert_eq!((sizes, capture.warnings.len()), (vec![size, 4096], usize::from(size == 0)));
        if let [warning] = &capture.warnings[..] {
            let what = "segment-1.pt.zst: the SHA-256 of its content is not the manifest's: its packets are left out";
            assert!(warning.ends_with(what), "{warning}");
        }
    }
    std::fs::write(&manifest, plain).unwrap();
    std::fs::remove_file(&other).unwrap();
    std::fs::remove_file(first).unwrap();
    let refused = open(&folder, &Options::default()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("segment-1.pt.zst: No such file"), "{refused}");
}

#[test]
fn code_that_is_not_as_it_was_recorded_is_told() {
    let Some(store) = store("damaged-code", MAPS) else { return };
    let manifest = store.0.join("raw/s1/manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let of_code = "36565ca5d2854ac584ac1356867f5c575d0f489442f8c8b4b8c391b2246ec1e5";
    for (sha256, warnings) in [(of_code, 0), (&of_code.replace('3', "4"), 1)] {
        let with = format!(r#"code.bin.zst", "sha256": "{sha256}""#);
        std::fs::write(&manifest, text.replace(r#"code.bin.zst""#, &with)).unwrap();
        let capture = open(&store.0.join("raw/s1"), &Options::default()).unwrap();
        assert_eq!(capture.warnings.len(), warnings, "{:?}", capture.warnings);
        let what = "code.bin.zst: the SHA-256 of its content is not the manifest's: what it tells may be wrong";
        assert!(capture.warnings.iter().all(|warning| warning.ends_with(what)), "{:?}", capture.warnings);
    }
}

/// The package has the name of the program; what the store has of the program is called by its content.
#[test]
fn a_package_of_debug_information_is_found_in_a_folder_of_symbols() {
    let maps = r#"{"version": 1, "processes": [{"pid": 7, "changes": [
        {"epoch": 1, "event": "map", "address": 0, "size_bytes": 65536, "offset": 0, "path": "/x/program",
         "binary": "binaries/b1"}]}]}"#;
    let Some(store) = store("package-session", maps) else { return };
    let folder = store.0.join("symbols");
    std::fs::create_dir_all(&folder).unwrap();
    let source = "static inline __attribute__((always_inline)) int inner(volatile int *x) { return *x += 3; }\n\
                  int outer(volatile int *x) { return inner(x); }\n";
    std::fs::write(folder.join("program.c"), source).unwrap();
    let run = |tool: &str, arguments: &[&str]| {
        let ran = Command::new(tool).args(arguments).current_dir(&folder).output();
        ran.is_ok_and(|output| output.status.success())
    };
    let flags = ["-O1", "-g", "-gsplit-dwarf", "-gdwarf-4", "-shared", "-nostdlib", "-o", "program", "program.c"];
    if !run("gcc", &flags) || !run("dwp", &["-e", "program", "-o", "program.dwp"]) {
        eprintln!("skipped: gcc or dwp is not installed");
        return;
    }
    std::fs::rename(folder.join("program"), store.0.join("binaries/b1")).unwrap();
    for dwo in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        if dwo.extension().is_some_and(|extension| extension == "dwo") {
            std::fs::remove_file(dwo).unwrap();
        }
    }
    let inlined = |symbols: Vec<PathBuf>| {
        let capture = open(&store.0.join("raw/s1"), &Options { symbols, ..Options::default() }).unwrap();
        let image = &capture.images[0];
        let binary = image.binary(image.place(1, 0x1000).space).unwrap();
        let outer = binary.functions().iter().find(|one| binary.name(one).as_deref() == Some("outer")).unwrap();
        let frames = (outer.address..outer.address + outer.size).flat_map(|address| binary.frames(address));
        frames.filter_map(|frame| frame.function).any(|name| name == "inner")
    };
    assert_eq!([inlined(vec![]), inlined(vec![folder.clone()])], [false, true]);
}

/// A record of a jitdump that loads two bytes of code (tools/perf/Documentation/jitdump-specification.txt of Linux).
fn loaded(ns: u64, address: u64, name: &str) -> Vec<u8> {
    let mut record = [0u32.to_le_bytes(), (16 + 40 + name.len() as u32 + 3).to_le_bytes()].concat();
    record.extend(ns.to_le_bytes());
    record.extend([7u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
    record.extend([address, address, 2, 1].iter().flat_map(|number| number.to_le_bytes()));
    record.extend([name.as_bytes(), b"\0\x90\xc3"].concat());
    record
}

#[test]
fn code_written_at_run_time_has_the_names_that_its_process_told() {
    let maps = MAPS.replace("\"epoch\": 2,", "\"epoch\": 2, \"tsc\": 2000,");
    let Some(store) = store("named-session", &maps) else { return };
    let session = store.0.join("raw/s1");
    let manifest = std::fs::read_to_string(session.join("manifest.json")).unwrap();
    let keep = |name: &str, bytes: &[u8]| {
        std::fs::write(session.join(name), compress_to_vec(bytes, CompressionLevel::Fastest)).unwrap();
    };
    let name = |jit: &str| {
        let jit = format!(r#""jit": [{jit}], "monotonic": {{"tsc0": 1000, "ns0": 500, "tsc1": 3000, "ns1": 1500}}, "#);
        let with = manifest.replacen("\"segments\"", &format!("{jit}\"segments\""), 1);
        std::fs::write(session.join("manifest.json"), with).unwrap();
        let capture = open(&session, &Options::default()).unwrap();
        let place = capture.memory().place(1, 8192);
        (capture.memory().describe(place.space, place.function, 8192).name, capture.warnings)
    };
    keep("jit-1.zst", b"2000 2 mapped\n");
    let map = r#"{"pid": 7, "kind": "perf-map", "name": "perf-7.map", "key": "raw/s1/jit-1.zst"}"#;
    assert_eq!(name(map), ("mapped".to_owned(), vec![]));
    let mut dump: Vec<u8> = [0x4a69_5444u32, 1, 40, 62, 0, 7].iter().flat_map(|word| word.to_le_bytes()).collect();
    dump.extend([0; 16]);
    // Before what ran at 2000, and behind it.
    dump.extend([loaded(900, 8192, "dumped"), loaded(1100, 8192, "later")].concat());
    keep("jit-2.zst", &dump);
    let dump = r#"{"pid": 7, "kind": "jitdump", "name": "jit-7.dump", "key": "raw/s1/jit-2.zst"}"#;
    assert_eq!(name(&format!("{map}, {dump}")).0, "dumped");
    // What a newer recorder tells, and what is gone, costs nothing else.
    let (other, gone) = (map.replace("perf-map", "new"), map.replace("jit-1", "jit-3"));
    let (nameless, warnings) = name(&format!("{other}, {gone}"));
    assert_eq!(nameless, "[generated]+0x2000");
    assert!(warnings[0].starts_with("names of code that was written at run time are missing: "), "{warnings:?}");
}

//! Lines, inlined functions and names, wherever compilers and distributions put the debug information.

use crate::support::{have, Folder, DWP, DWZ, GCC, LLVM_DWP, OBJCOPY, XZ};
use object::elf::SectionHeader64;
use object::LittleEndian;
use pt_image::{Absent, Binary, Caches, Frame, Room, Search};
use std::mem::size_of;
use std::path::Path;

const PROGRAM: &str = "\
static inline __attribute__((always_inline)) int innermost(volatile int *x) {
    *x += 3;
    return *x * 5;
}
static inline __attribute__((always_inline)) int middle(volatile int *x) {
    return innermost(x) ^ *x;
}
__attribute__((noinline)) int outer(volatile int *x) {
    return middle(x);
}
static __attribute__((noinline)) int hidden(volatile int *x) {
    return outer(x) + 1;
}
int main(int argc, char **argv) {
    volatile int x = argc;
    return hidden(&x);
}
";

fn built(flags: &[&str]) -> Folder {
    let folder = Folder::new();
    folder.write("program.c", PROGRAM);
    folder.run("gcc", &[&["-O1", "-o", "program", "-Wl,--build-id"], flags, &["program.c"]].concat());
    folder
}

fn load(folder: &Folder, search: &Search) -> Binary {
    Binary::load(&folder.join("program"), search).unwrap()
}

fn recorded() -> Search {
    Search { recorded_paths: true, ..Search::default() }
}

fn extent(binary: &Binary, name: &str) -> std::ops::Range<u64> {
    let named = |function: &&pt_image::Function| binary.name(function).as_deref() == Some(name);
    let function = binary.functions().iter().find(named).unwrap_or_else(|| panic!("no function {name}"));
    function.address..function.address + function.size
}

fn told(frames: &[Frame]) -> Vec<(&str, &str, u32)> {
    let tell = |frame: &'_ Frame| (frame.function.is_some(), frame.line.unwrap_or(0));
    frames
        .iter()
        .filter(|frame| tell(frame).0)
        .map(|frame| {
            let file = frame.file.as_deref().unwrap_or_default();
            (frame.function.as_deref().unwrap(), file.rsplit('/').next().unwrap(), frame.line.unwrap_or(0))
        })
        .collect()
}

/// The chain of inlined functions is found at the addition, and the lines are those of the source.
fn has_everything(binary: &Binary) {
    let outer = extent(binary, "outer");
    let expected = [("innermost", "program.c", 2), ("middle", "program.c", 6), ("outer", "program.c", 9)];
    let all: Vec<_> = outer.clone().map(|address| binary.frames(address)).collect();
    assert!(all.iter().any(|frames| told(frames) == expected), "{all:?}");
    let hidden = extent(binary, "hidden");
    let (file, line) = binary.lines(&[hidden.start]).pop().unwrap().unwrap();
    assert!(file.ends_with("program.c") && (11..=13).contains(&line), "{file}:{line}");
}

#[test]
fn debug_information_of_both_versions() {
    if !have(&[GCC]) {
        return;
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        has_everything(&load(&built(&["-g", version]), &Search::default()));
    }
}

#[test]
fn without_debug_information_there_is_the_function_alone() {
    if !have(&[GCC]) {
        return;
    }
    let binary = load(&built(&[]), &Search::default());
    let frames = binary.frames(extent(&binary, "outer").start + 1);
    assert_eq!(frames, [Frame { function: Some("outer".to_owned()), file: None, line: None }]);
    assert_eq!(binary.frames(8), []);
}

#[test]
fn compressed_sections() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    for format in ["zlib", "zlib-gnu", "zstd"] {
        let folder = built(&["-g"]);
        let flag = format!("--compress-debug-sections={format}");
        let output = folder.attempt("objcopy", &[&flag, "program", "packed"]);
        if !output.status.success() {
            eprintln!("skipped: this objcopy cannot {flag}");
            continue;
        }
        assert!(std::fs::metadata(folder.join("packed")).unwrap().len() > 0);
        has_everything(&Binary::load(&folder.join("packed"), &Search::default()).unwrap());
    }
}

#[test]
fn a_binary_misses_debug_information_that_was_wanted_and_is_not_there() {
    if !have(&[GCC]) {
        return;
    }
    for (option, misses) in [("-g", false), ("-g0", true)] {
        let binary = load(&built(&[option]), &Search::default());
        assert!(!binary.misses_debug_information());
        binary.frames(extent(&binary, "outer").start);
        assert_eq!(binary.misses_debug_information(), misses, "{option}");
    }
}

#[test]
fn split_debug_information_where_it_was_written() {
    if !have(&[GCC]) {
        return;
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = built(&["-g", "-gsplit-dwarf", version, "-c"]);
        std::fs::rename(folder.join("program"), folder.join("program.o")).unwrap();
        std::fs::create_dir(folder.join("bin")).unwrap();
        folder.run("gcc", &["-o", "bin/program", "program.o"]);
        let program = folder.join("bin/program");
        has_everything(&Binary::load(&program, &recorded()).unwrap());
        // Another's file does not say what is opened here.
        let binary = Binary::load(&program, &Search::default()).unwrap();
        assert!(extent(&binary, "outer").all(|address| binary.frames(address).len() < 2));
    }
}

#[test]
fn split_debug_information_beside_the_program_and_in_a_folder() {
    if !have(&[GCC]) {
        return;
    }
    let folder = built(&["-g", "-gsplit-dwarf"]);
    has_everything(&load(&folder, &Search::default()));
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    let moved = folder.join("elsewhere/program.dwo");
    std::fs::rename(folder.join("program.dwo"), &moved).unwrap();
    let search = Search { folders: vec![folder.join("elsewhere")], ..Search::default() };
    let binary = load(&folder, &search);
    has_everything(&binary);
    assert_eq!(binary.absent(), (vec![], 0));
    // One of another build is refused: the lines, which the program itself has, stay.
    let other = built(&["-g", "-gsplit-dwarf", "-DOTHER", "-O2"]);
    std::fs::copy(other.join("program.dwo"), &moved).unwrap();
    let binary = load(&folder, &search);
    let outer = extent(&binary, "outer");
    assert!(outer.clone().all(|address| binary.frames(address).len() < 2));
    assert!(outer.into_iter().any(|address| binary.lines(&[address])[0].is_some()));
    assert_eq!(absent(&binary), [("program.dwo".to_owned(), Some(moved.clone()))]);
    // Nothing is known to be missing before somebody wants it.
    std::fs::remove_file(moved).unwrap();
    let binary = load(&folder, &search);
    assert_eq!(binary.absent(), (vec![], 0));
    let outer = extent(&binary, "outer");
    outer.for_each(|address| assert!(binary.frames(address).len() < 2));
    assert_eq!(absent(&binary), [("program.dwo".to_owned(), None)]);
    assert_eq!(binary.absent().0[0].file, folder.path().canonicalize().unwrap().join("program.dwo"));
}

fn absent(binary: &Binary) -> Vec<(String, Option<std::path::PathBuf>)> {
    let (named, more) = binary.absent();
    assert_eq!(more, 0);
    let name = |absent: &Absent| absent.file.file_name().unwrap().to_str().unwrap().to_owned();
    named.iter().map(|one| (name(one), one.refused.clone())).collect()
}

/// With two types in sections of their own.
fn with_types(version: &str) -> Folder {
    let folder = built(&[]);
    folder.write("types.h", "struct one { int a; };\nstatic struct two { struct one *b; } unused[2];\n");
    let flags = ["-g", "-gsplit-dwarf", version, "-fdebug-types-section", "-include", "types.h"];
    folder.run("gcc", &[&["-O1", "-o", "program", "program.c"], &flags[..]].concat());
    folder
}

#[test]
fn split_debug_information_with_types_in_front() {
    if !have(&[GCC]) {
        return;
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = with_types(version);
        let binary = load(&folder, &Search::default());
        has_everything(&binary);
        assert_eq!(binary.absent(), (vec![], 0));
    }
}

/// As of programs that are compiled as a whole.
#[test]
fn split_debug_information_of_several_units_in_one_file() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = built(&["-g", "-gsplit-dwarf", "-gdwarf-5"]);
    folder.run("objcopy", &["--dump-section", ".debug_info.dwo=unit", "program.dwo"]);
    let unit = std::fs::read(folder.join("unit")).unwrap();
    let mut other = unit.clone();
    // By this units are known (DWARF 5 standard, 7.5.1.2).
    other[12..20].copy_from_slice(b"another.");
    std::fs::write(folder.join("units"), [other, unit].concat()).unwrap();
    folder.run("objcopy", &["--update-section", ".debug_info.dwo=units", "program.dwo"]);
    has_everything(&load(&folder, &Search::default()));
}

#[test]
fn split_debug_information_is_left_out_whose_sections_lie_one_over_the_other() {
    if !have(&[GCC]) {
        return;
    }
    let folder = with_types("-gdwarf-5");
    let mut file = std::fs::read(folder.join("program.dwo")).unwrap();
    let all = [0, file.len() as u64].map(u64::to_le_bytes).concat();
    let headers = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    for header in file[headers..].chunks_exact_mut(size_of::<SectionHeader64<LittleEndian>>()).skip(1).take(2) {
        header[24..40].copy_from_slice(&all);
    }
    std::fs::write(folder.join("program.dwo"), file).unwrap();
    let binary = load(&folder, &Search::default());
    assert!(extent(&binary, "outer").all(|address| binary.frames(address).len() < 2));
}

#[test]
fn split_debug_information_in_a_package() {
    if !have(&[GCC]) {
        return;
    }
    // DWARF 4: binutils' dwp 2.40 does not read GCC's DWARF 5, LLVM's 14 does not end on it.
    for tool in [DWP, LLVM_DWP] {
        if !have(&[tool]) {
            continue;
        }
        let folder = built(&["-g", "-gsplit-dwarf", "-gdwarf-4"]);
        folder.run(tool.0, &["-e", "program", "-o", "program.dwp"]);
        std::fs::remove_file(folder.join("program.dwo")).unwrap();
        has_everything(&load(&folder, &Search::default()));
        // It has the name of the program, not that of a copy.
        let packages = folder.join("packages");
        std::fs::create_dir(&packages).unwrap();
        std::fs::rename(folder.join("program.dwp"), packages.join("program.dwp")).unwrap();
        std::fs::rename(folder.join("program"), folder.join("copy")).unwrap();
        let mapped = Some("/usr/bin/program".into());
        let search = Search { mapped, folders: vec![packages], ..Search::default() };
        has_everything(&Binary::load(&folder.join("copy"), &search).unwrap());
    }
}

/// `program` stripped, `program.debug` with what was taken away.
fn separated(flags: &[&str]) -> Folder {
    let folder = built(&[&["-g"], flags].concat());
    folder.run("objcopy", &["--only-keep-debug", "program", "program.debug"]);
    folder.run("objcopy", &["--strip-all", "--add-gnu-debuglink=program.debug", "program"]);
    folder
}

#[test]
fn a_debug_file_that_the_program_links_to() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    for flags in [&[][..], &["-Wl,--build-id=none"]] {
        let folder = separated(flags);
        let binary = load(&folder, &Search::default());
        assert_eq!(binary.symbol_status(), "debug");
        has_everything(&binary);
        std::fs::create_dir(folder.join(".debug")).unwrap();
        std::fs::rename(folder.join("program.debug"), folder.join(".debug/program.debug")).unwrap();
        has_everything(&load(&folder, &Search::default()));
        let root = folder.join("root");
        let below = root.join(folder.path().strip_prefix("/").unwrap());
        std::fs::create_dir_all(&below).unwrap();
        std::fs::rename(folder.join(".debug/program.debug"), below.join("program.debug")).unwrap();
        let search = Search { folders: vec![root], ..Search::default() };
        has_everything(&load(&folder, &search));
        // Of a copy the folder counts in which the program was.
        std::fs::create_dir(folder.join("copies")).unwrap();
        std::fs::copy(folder.join("program"), folder.join("copies/copy")).unwrap();
        let copy = |mapped| Binary::load(&folder.join("copies/copy"), &Search { mapped, ..search.clone() }).unwrap();
        has_everything(&copy(Some(folder.join("program"))));
        assert_ne!(copy(None).symbol_status(), "debug");
        let binary = load(&folder, &Search::default());
        assert!(binary.symbol_status().starts_with("dynsym") || binary.symbol_status().starts_with("none"));
    }
}

#[test]
fn a_debug_file_of_another_build_is_not_taken() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    for flags in [&[][..], &["-Wl,--build-id=none"]] {
        let (folder, other) = (separated(flags), separated(&[flags, &["-O2"]].concat()));
        std::fs::copy(other.join("program.debug"), folder.join("program.debug")).unwrap();
        assert!(!load(&folder, &Search::default()).symbol_status().starts_with("debug"));
    }
}

#[test]
fn a_debug_file_by_build_id() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = separated(&[]);
    let build_id = load(&folder, &Search::default()).build_id().to_owned();
    let place = folder.join("root/.build-id").join(&build_id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::rename(folder.join("program.debug"), place.join(format!("{}.debug", &build_id[2..]))).unwrap();
    has_everything(&load(&folder, &Search { folders: vec![folder.join("root")], ..Search::default() }));
}

#[test]
fn a_debug_file_that_was_fetched_before() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = separated(&[]);
    let build_id = load(&folder, &Search::default()).build_id().to_owned();
    let caches = Caches::of(|name| (name == "HOME").then(|| folder.path().to_owned()));
    let search = Search { caches, ..Search::default() };
    let mut at = folder.join("program.debug");
    let (first, rest) = build_id.split_at(2);
    let fetched = format!(".cache/debuginfod_client/{build_id}/debuginfo");
    for place in [fetched, format!(".debug/.build-id/{first}/{rest}/debug")] {
        let place = folder.join(&place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::rename(&at, &place).unwrap();
        has_everything(&load(&folder, &search));
        at = place;
    }
    // That no server has it is noted by an empty file.
    std::fs::write(&at, "").unwrap();
    assert_eq!(load(&folder, &search).symbol_status(), load(&folder, &Search::default()).symbol_status());
}

#[test]
fn mini_debug_information() {
    if !have(&[GCC, OBJCOPY, XZ]) {
        return;
    }
    let folder = built(&[]);
    folder.run("objcopy", &["--only-keep-debug", "program", "mini"]);
    folder.run("objcopy", &["--strip-all", "program"]);
    folder.run("xz", &["--keep", "mini"]);
    let before = load(&folder, &Search::default());
    assert!(!before.functions().iter().any(|function| before.name(function).as_deref() == Some("hidden")));
    folder.run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "program"]);
    let binary = load(&folder, &Search::default());
    assert_eq!(binary.symbol_status(), "minidebug");
    // All files share what may be unpacked: there is room for one of two.
    let size = std::fs::metadata(folder.join("mini")).unwrap().len();
    let search = Search { room: Room::new(size + size / 2), ..Search::default() };
    let statuses = [(); 2].map(|()| Binary::load(&folder.join("program"), &search).unwrap().symbol_status().to_owned());
    assert_eq!((&*statuses[0], statuses[1] == "minidebug"), ("minidebug", false));
    assert!(!extent(&binary, "hidden").is_empty());
}

#[test]
fn what_debug_files_of_debian_have_in_common() {
    if !have(&[GCC, OBJCOPY, DWZ]) {
        return;
    }
    const PLACE: &str = ".dwz/x86_64-linux-gnu/common.debug";
    let folder = separated(&[]);
    std::fs::copy(folder.join("program.debug"), folder.join("twin.debug")).unwrap();
    let named = format!("/usr/lib/debug/{PLACE}");
    folder.run("dwz", &["-m", "common.debug", "-M", &named, "program.debug", "twin.debug"]);
    let root = folder.join("root");
    std::fs::create_dir_all(root.join(PLACE).parent().unwrap()).unwrap();
    std::fs::rename(folder.join("common.debug"), root.join(PLACE)).unwrap();
    has_everything(&load(&folder, &Search { folders: vec![root], ..Search::default() }));
}

#[test]
fn what_debug_files_have_in_common() {
    if !have(&[GCC, OBJCOPY, DWZ]) {
        return;
    }
    let folder = separated(&[]);
    std::fs::copy(folder.join("program.debug"), folder.join("twin.debug")).unwrap();
    folder.run("dwz", &["-m", "common.debug", "-M", "common.debug", "program.debug", "twin.debug"]);
    assert!(folder.join("common.debug").exists());
    has_everything(&load(&folder, &recorded()));
    std::fs::create_dir_all(folder.join("root/.dwz")).unwrap();
    std::fs::rename(folder.join("common.debug"), folder.join("root/.dwz/common.debug")).unwrap();
    let search = Search { folders: vec![folder.join("root")], ..Search::default() };
    has_everything(&load(&folder, &search));
    std::fs::rename(folder.join("root/.dwz/common.debug"), folder.join("root/common.debug")).unwrap();
    let binary = load(&folder, &search);
    has_everything(&binary);
    assert_eq!(absent(&binary), []);
    std::fs::remove_file(folder.join("root/common.debug")).unwrap();
    let binary = load(&folder, &search);
    binary.frames(extent(&binary, "outer").start);
    assert_eq!(absent(&binary), [("common.debug".to_owned(), None)]);
}

#[test]
fn a_debug_file_of_another_checksum_is_not_that_of_a_binary_without_a_build_id() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let (folder, other) = (separated(&["-Wl,--build-id=none"]), separated(&["-Wl,--build-id=none", "-O2"]));
    let given = |folder: &Folder| Search { debug: Some(folder.join("program.debug")), ..Search::default() };
    has_everything(&load(&folder, &given(&folder)));
    let status = load(&folder, &given(&other)).symbol_status().to_owned();
    assert!(status.contains("program.debug cannot be used: its checksum is "), "{status}");
}

#[test]
fn a_debug_file_may_have_the_name_of_its_binary() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = separated(&[]);
    let debug = folder.join("program.debug");
    let root = folder.join("root");
    let search = Search { folders: vec![root.clone()], ..Search::default() };
    for place in [root.join("program"), root.join(folder.path().strip_prefix("/").unwrap()).join("program")] {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::rename(&debug, &place).unwrap();
        let binary = load(&folder, &search);
        assert_eq!(binary.symbol_status(), "debug");
        has_everything(&binary);
        std::fs::rename(&place, &debug).unwrap();
    }
    // One of another build.
    let other = separated(&["-O2"]);
    std::fs::rename(other.join("program.debug"), root.join("program")).unwrap();
    std::fs::remove_file(debug).unwrap();
    assert!(!load(&folder, &search).symbol_status().starts_with("debug"));
}

#[test]
fn a_pipe_is_no_binary() {
    let folder = Folder::new();
    if !have(&[("mkfifo", "coreutils")]) {
        return;
    }
    folder.run("mkfifo", &["program"]);
    let error = Binary::load(Path::new(&folder.join("program")), &Search::default()).err().unwrap();
    assert!(error.to_string().ends_with("it is no regular file"), "{error}");
}

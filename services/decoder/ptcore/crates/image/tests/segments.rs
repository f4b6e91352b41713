//! Files whose section headers are gone or damaged: what their segments tell; and the other way round.

use crate::support::{have, without_headers, Folder, GCC, GO, OBJCOPY};
use pt_image::{Binary, Bytes, Function, Role, Search, Source};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PROGRAM: &str = "\
#include <stdlib.h>
#include <stdexcept>
__attribute__((visibility(\"default\"))) int counted;
__attribute__((noinline)) static int hidden(int x) { return x + counted; }
extern \"C\" __attribute__((noinline)) void thrower(int x) { if (x > 3) throw std::runtime_error(\"x\"); }
extern \"C\" __attribute__((noinline)) int caught(int x) {
    try { thrower(x); } catch (const std::exception &) { return -1; }
    return hidden(x);
}
int main(int argc, char **argv) { return getenv(argv[0]) ? caught(argc) : 0; }
asm(\".globl label\\nlabel: ret\\n\");
";

/// All that is known of a file's code.
#[derive(Debug, PartialEq)]
struct Known {
    build_id: String,
    functions: Vec<(u64, u64, Source, Role, Option<String>)>,
    /// Of which function each is a part.
    owners: Vec<(u64, Option<u64>)>,
    pads: Vec<u64>,
}

fn known(binary: &Binary) -> Known {
    let all = binary.functions().iter();
    let addresses: Vec<_> = all.clone().flat_map(|one| one.address..one.address + one.size).collect();
    let owner = |address: u64| binary.find(address).function.map(|number| binary.function(number).address);
    Known {
        build_id: binary.build_id().to_owned(),
        functions: all.clone().map(|one| (one.address, one.size, one.source, one.role, binary.name(one))).collect(),
        owners: all.map(|one| (one.address, owner(one.address))).collect(),
        pads: addresses.iter().copied().filter(|&address| binary.caught_at(address).is_some()).collect(),
    }
}

fn read(bytes: &[u8]) -> Binary {
    Binary::of(Path::new("/nowhere"), Bytes::Owned(bytes.to_vec()), &Search::default()).unwrap()
}

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// A program with symbols for other files alone.
fn built(folder: &Folder, flags: &[&str]) -> Vec<u8> {
    folder.write("program.cc", PROGRAM);
    folder.run("g++", &[&["-O2", "-Wl,--build-id", "-o", "program", "program.cc"], flags].concat());
    folder.run("objcopy", &["--strip-all", "program"]);
    std::fs::read(folder.join("program")).unwrap()
}

#[test]
fn without_section_headers_everything_is_known_that_segments_lead_to() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    for flags in [
        &["-rdynamic"][..],
        &["-shared", "-fPIC", "-Wl,-z,lazy", "-Wl,--hash-style=sysv"],
        &["-shared", "-fPIC", "-fcf-protection=full", "-Wl,-z,lazy", "-Wl,-z,ibtplt"],
        &["-no-pie", "-rdynamic", "-Wl,-z,now", "-Wl,-z,noseparate-code", "-Wl,--hash-style=both"],
    ] {
        let whole = built(&Folder::new(), flags);
        let (whole, told) = (read(&whole), read(&without_headers(&whole)));
        let wanted = known(&whole);
        let named = |name: &str| wanted.functions.iter().any(|one| one.4.as_deref() == Some(name));
        assert!(["caught", "label", "getenv@plt"].into_iter().all(named), "{flags:?}: {wanted:x?}");
        assert!(!wanted.build_id.is_empty() && !wanted.pads.is_empty());
        assert_eq!(known(&told), wanted, "{flags:?}");
        assert_eq!(told.symbol_status(), "dynsym", "{flags:?}");
        assert_eq!(told.address_of(0x1000), whole.address_of(0x1000));
    }
}

/// perf up to Linux 6.0 wrote such files of the code of a jitdump.
#[test]
fn without_program_headers_everything_is_known_that_sections_tell() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    for flags in [&["-shared", "-fPIC"][..], &["-no-pie", "-rdynamic"]] {
        let mut bytes = built(&Folder::new(), flags);
        let whole = read(&bytes);
        // e_phoff, e_phnum.
        bytes[0x20..0x28].fill(0);
        bytes[0x38..0x3a].fill(0);
        let told = read(&bytes);
        assert_eq!(known(&told), known(&whole), "{flags:?}");
        let main = known(&whole).functions.iter().find(|one| one.4.as_deref() == Some("main")).unwrap().0;
        let offset = (0..).find(|&offset| whole.address_of(offset) == Some(main)).unwrap();
        assert_eq!(told.address_of(offset), Some(main));
    }
}

#[test]
fn code_of_another_architecture_is_no_code() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    let mut bytes = built(&Folder::new(), &[]);
    // e_machine: EM_AARCH64.
    bytes[0x12..0x14].copy_from_slice(&[0xb7, 0]);
    let read = Binary::of(Path::new("/arm"), Bytes::Owned(bytes), &Search::default());
    assert_eq!(read.err().unwrap().to_string(), "/arm is for Aarch64, not for x86");
}

/// Its sections all begin at address 0.
#[test]
fn of_an_object_file_no_code_has_an_address() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    folder.write("object.c", "int near(void) { return 1; }\n");
    folder.run("gcc", &["-c", "object.c"]);
    let object = read(&std::fs::read(folder.join("object.o")).unwrap());
    assert!(object.functions().is_empty());
    assert_eq!(object.address_of(0x40), None);
}

/// Its hash table counts no symbol of another file.
#[test]
fn stubs_of_a_program_that_offers_nothing_have_names_without_section_headers() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    let whole = built(&Folder::new(), &["-fvisibility=hidden"]);
    assert_eq!(known(&read(&without_headers(&whole))), known(&read(&whole)));
}

#[test]
fn stubs_of_files_with_32_bit_addresses_have_names_without_section_headers() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    for flags in [&["-m32"][..], &["-m32", "-fcf-protection=full", "-Wl,-z,ibtplt"], &["-mx32"]] {
        let folder = Folder::new();
        folder.write("library.c", "int near(void) { return 1; }\nint far(void) { return near() + 1; }\n");
        let common = ["-O1", "-nostdlib", "-Wl,-z,lazy", "-fPIC", "-shared", "-o", "library.so", "library.c"];
        folder.run("gcc", &[&common[..], flags].concat());
        folder.run("objcopy", &["--strip-all", "library.so"]);
        let whole = std::fs::read(folder.join("library.so")).unwrap();
        let wanted = known(&read(&whole));
        assert!(wanted.functions.iter().any(|one| one.4.as_deref() == Some("near@plt")), "{wanted:x?}");
        assert_eq!(known(&read(&without_headers(&whole))), wanted, "{flags:?}");
    }
}

type Change<'c> = &'c dyn Fn(&mut Vec<u8>);

#[test]
fn damaged_section_headers_cost_what_they_alone_tell() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    let whole = built(&folder, &["-shared", "-fPIC"]);
    let wanted = known(&read(&whole));
    let (table, size) = (word(&whole, 0x28), whole.len());
    let segments = (0..usize::from(whole[0x38])).map(|number| word(&whole, 0x20) + number * 56);
    let loaded = segments.filter(|&at| whole[at..at + 4] == [1, 0, 0, 0]);
    let end = loaded.map(|at| word(&whole, at + 8) + word(&whole, at + 0x20)).max().unwrap();
    let changed = |change: Change<'_>| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        read(&bytes)
    };
    let beyond = (size as u64 + 1).to_le_bytes();
    let damaged: [(&str, Change<'_>); 5] = [
        ("cut behind the last segment", &|bytes| bytes.truncate(end)),
        ("cut within the table", &|bytes| bytes.truncate(size - 100)),
        ("the table is nowhere", &|bytes| bytes[0x28..0x30].copy_from_slice(&beyond)),
        ("other names", &|bytes| bytes[0x3e..0x40].fill(0xfe)),
        ("scrambled", &|bytes| {
            bytes[table..]
                .iter_mut()
                .zip(0u32..)
                .for_each(|(byte, at)| *byte ^= (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        }),
    ];
    for (what, change) in damaged {
        let told = changed(change);
        assert_eq!(known(&told), wanted, "{what}");
        let status = told.symbol_status();
        assert!(status.starts_with("dynsym; its section headers cannot be read: "), "{what}: {status}");
    }
    // It can be read, and tells nothing.
    let told = changed(&|bytes| bytes[table..].fill(0));
    assert_eq!(known(&told), wanted);
    // Some are gone.
    let told = changed(&|bytes| bytes[table..table + 8 * 64].fill(0));
    assert_eq!(known(&told), wanted);
}

#[test]
fn a_file_cut_in_its_code_has_the_functions_that_it_still_names() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    let whole = built(&Folder::new(), &["-rdynamic", "-Wl,-z,noseparate-code", "-no-pie"]);
    let binary = read(&whole);
    let caught = |binary: &Binary| {
        let one = binary.functions().iter().find(|one| binary.name(one).as_deref() == Some("caught"))?;
        Some(one.address)
    };
    let address = caught(&binary).unwrap();
    let offset = (0..whole.len() as u64).find(|&offset| binary.address_of(offset) == Some(address)).unwrap();
    // The dynamic segment is behind the code.
    let cut = read(&whole[..offset as usize + 8]);
    assert_eq!(cut.code(offset), &whole[offset as usize..offset as usize + 8]);
    assert_eq!(cut.address_of(offset), Some(address));
    assert_eq!((caught(&cut), cut.build_id()), (None, binary.build_id()));
}

#[test]
fn go_programs_without_section_headers_have_their_names() {
    if !have(&[GO]) {
        return;
    }
    let folder = Folder::new();
    folder.write("go.mod", "module small\n\ngo 1.20\n");
    folder.write("main.go", "package main\n\nfunc main() { println(\"permille\") }\n");
    folder.run("go", &["build", "-ldflags=-s -w", "-o", "program", "."]);
    let whole = std::fs::read(folder.join("program")).unwrap();
    let (whole, told) = (read(&whole), read(&without_headers(&whole)));
    assert_eq!(told.symbol_status(), "gopclntab");
    assert_eq!(known(&told).functions, known(&whole).functions);
}

/// Libraries of this very process, as they are in memory: laid out as the file is, and by address.
#[test]
fn libraries_read_from_memory_have_the_names_of_their_files() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for name in ["/libc.so.6", "/libgcc_s.so.1"] {
        match maps.lines().find(|line| line.ends_with(name)) {
            Some(line) => has_its_names_in_memory(line),
            None => eprintln!("skipped: {name} is not loaded"),
        }
    }
}

/// `line`: of the first mapping of a library in `/proc/self/maps`.
fn has_its_names_in_memory(line: &str) {
    let path = line.split_whitespace().last().unwrap();
    let base = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let whole = std::fs::read(path).unwrap();
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let (mut by_offset, mut by_address) = (Vec::new(), Vec::new());
    for at in (0..usize::from(whole[0x38])).map(|number| word(&whole, 0x20) + number * 56) {
        let [offset, address, size] = [8, 16, 32].map(|field| word(&whole, at + field));
        if whole[at..at + 4] == [1, 0, 0, 0] {
            let mut bytes = vec![0; size];
            memory.read_exact_at(&mut bytes, base + address as u64).unwrap();
            for (dump, place) in [(&mut by_offset, offset), (&mut by_address, address)] {
                dump.resize(dump.len().max(place + size), 0);
                dump[place..place + size].copy_from_slice(&bytes);
            }
        }
    }
    let names = |binary: &Binary| -> Vec<_> {
        let functions = binary.functions().iter().filter(|one| one.source == Source::Dynsym);
        functions.map(|one| (one.address, binary.name(one))).collect()
    };
    let wanted = read(&without_headers(&whole));
    assert!(names(&wanted).len() > 100);
    for (dump, how) in [(by_offset, "by offset"), (by_address, "by address")] {
        let told = read(&dump);
        assert_eq!((names(&told), told.build_id()), (names(&wanted), wanted.build_id()), "{path} {how}");
    }
}

#[test]
fn segments_of_code_need_not_be_in_order() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    folder.write("library.c", "int near(void) { return 1; }\nint far(void) { return near() + 1; }\n");
    let flags = ["-nostdlib", "-shared", "-fPIC", "-Wl,-z,lazy", "-fcf-protection=none", "-o", "library.so"];
    folder.run("gcc", &[&flags[..], &["library.c"]].concat());
    let whole = without_headers(&std::fs::read(folder.join("library.so")).unwrap());
    let segments: Vec<_> = (0..usize::from(whole[0x38])).map(|number| word(&whole, 0x20) + number * 56).collect();
    let last = |flags| *segments.iter().rfind(|&&at| whole[at] == 1 && whole[at + 4] == flags).unwrap();
    let (code, data) = (last(5), last(4));
    let mut bytes = whole.clone();
    bytes.copy_within(code..code + 56, data);
    // p_vaddr.
    bytes[data + 16..data + 24].fill(0);
    let stub = |binary: &Binary, one: &Function| one.source == Source::Plt && binary.name(one).is_some();
    let stubs = |binary: &Binary| binary.functions().iter().filter(|one| stub(binary, one)).count();
    assert_eq!((stubs(&read(&whole)), stubs(&read(&bytes))), (1, 1));
}

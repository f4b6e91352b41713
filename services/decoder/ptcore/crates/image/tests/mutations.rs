//! Files of strangers: whatever is damaged, nothing panics, and what is asked ends.

use crate::support::{have, Folder, GCC, GO, OBJCOPY, XZ};
use pt_image::{Binary, Search};

/// Inputs per kind of file; `PERMILLE_MUTATIONS` asks for more.
const MUTATIONS: usize = 300;

/// Marsaglia, "Xorshift RNGs" (2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Changes, cuts or repeats bytes, in the headers more often than elsewhere.
fn mutate(bytes: &mut Vec<u8>, headers: &[std::ops::Range<usize>], random: &mut Random) {
    for _ in 0..1 + random.below(8) {
        let range = match random.below(3) {
            0 => 0..bytes.len(),
            _ => headers[random.below(headers.len())].clone(),
        };
        let at = (range.start + random.below(range.len())).min(bytes.len() - 1);
        match random.below(8) {
            0 => bytes[at] = 0xff,
            1 => bytes[at] = 0,
            2 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = bytes[at].wrapping_add(1),
            4 => {
                let end = (at + 8).min(bytes.len());
                let word = [0, 1, u64::MAX, u64::MAX >> 1, 1 << 31, 1 << 40, 8][random.below(7)].to_le_bytes();
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            5 => {
                let from = random.below(bytes.len());
                let length = random.below(64).min(bytes.len() - at).min(bytes.len() - from);
                bytes.copy_within(from..from + length, at);
            }
            6 if random.below(8) == 0 => bytes.truncate(at.max(64)),
            _ => bytes[at] = random.below(256) as u8,
        }
    }
}

/// The file's header, its section headers and the sections that are read.
fn headers(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (table, count) = (word(0x28), usize::from(u16::from_le_bytes([bytes[0x3c], bytes[0x3d]])));
    let mut found = vec![0..0x200, table..table + count * 64];
    for entry in (0..count).map(|index| table + index * 64) {
        let kind = bytes[entry + 4];
        let (start, size) = (word(entry + 0x18), word(entry + 0x20));
        if kind != 8 && size > 0 && start + size <= bytes.len() {
            found.push(start..start + size);
        }
    }
    found
}

fn survives(folder: &Folder, file: &str, search: &Search) {
    let whole = std::fs::read(folder.join(file)).unwrap();
    let headers = headers(&whole);
    all_survive(folder, whole, &headers, search);
}

fn all_survive(folder: &Folder, whole: Vec<u8>, headers: &[std::ops::Range<usize>], search: &Search) {
    let count = std::env::var("PERMILLE_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(MUTATIONS);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut opened = 0;
    for _ in 0..count {
        let seed = random.0;
        let mut bytes = whole.clone();
        mutate(&mut bytes, headers, &mut random);
        // A new file each time: a mapped one must not change.
        let path = folder.join(&format!("mutation-{seed:x}"));
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(binary) = Binary::load(&path, search) {
            opened += 1;
            // A second look is cheap; the first one of a damaged function shows what there is.
            for function in binary.functions().iter().take(50) {
                let _ = binary.name(function);
                let _ = binary.frames(function.address);
                let _ = binary.lines(&[function.address.wrapping_add(function.size / 2)]);
                let _ = binary.caught_at(function.address);
            }
            for offset in [0, 0x1000, 0x1234, u64::MAX] {
                let _ = binary.address_of(offset).map(|address| binary.find(address).function);
                let _ = binary.code(offset);
            }
        }
        std::fs::remove_file(path).unwrap();
    }
    assert!(opened * 2 > count, "only {opened} of {count} are files at all");
}

const PROGRAM: &str = "\
#include <stdlib.h>
#include <vector>
#include <string>
static std::vector<std::string> shelf;
__attribute__((noinline)) int put(const char *book) { shelf.emplace_back(book); return shelf.size(); }
int main(int argc, char **argv) { free(malloc(argc)); return put(argv[0]); }
";

#[test]
fn programs_with_debug_information() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    for flags in [&["-gdwarf-5"][..], &["-gdwarf-4", "-gz=zlib"]] {
        let folder = Folder::new();
        folder.write("program.cc", PROGRAM);
        folder.run("g++", &[&["-O2", "-o", "program", "program.cc"], flags].concat());
        survives(&folder, "program", &Search::default());
    }
}

#[test]
fn programs_without_section_headers() {
    if !have(&[GCC, ("g++", "g++"), OBJCOPY]) {
        return;
    }
    for flags in [&["-rdynamic", "-Wl,--hash-style=both"][..], &["-shared", "-fPIC", "-m32", "-nostdlib"]] {
        let folder = Folder::new();
        let program = if flags[0] == "-shared" { "int far();\nint near() { return far(); }\n" } else { PROGRAM };
        folder.write("program.cc", program);
        folder.run("g++", &[&["-O2", "-o", "program", "program.cc"], flags].concat());
        let mut whole = std::fs::read(folder.join("program")).unwrap();
        let tables = if flags[0] == "-shared" { vec![0..0x400; 1] } else { headers(&whole) };
        let [offset, count] = if whole[4] == 2 { [0x28..0x30, 0x3c..0x40] } else { [0x20..0x24, 0x30..0x34] };
        whole[offset].fill(0);
        whole[count].fill(0);
        all_survive(&folder, whole, &tables, &Search::default());
    }
}

#[test]
fn code_that_the_dynamic_linker_completes() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    folder.write("program.c", "int far();\nint near() { return far(); }\nint calls() { return near(); }\n");
    folder.run("gcc", &["-m32", "-fno-pic", "-shared", "-nostdlib", "-Wl,-z,notext", "-o", "program", "program.c"]);
    let whole = std::fs::read(folder.join("program")).unwrap();
    assert_eq!(Binary::load(&folder.join("program"), &Search::default()).unwrap().unknown_branches(), 1);
    // The relocations are in the first kilobyte, too.
    let headers = 0..0x400;
    all_survive(&folder, whole, std::slice::from_ref(&headers), &Search::default());
}

#[test]
fn split_debug_information() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    folder.write(
        "program.c",
        "static inline int twice(int x) { return x * 2; }\nint main(int c, char **v) { return twice(c); }\n",
    );
    folder.run("gcc", &["-O2", "-g", "-gsplit-dwarf", "-o", "program", "program.c"]);
    survives(&folder, "program", &Search { folders: vec![folder.path().to_owned()], ..Search::default() });
    // And the other way round: the program is whole, what it leads to is not.
    let whole = std::fs::read(folder.join("program.dwo")).unwrap();
    let headers = headers(&whole);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..MUTATIONS {
        let mut bytes = whole.clone();
        mutate(&mut bytes, &headers, &mut random);
        std::fs::remove_file(folder.join("program.dwo")).unwrap();
        std::fs::write(folder.join("program.dwo"), &bytes).unwrap();
        let binary = Binary::load(&folder.join("program"), &Search::default()).unwrap();
        for function in binary.functions() {
            let _ = binary.frames(function.address);
        }
    }
}

#[test]
fn mini_debug_information() {
    if !have(&[GCC, OBJCOPY, XZ]) {
        return;
    }
    let folder = Folder::new();
    folder.write(
        "program.c",
        "static int hidden(int x) { return x; }\nint main(int c, char **v) { return hidden(c); }\n",
    );
    folder.run("gcc", &["-O0", "-o", "program", "program.c"]);
    folder.run("objcopy", &["--only-keep-debug", "program", "mini"]);
    folder.run("xz", &["--check=none", "mini"]);
    folder.run("objcopy", &["--strip-all", "--add-section", ".gnu_debugdata=mini.xz", "program"]);
    survives(&folder, "program", &Search::default());
}

#[test]
fn go_programs() {
    if !have(&[GO, OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    folder.write("go.mod", "module small\n\ngo 1.20\n");
    folder.write("main.go", "package main\n\nfunc main() { println(\"permille\") }\n");
    folder.run("go", &["build", "-ldflags=-s -w", "-o", "program", "."]);
    survives(&folder, "program", &Search::default());
}

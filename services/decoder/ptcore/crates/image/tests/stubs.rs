//! Stubs that lead to functions of other files.

use crate::support::{have, without_headers, Folder, GCC, OBJCOPY};
use object::{Object, ObjectSection};
use pt_image::{Binary, Role, Search};

const PROGRAM: &str = "\
#include <stdlib.h>
#include <string.h>
int main(int c, char **v) { free(malloc(c)); return strlen(v[0]); }
";

fn stubs(binary: &Binary) -> Vec<(u64, Option<String>)> {
    let stubs = binary.functions().iter().filter(|function| function.role == Role::Stub);
    stubs.map(|stub| (stub.address, binary.name(stub))).collect()
}

#[test]
fn stubs_have_the_names_of_what_they_lead_to() {
    if !have(&[GCC]) {
        return;
    }
    for flags in [
        &["-Wl,-z,lazy"][..],
        &["-Wl,-z,now"],
        &["-fcf-protection=full", "-Wl,-z,lazy", "-Wl,-z,ibtplt"],
        &["-no-pie", "-Wl,-z,lazy"],
        // As lld and mold leave it.
        &["-Wl,-z,lazy", "-Wl,--no-ld-generated-unwind-info"],
    ] {
        let folder = Folder::new();
        folder.write("program.c", PROGRAM);
        folder.run("gcc", &[&["-O0", "-fno-builtin", "-o", "program", "program.c"], flags].concat());
        let binary = Binary::load(&folder.join("program"), &Search::default()).unwrap();
        let stubs = binary.functions().iter().filter(|function| function.role == Role::Stub);
        let mut names: Vec<_> = stubs.filter_map(|stub| binary.name(stub)).collect();
        names.sort();
        names.dedup();
        let expected = ["free@plt", "malloc@plt", "strlen@plt"];
        assert!(expected.iter().all(|&name| names.iter().any(|known| known == name)), "{flags:?}: {names:?}");
        // No function of the program itself is one.
        assert!(names.iter().all(|name| name.ends_with("@plt")), "{names:?}");
        // In front of them stands what leads to the resolver, without a name.
        let unnamed = |function: &&pt_image::Function| function.role == Role::Stub && binary.name(function).is_none();
        assert_eq!(binary.functions().iter().filter(unnamed).count(), 1, "{flags:?}");
    }
}

#[test]
fn stubs_of_files_with_32_bit_addresses_have_the_names_of_what_they_lead_to() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    folder.write("library.c", "int near(void) { return 1; }\nint far(void) { return near() + 1; }\n");
    folder.write(
        "program.c",
        &format!("{CHOSEN}int near(void), far(void);\nvoid _start(void) {{ first(); near(); far(); }}\n"),
    );
    for flags in [&["-m32"][..], &["-m32", "-fcf-protection=full", "-Wl,-z,ibtplt"], &["-mx32"]] {
        let common = [&["-O1", "-nostdlib", "-Wl,-z,lazy"], flags].concat();
        folder.run("gcc", &[&common[..], &["-fPIC", "-shared", "-o", "library.so", "library.c"]].concat());
        folder
            .run("gcc", &[&common[..], &["-no-pie", "-fno-pic", "-o", "program", "program.c", "library.so"]].concat());
        for (file, expected) in [("library.so", &["near@plt"][..]), ("program", &["far@plt", "first@plt", "near@plt"])]
        {
            let binary = Binary::load(&folder.join(file), &Search::default()).unwrap();
            let stubs = binary.functions().iter().filter(|function| function.role == Role::Stub);
            let mut names: Vec<_> = stubs.filter_map(|stub| binary.name(stub)).collect();
            names.sort();
            names.dedup();
            assert_eq!(names, expected, "{file} {flags:?}");
            let nobodys =
                |function: &&pt_image::Function| function.role == Role::Plain && binary.name(function).is_none();
            assert_eq!(
                binary.functions().iter().find(nobodys).map(|function| function.address),
                None,
                "{file} {flags:?}"
            );
        }
    }
}

/// Functions of the program itself that are chosen when it starts; those without a caller have no stub.
const CHOSEN: &str = "
static int one(void) { return 1; }
static int (*first_resolver(void))(void) { return one; }
static int (*second_resolver(void))(void) { return one; }
static int (*third_resolver(void))(void) { return one; }
int first(void) __attribute__((ifunc(\"first_resolver\")));
int second(void) __attribute__((ifunc(\"second_resolver\")));
int third(void) __attribute__((ifunc(\"third_resolver\")));
";

#[test]
fn stubs_of_a_static_program_have_the_names_of_what_is_chosen() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    for flags in [&[][..], &["-fcf-protection=full", "-Wl,-z,ibtplt"]] {
        for count in [1, 2, 3] {
            let folder = Folder::new();
            let calls = ["first(); ", "second(); ", "third(); "][..count].concat();
            folder.write("program.c", &format!("{CHOSEN}void _start(void) {{ {calls}}}\n"));
            folder.run("gcc", &[&["-O1", "-static", "-nostdlib", "-o", "program", "program.c"], flags].concat());
            let binary = Binary::load(&folder.join("program"), &Search::default()).unwrap();
            let whole = stubs(&binary);
            let mut names: Vec<_> = whole.iter().filter_map(|(_, name)| name.as_deref()).collect();
            names.sort();
            assert_eq!(names, ["first@plt", "second@plt", "third@plt"][..count], "{flags:?}");
            // What lld calls the section.
            folder.run("objcopy", &["--rename-section", ".plt=.iplt", "program", "renamed"]);
            assert_eq!(stubs(&Binary::load(&folder.join("renamed"), &Search::default()).unwrap()), whole, "{flags:?}");
            folder.run("objcopy", &["--strip-all", "program"]);
            let binary = Binary::load(&folder.join("program"), &Search::default()).unwrap();
            let unnamed: Vec<_> = whole.iter().map(|&(address, _)| (address, None)).collect();
            assert_eq!(stubs(&binary), unnamed, "{flags:?}");
        }
    }
}

/// `program` with stubs as mold writes them: R11D tells the dynamic linker of which relocation they are.
fn with_stubs_of_mold(program: &[u8], endbr: &[u8]) -> Vec<u8> {
    let mut program = program.to_owned();
    let file = object::File::parse(program.as_slice()).unwrap();
    let (at, size) = file.section_by_name(".plt").unwrap().file_range().unwrap();
    for stub in program[at as usize..(at + size) as usize].chunks_exact_mut(16).skip(1) {
        let number = stub[7..11].to_owned();
        let moved = endbr.len() as i32 + 6;
        let slot = (i32::from_le_bytes(stub[2..6].try_into().unwrap()) - moved).to_le_bytes();
        let code = [endbr, &[0x41, 0xbb], &number, &[0xff, 0x25], &slot, &[0xcc; 4]].concat();
        stub.copy_from_slice(&code[..16]);
    }
    program
}

#[test]
fn stubs_of_mold_have_the_names_of_what_they_lead_to() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    folder.write("program.c", PROGRAM);
    folder.run("gcc", &["-O0", "-fno-builtin", "-Wl,-z,lazy", "-o", "program", "program.c"]);
    let load = |name: &str| Binary::load(&folder.join(name), &Search::default()).unwrap();
    let bytes = std::fs::read(folder.join("program")).unwrap();
    let expected = stubs(&load("program"));
    for endbr in [&[][..], &[0xf3, 0x0f, 0x1e, 0xfa]] {
        let changed = with_stubs_of_mold(&bytes, endbr);
        std::fs::write(folder.join("mold"), without_headers(&changed)).unwrap();
        let named = |stubs: Vec<(u64, Option<String>)>| stubs.into_iter().filter(|(_, name)| name.is_some());
        assert!(named(stubs(&load("mold"))).eq(named(expected.clone())), "{endbr:x?}");
        std::fs::write(folder.join("mold"), changed).unwrap();
        assert_eq!(stubs(&load("mold")), expected, "{endbr:x?}");
        // Some of its versions have symbols for them.
        let symbols = ["free$plt=.plt:0x10", "malloc$plt=.plt:0x20", "strlen$plt=.plt:0x30"];
        for symbol in symbols.map(|symbol| format!("{symbol},function,local")) {
            folder.run("objcopy", &["--add-symbol", &symbol, "mold"]);
        }
        assert_eq!(stubs(&load("mold")), expected, "{endbr:x?}");
    }
}

/// In static programs that lld links `strcmp` is the stub, and what chooses has a name of its own.
#[test]
fn a_stub_with_a_symbol_has_its_name_rather_than_that_of_what_chooses() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    folder.write("program.c", &format!("{CHOSEN}void _start(void) {{ first(); }}\n"));
    folder.run("gcc", &["-O1", "-static", "-nostdlib", "-o", "program", "program.c"]);
    for symbol in ["strcmp", "strcmp$pltgot"] {
        folder.run("objcopy", &["--add-symbol", &format!("{symbol}=.plt:0,function"), "program", "named"]);
        let names: Vec<_> = stubs(&Binary::load(&folder.join("named"), &Search::default()).unwrap());
        assert_eq!(names.into_iter().map(|(_, name)| name).collect::<Vec<_>>(), [Some("strcmp@plt".to_owned())]);
    }
}

//! Files of which a part is referred to over and over: what is read and kept of them has the size of the file.

use crate::support::{have, Folder, GCC};
use object::elf::{SectionHeader64, Sym64};
use object::{LittleEndian, Object, ObjectSection};
use pt_image::{Binary, Search};
use std::mem::size_of;

const START: &str = ".text\n.globl _start\n.type _start, @function\n_start: nop\nret\n.size _start, . - _start\n";

/// A program of this assembly, with no symbols but its own.
fn built(folder: &Folder, assembly: &str) -> Vec<u8> {
    folder.write("hostile.s", &format!("{START}{assembly}"));
    folder.run("gcc", &["-nostdlib", "-static", "-o", "hostile", "hostile.s"]);
    std::fs::read(folder.join("hostile")).unwrap()
}

fn loaded(folder: &Folder, bytes: &[u8]) -> Result<Binary, String> {
    std::fs::write(folder.join("hostile"), bytes).unwrap();
    Binary::load(&folder.join("hostile"), &Search::default()).map_err(|error| error.to_string())
}

fn start(binary: &Binary) -> u64 {
    let is_start = |one: &&pt_image::Function| binary.name(one).as_deref() == Some("_start");
    binary.functions().iter().find(is_start).unwrap().address
}

/// Where a section stands in the file.
fn section(bytes: &[u8], name: &str) -> std::ops::Range<usize> {
    let file = object::File::parse(bytes).unwrap();
    let (at, size) = file.section_by_name(name).unwrap().file_range().unwrap();
    at as usize..(at + size) as usize
}

/// Where in a table of strings one begins.
fn place_of(table: &[u8], text: &str) -> [u8; 4] {
    let at = table.windows(text.len()).position(|window| window == text.as_bytes());
    (at.unwrap() as u32).to_le_bytes()
}

/// Read to their ends, the names have 1.6 TB.
#[test]
fn of_symbols_with_one_long_name_only_its_begin_is_read() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    let long = "l".repeat(1 << 24);
    let many: String =
        (0..100_000).map(|number| format!("s{number} = _start + 1\n.type s{number}, @function\n")).collect();
    let mut bytes = built(&folder, &format!("{many}.globl {long}\n{long} = _start + 1\n"));
    let name = place_of(&bytes[section(&bytes, ".strtab")], &long[..10_000]);
    let table = section(&bytes, ".symtab");
    for symbol in bytes[table].chunks_exact_mut(size_of::<Sym64<LittleEndian>>()).skip(1) {
        symbol[..4].copy_from_slice(&name);
    }
    let binary = loaded(&folder, &bytes).unwrap();
    let names: Vec<_> = binary.functions().iter().map(|function| binary.name(function)).collect();
    assert_eq!(names, [Some("l".repeat(1 << 12)), Some("l".repeat(1 << 12))]);
}

#[test]
fn sections_with_one_long_name_are_left_out() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    let long = "l".repeat(1 << 14);
    let many: String = (0..5000).map(|number| format!(".section s{number}, \"\"\n.byte 0\n")).collect();
    let mut bytes = built(&folder, &format!("{many}.section {long}, \"\"\n.byte 0\n"));
    let name = place_of(&bytes[section(&bytes, ".shstrtab")], &long);
    let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    for head in bytes[table..].chunks_exact_mut(size_of::<SectionHeader64<LittleEndian>>()).skip(1) {
        head[..4].copy_from_slice(&name);
    }
    let binary = loaded(&folder, &bytes).unwrap();
    assert!(binary.functions().is_empty());
    let status = binary.symbol_status();
    assert!(status.ends_with("the names of its sections have more than 67108864 bytes"), "{status}");
}

/// A unit (DWARF 4) of this tree of entries, whose kinds are in `.debug_abbrev`.
fn unit(entries: &str) -> String {
    format!(
        ".section .debug_info, \"\", @progbits\n.long 2f - 1f\n1: .short 4\n.long .Lkinds\n.byte 8\n{entries}\n2:\n"
    )
}

/// Kinds: 1 is a unit of addresses, with entries in it; 2 one of ranges; 3 a function of addresses, with entries; 4 code
/// that was inlined; 5 a function of ranges; 6 a unit of addresses with lines; 7 inlined code with more in it.
const KINDS: &str = "\
.section .debug_abbrev, \"\", @progbits
.Lkinds:
.byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0
.byte 2, 0x11, 0, 0x11, 1, 0x55, 0x17, 0, 0
.byte 3, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0
.byte 4, 0x1d, 0, 0x11, 1, 0x12, 7, 0, 0
.byte 5, 0x2e, 0, 0x55, 0x17, 0, 0
.byte 6, 0x11, 0, 0x11, 1, 0x12, 7, 0x10, 0x17, 0, 0
.byte 7, 0x1d, 1, 0x11, 1, 0x12, 7, 0, 0, 0
";

fn ranges(count: usize) -> String {
    let begin = ".section .debug_ranges, \"\", @progbits\n.Lranges:\n";
    format!("{begin}.rept {count}\n.quad _start, _start + 1\n.endr\n.quad 0, 0\n")
}

const FUNCTION: &str = ".byte 3\n.quad _start, 2\n.byte 4\n.quad _start, 2\n.byte 0\n";

#[test]
fn debug_information_is_left_out_whose_units_have_one_list_of_ranges() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    let whole = unit(&format!(".byte 1\n.quad _start, 2\n{FUNCTION}.byte 0"));
    let one = unit(".byte 2\n.quad 0\n.long .Lranges");
    for (units, frames) in [(1, 2), (2000, 1)] {
        let many = format!("{KINDS}{}{whole}{}", ranges(3000), one.repeat(units));
        let binary = loaded(&folder, &built(&folder, &many)).unwrap();
        assert_eq!(binary.frames(start(&binary)).len(), frames, "{units}");
    }
}

#[test]
fn inlined_functions_are_left_out_that_are_too_deep_within_each_other() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    for (levels, frames) in [(1, 2), (500, 256), (100_000, 1)] {
        let inlined = format!(".rept {levels}\n.byte 7\n.quad _start, 2\n.endr\n.zero {levels}\n");
        let whole = unit(&format!(".byte 1\n.quad _start, 2\n.byte 3\n.quad _start, 2\n{inlined}.byte 0\n.byte 0"));
        let binary = loaded(&folder, &built(&folder, &format!("{KINDS}{whole}"))).unwrap();
        assert_eq!(binary.frames(start(&binary)).len(), frames, "{levels}");
    }
}

#[test]
fn debug_information_is_left_out_whose_functions_have_one_list_of_ranges() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    for (functions, frames) in [(1, 2), (2000, 1)] {
        let many = format!(".rept {functions}\n.byte 5\n.long .Lranges\n.endr\n.byte 0");
        let whole = unit(&format!(".byte 1\n.quad _start, 2\n{many}\n"));
        let whole = whole.replace(".rept", &format!("{FUNCTION}.rept"));
        let ranges = ranges(3000).replace("_start, _start + 1", "_start + 1, _start + 2");
        let binary = loaded(&folder, &built(&folder, &format!("{KINDS}{ranges}{whole}"))).unwrap();
        assert_eq!(binary.frames(start(&binary)).len(), frames, "{functions}");
    }
}

#[test]
fn lines_are_left_out_whose_files_are_in_one_folder_of_a_long_name() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    let whole = unit(".byte 6\n.quad _start, 2\n.long .Llines");
    for files in [10, 5000] {
        let lines = format!(
            ".section .debug_line, \"\", @progbits
.Llines: .long 4f - 1f
1: .short 4
.long 3f - 2f
2: .byte 1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
.fill 65536, 1, 'd'
.byte 0, 0
.rept {files}
.byte 'f', 0, 1, 0, 0
.endr
.byte 0
3: .byte 0, 9, 2
.quad _start
.byte 1, 2, 2, 0, 1, 1
4:
"
        );
        let binary = loaded(&folder, &built(&folder, &format!("{KINDS}{lines}{whole}"))).unwrap();
        let told = binary.lines(&[start(&binary)]).pop().flatten();
        let wanted = (files == 10).then(|| (format!("{}/f", "d".repeat(65536)), 1));
        assert_eq!(told, wanted, "{files}");
    }
}

//! What the unwind table says of functions in programs without symbols.

use crate::support::{have, Folder, GCC, OBJCOPY};
use pt_image::{Binary, Image, Search, Symbols};
use std::sync::Arc;

fn load(folder: &Folder, name: &str) -> Binary {
    Binary::load(&folder.join(name), &Search::default()).unwrap()
}

/// Builds `source`, `whole`, and strips it, `stripped`.
fn built(name: &str, source: &str, flags: &[&str]) -> (Binary, Binary, Folder) {
    let folder = Folder::new();
    folder.write(name, source);
    folder.run("gcc", &[&["-nostdlib", "-shared", "-o", "whole", name], flags].concat());
    folder.run("objcopy", &["--strip-all", "whole", "stripped"]);
    (load(&folder, "whole"), load(&folder, "stripped"), folder)
}

fn address(binary: &Binary, name: &str) -> u64 {
    let named = |function: &&pt_image::Function| binary.name(function).as_deref() == Some(name);
    binary.functions().iter().find(named).unwrap_or_else(|| panic!("no function {name}")).address
}

/// Where the function around an address begins.
fn start(binary: &Binary, address: u64) -> Option<u64> {
    binary.find(address).function.map(|number| binary.function(number).address)
}

#[test]
fn a_part_that_the_compiler_moved_away_is_of_its_function() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let program = "
__attribute__((cold, noipa)) int failed(int x) { __asm__ volatile(\"\"); return x * 2; }
__attribute__((noipa)) int plain(int x) { __asm__ volatile(\"\"); return x; }
__attribute__((noipa)) int work(int x, int *y) {
    int first = plain(x), second = plain(x + 1), third = plain(x + 2);
    if (__builtin_expect(x % 4 == 0, 0)) { *y = failed(first) + failed(second); third = failed(third) + *y; }
    return first ^ second ^ third ^ plain(x + 3);
}
";
    let (whole, stripped, _folder) = built("program.c", program, &["-O2", "-fno-plt"]);
    let names = whole.functions().iter().filter_map(|function| Some((whole.name(function)?, function.address)));
    let Some((_, part)) = names.into_iter().find(|(name, _)| name.starts_with("work.cold")) else {
        eprintln!("skipped: this gcc does not move parts of functions away");
        return;
    };
    let work = address(&whole, "work");
    assert_eq!(start(&whole, part), Some(work));
    assert_eq!([start(&stripped, work), start(&stripped, part)], [Some(work); 2]);
    for name in ["failed", "plain"] {
        let own = address(&whole, name);
        assert_eq!(start(&stripped, own), Some(own), "{name}");
    }
}

const HANDLERS: &str = "\
    .text
hot:
    .cfi_startproc
    .cfi_lsda 0x1b, table
    call *%rax
    ret
    .cfi_endproc
.OTHER
    .section .text.unlikely, \"ax\", @progbits
    nop
pads:
    .cfi_startproc
    nop
handler:
    jmp hot
    .cfi_endproc
next:
    .cfi_startproc
    ret
    .cfi_endproc
    .section .gcc_except_table, \"a\", @progbits
table:
    .byte 0x1b
    .long pads - .
    .byte 0xff, 0x01
    .uleb128 end - begin
begin:
    .uleb128 0, 2, handler - pads, 0
    .uleb128 2, 1, 0, 0
end:
";

/// What catches or cleans up after a function is part of it.
#[test]
fn landing_pads_elsewhere_are_of_the_function_that_they_are_for() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let symbols = "    .type hot, @function\n    .type pads, @function\n    .type next, @function\n";
    let source = |other: &str| symbols.to_owned() + &HANDLERS.replace(".OTHER", other);
    let (whole, stripped, _folder) = built("program.s", &source(""), &[]);
    let [hot, pads, next] = ["hot", "pads", "next"].map(|name| address(&whole, name));
    assert_eq!([hot, pads, pads + 1, next].map(|address| start(&stripped, address)), [hot, hot, hot, next].map(Some));
    // Names say more than tables.
    assert_eq!(start(&whole, pads), Some(pads));
    // What two functions share is of none of them.
    let other = "other:\n.cfi_startproc\n.cfi_lsda 0x1b, table\ncall *%rax\nret\n.cfi_endproc\n";
    let (whole, stripped, _folder) = built("program.s", &source(other), &[]);
    let pads = address(&whole, "pads");
    assert_eq!(start(&stripped, pads), Some(pads));
}

#[test]
fn a_function_without_a_name_is_called_by_where_it_begins() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let (_, stripped, _folder) = built("program.c", "static int f(void) { return 1; }\nint (*one)(void) = f;\n", &[]);
    let begin = stripped.functions()[0].address;
    let mut image = Image::new();
    image.map(0, 0x5000_0000, 0x1000, 0x1000, &Arc::new(stripped), "/lib/program").unwrap();
    let place = image.place(0, 0x5000_0000 + (begin & 0xfff) + 3);
    let name = image.describe(place.space, place.function, begin + 3).name;
    assert_eq!((place.function, name), (Some(0), format!("program+{begin:#x}")));
}

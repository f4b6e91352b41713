//! Where exceptions go on that come out of calls.

use crate::support::{have, Folder, CLANG, GCC, OBJDUMP};
use pt_image::{Binary, Image, Search, Symbols};
use std::ops::Range;
use std::sync::Arc;

/// Calls of five bytes each; what the first and the third throw goes on at the pad.
const PROGRAM: &str = "\
    .text
    .globl _start
    .type _start, @function
_start:
    .cfi_startproc
    .cfi_lsda 0x1b, .Ltable
from:
    call thrower
to:
    call thrower
again:
    call thrower
pad:
    call thrower
    .cfi_endproc
    .size _start, . - _start
    .type thrower, @function
thrower:
    ret
    .size thrower, . - thrower
    .section .gcc_except_table, \"a\", @progbits
.Ltable:
    .byte 0xff, 0xff, 0x01
    .uleb128 .Lend - .Lbegin
.Lbegin:
    .uleb128 from - _start, to - from, pad - _start, 0
    .uleb128 to - _start, again - to, 0, 0
    .uleb128 again - _start, pad - again, pad - _start, 0
.Lend:
";

/// A recursion in which an exception is cleared up after, in parts of their own.
const PARTS: &str = "\
extern \"C\" int thrower(int);
struct Cleared { ~Cleared(); };
extern \"C\" int work(int n) { Cleared cleared; return n ? work(n - 1) + 1 : thrower(n) + 2; }
";

/// Whether an exception that comes out of the call that returns to `returns_to` goes on at a pad.
fn goes_on(caught: Option<Vec<Range<u64>>>, returns_to: u64) -> Option<bool> {
    Some(caught?.iter().any(|returns| returns.contains(&returns_to)))
}

#[test]
fn a_landing_pad_is_for_the_calls_that_its_table_names() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    folder.write("program.s", PROGRAM);
    folder.run("gcc", &["-nostdlib", "-static", "-o", "program", "program.s"]);
    let binary = Binary::load(&folder.join("program"), &Search::default()).unwrap();
    let start = binary.functions().iter().find(|one| binary.name(one).as_deref() == Some("_start")).unwrap().address;
    let pad = start + 15;
    let behind = [5, 10, 15, 20].map(|end| goes_on(binary.caught_at(pad), start + end));
    assert_eq!(behind, [Some(true), Some(false), Some(true), Some(false)]);
    assert_eq!(binary.caught_at(start + 10), None, "no landing pad");

    let mut image = Image::new();
    let offset = binary.functions()[0].address & 0xfff;
    image.map(3, 0x5000_0000, 0x2000, 0x1000, &Arc::new(binary), "program").unwrap();
    let start = 0x5000_0000 + offset;
    assert_eq!(goes_on(image.caught_at(3, start + 15), start + 5), Some(true));
    assert_eq!(goes_on(image.caught_at(3, start + 15), start + 10), Some(false));
    assert_eq!(image.caught_at(2, start + 15), None, "not mapped yet");
}

#[test]
fn each_part_of_a_function_has_its_own_calls() {
    if !have(&[CLANG, OBJDUMP]) {
        return;
    }
    let folder = Folder::new();
    folder.write("work.cpp", PARTS);
    let flags = ["-O2", "-fno-pie", "-fbasic-block-sections=all", "-shared", "-fPIC"];
    folder.run("clang++", &[&flags[..], &["-o", "program", "work.cpp"]].concat());
    let binary = Binary::load(&folder.join("program"), &Search::default()).unwrap();
    let listed = folder.attempt("objdump", &["-d", "--no-show-raw-insn", "program"]).stdout;
    // Where each call returns to, by who is called.
    let mut behind = Vec::new();
    let mut called = None;
    for line in String::from_utf8_lossy(&listed).lines() {
        let Some((address, text)) = line.split_once(":\t") else { continue };
        let address = u64::from_str_radix(address.trim(), 16).unwrap();
        if let Some(name) = called.take() {
            behind.push((name, address));
        }
        called = text.strip_prefix("call").and_then(|call| call.split_once('<')).map(|(_, name)| name.to_owned());
    }
    let of = |name: &str| {
        let of: Vec<_> =
            behind.iter().filter(|(called, _)| called.starts_with(name)).map(|&(_, behind)| behind).collect();
        assert!(!of.is_empty(), "no call of {name} in {behind:x?}");
        of
    };
    let [thrower, work, resume] = ["thrower@plt", "work@plt", "_Unwind_Resume@plt"].map(|name| of(name)[0]);
    // The pad is what comes before the call that goes on unwinding.
    let leads = |pad: u64| [thrower, work, resume].map(|behind| goes_on(binary.caught_at(pad), behind));
    let pads: Vec<_> = (resume - 40..resume).filter(|&pad| binary.caught_at(pad).is_some()).collect();
    assert_eq!(pads.len(), 1, "{pads:x?}");
    assert_eq!(leads(pads[0]), [Some(true), Some(true), Some(false)]);
}

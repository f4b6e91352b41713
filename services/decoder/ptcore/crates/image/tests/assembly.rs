//! Functions of hand-written assembly, which mostly states neither type nor size.

use crate::support::{have, Folder, GCC, OBJCOPY};
use pt_image::{Binary, Search};

const PROGRAM: &str = "\
    .text
    .globl _start
_start:
    call encode
    call typed
    ret
    .globl encode
encode:
    mov $10, %ebx
again:
    dec %ebx
    jnz again
    ret
    .weak decode
decode:
    call helper
    ret
helper:
    ret
    .globl typed
    .type typed, @function
typed:
    nop
    .globl inside
inside:
    ret
    .size typed, . - typed
    .globl end_of_text
end_of_text:
    .section .alone, \"ax\", @progbits
first:
    nop
second:
    ret
    .data
    .globl table
table:
    .quad 1
";

fn built(flags: &[&str]) -> Folder {
    let folder = Folder::new();
    folder.write("program.s", PROGRAM);
    folder.run("gcc", &[&["-nostdlib", "-o", "program", "program.s"], flags].concat());
    folder
}

fn load(folder: &Folder) -> Binary {
    Binary::load(&folder.join("program"), &Search::default()).unwrap()
}

/// The names and sizes, by address.
fn functions(binary: &Binary) -> Vec<(String, u64)> {
    binary.functions().iter().map(|function| (binary.name(function).unwrap_or_default(), function.size)).collect()
}

fn names(binary: &Binary) -> Vec<String> {
    functions(binary).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn global_labels_that_no_function_covers_are_functions() {
    if !have(&[GCC]) {
        return;
    }
    let expected = [("_start", 11), ("encode", 10), ("decode", 7), ("typed", 2), ("first", 1), ("second", 1)];
    assert_eq!(functions(&load(&built(&[]))), expected.map(|(name, size)| (name.to_owned(), size)));
}

#[test]
fn a_debug_file_and_the_dynamic_symbols_have_them_too() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = built(&["-shared", "-Wl,-z,notext"]);
    folder.run("objcopy", &["--only-keep-debug", "program", "program.debug"]);
    folder.run("objcopy", &["--strip-all", "program"]);
    let exported = ["_start", "encode", "decode", "typed"];
    let named = |binary: &Binary| names(binary).into_iter().filter(|name| !name.ends_with("@plt") && !name.is_empty());
    assert_eq!(named(&load(&folder)).collect::<Vec<_>>(), exported);
    folder.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    let binary = load(&folder);
    assert_eq!(binary.symbol_status(), "debug");
    assert_eq!(named(&binary).collect::<Vec<_>>(), [&exported[..], &["first", "second"]].concat());
}

#[test]
fn code_that_is_called_data_has_its_name() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    let data = |name: &str| format!("    .globl {name}\n    .type {name}, @object\n{name}:\n");
    let function = "    .type function, @function\nfunction:\n    ret\n    .size function, 1\n";
    let source = [
        // What is a function, too, is called by the function's name.
        &data("also"),
        function,
        // It ends where its size says; without one, as in Haskell, where the next begins.
        &data("sized"),
        "    nop\n    .size sized, 1\n    nop\n",
        &data("first_con_info"),
        "    nop\n    ret\n",
        &data("second_con_info"),
        "    ret\n",
        "    .section .rodata\n",
        &data("table"),
        "    .quad 1\n",
    ];
    folder.write("program.s", &source.concat());
    let expected = [("function", 1), ("sized", 1), ("first_con_info", 2), ("second_con_info", 1)];
    let expected = expected.map(|(name, size)| (name.to_owned(), size));
    folder.run("gcc", &["-nostdlib", "-shared", "-o", "program", "program.s"]);
    assert_eq!(functions(&load(&folder)), expected);
    folder.run("objcopy", &["--strip-unneeded", "--strip-symbol=function", "program"]);
    let exported = ["also", "sized", "first_con_info", "second_con_info"];
    assert_eq!(names(&load(&folder)), exported);
}

#[test]
fn a_label_ends_where_the_unwind_table_knows_another_function() {
    if !have(&[GCC, OBJCOPY]) {
        return;
    }
    let folder = Folder::new();
    let described = "hidden:\n    .cfi_startproc\n    nop\n    ret\n    .cfi_endproc\n";
    folder.write("program.s", &format!("    .globl label\nlabel:\n    ret\n{described}"));
    folder.run("gcc", &["-nostdlib", "-shared", "-o", "program", "program.s"]);
    folder.run("objcopy", &["--strip-all", "program"]);
    assert_eq!(functions(&load(&folder)), [("label".to_owned(), 1), (String::new(), 2)]);
}

#[test]
fn of_names_for_one_address_one_with_a_size_is_chosen() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    let marker = |name: &str, global: &str| format!("{global}    .type {name}, @function\n{name}:\n");
    let function = "    .type function, @function\nfunction:\n    nop\n    ret\n    .size function, . - function\n";
    for global in ["", "    .globl mark\n"] {
        folder.write("program.s", &[&marker("mark", global), function].concat());
        folder.run("gcc", &["-nostdlib", "-shared", "-o", "program", "program.s"]);
        assert_eq!(functions(&load(&folder)), [("function".to_owned(), 2)], "{global}");
    }
    // Where none has one the others count.
    folder.write(
        "program.s",
        &[marker("mark", ""), marker("global", "    .globl global\n"), "ret\n".to_owned()].concat(),
    );
    folder.run("gcc", &["-nostdlib", "-shared", "-o", "program", "program.s"]);
    assert_eq!(functions(&load(&folder)), [("global".to_owned(), 1)]);
}

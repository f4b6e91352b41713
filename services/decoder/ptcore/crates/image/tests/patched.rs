//! Code that was changed in memory after it was mapped from a file.

use crate::support::{have, Folder, GCC};
use pt_flow::CodeMemory;
use pt_image::{Binary, Image, Place, Search, Standing, Symbols};
use std::sync::Arc;

const PROGRAM: &str = "\
    .text
    .globl victim, neighbour
    .type victim, @function
    .type neighbour, @function
victim:
    .fill 8, 1, 0x90
    ret
    .size victim, . - victim
neighbour:
    .fill 8, 1, 0x90
    ret
    .size neighbour, . - neighbour
";
const BASE: u64 = 0x7f00_0000_0000;
const HOOK: [u8; 5] = [0xe9, 0, 1, 0, 0];

struct Program {
    binary: Arc<Binary>,
    /// In the file.
    victim: u64,
    _folder: Folder,
}

fn program() -> Program {
    let folder = Folder::new();
    folder.write("program.s", PROGRAM);
    folder.run("gcc", &["-nostdlib", "-shared", "-o", "program", "program.s"]);
    let binary = Arc::new(Binary::load(&folder.join("program"), &Search::default()).unwrap());
    let named = |function: &&pt_image::Function| binary.name(function).as_deref() == Some("victim");
    let victim = binary.functions().iter().find(named).unwrap().address;
    Program { binary, victim, _folder: folder }
}

/// Mapped as a whole in epoch 1.
fn mapped(program: &Program) -> Image {
    let mut image = Image::new();
    image.map(1, BASE, 0x2000, 0, &program.binary, "/bin/program").unwrap();
    image
}

fn name(image: &Image, place: Place, address: u64) -> String {
    image.describe(place.space, place.function, address).name
}

#[test]
fn a_function_that_was_patched_is_the_same_function() {
    if !have(&[GCC]) {
        return;
    }
    let program = program();
    let mut image = mapped(&program);
    let victim = BASE + program.victim;
    image.code(2, victim, HOOK.to_vec()).unwrap();
    image.code(3, victim + 1, vec![7]).unwrap();
    for address in victim..victim + 18 {
        let before = image.place(1, address);
        assert_eq!([2, 3].map(|epoch| image.place(epoch, address)), [before; 2], "{address:#x}");
    }
    assert!(image.place(3, victim).entry);
    assert_eq!(name(&image, image.place(3, victim), victim), "victim");
    let bytes = |epoch| image.read(epoch, victim).unwrap().bytes[0];
    assert_eq!([1, 2].map(bytes), [0x90, 0xe9]);
    assert_eq!(image.read(3, victim + 1).unwrap().bytes, [7]);
}

#[test]
fn code_that_reaches_out_of_the_file_has_its_names_inside_alone() {
    if !have(&[GCC]) {
        return;
    }
    let program = program();
    let mut image = mapped(&program);
    let victim = BASE + program.victim;
    let size = BASE + 0x2000 - victim + 0x100;
    image.code(2, victim, vec![0x90; size as usize]).unwrap();
    assert_eq!(name(&image, image.place(2, victim), victim), "victim");
    let outside = image.place(2, BASE + 0x2080);
    assert_eq!((outside.start, outside.end, outside.function), (BASE + 0x2000, BASE + 0x2100, None));
    assert_eq!(name(&image, outside, BASE + 0x2080), format!("[generated]+{:#x}", BASE + 0x2080));
}

#[test]
fn a_function_goes_no_further_than_what_was_mapped() {
    if !have(&[GCC]) {
        return;
    }
    let program = program();
    let mut image = mapped(&program);
    let victim = BASE + program.victim;
    image.missing(2, victim + 4, 0x1000, "/bin/other", "the file is gone").unwrap();
    let (before, behind) = (image.place(2, victim), image.place(2, victim + 4));
    assert_eq!((before.start, before.end), (victim, victim + 4));
    assert_ne!(before.space, behind.space);
}

#[test]
fn code_where_the_file_is_gone_has_no_name() {
    if !have(&[GCC]) {
        return;
    }
    let program = program();
    let mut image = mapped(&program);
    let victim = BASE + program.victim;
    image.unmap(2, BASE, 0x2000).unwrap();
    image.code(2, victim, vec![0x90; 9]).unwrap();
    let place = image.place(2, victim);
    assert_eq!((place.function, place.start, place.end), (None, victim, victim + 9));
}

#[test]
fn code_on_both_sides_of_a_file_is_not_one_stretch() {
    if !have(&[GCC]) {
        return;
    }
    let program = program();
    let mut image = Image::new();
    image.code(1, BASE - 16, vec![0x90; 16]).unwrap();
    image.code(1, BASE + 0x100, vec![0x90; 16]).unwrap();
    let begins = |image: &Image| [BASE - 8, BASE + 0x108].map(|address| image.place(1, address).start);
    assert_eq!(begins(&image), [BASE - 16, BASE - 16]);
    image.map(2, BASE + 0x80, 0x40, 0, &program.binary, "/bin/program").unwrap();
    assert_eq!(begins(&image), [BASE - 16, BASE + 0x100]);
}

/// Whether files and code come in one epoch or one after the other.
#[test]
fn its_changes_say_what_code_was_written_over() {
    if !have(&[GCC]) {
        return;
    }
    let program = program();
    let victim = BASE + program.victim;
    let mut image = mapped(&program);
    image.code(1, victim, HOOK.to_vec()).unwrap();
    image.code(2, victim + 4, vec![0x90; 12]).unwrap();
    image.unmap(3, BASE, 0x2000).unwrap();
    image.code(3, victim, HOOK.to_vec()).unwrap();
    image.map(4, BASE + 0x1000, 0x1000, 0, &program.binary, "/bin/program").unwrap();
    image.map(4, BASE, 0x1000, 0, &program.binary, "/bin/program").unwrap();
    image.code(4, BASE + 0xff0, vec![0x90; 0x20]).unwrap();
    image.map(5, BASE, 0x2000, 0, &program.binary, "/bin/program").unwrap();
    image.code(5, victim, HOOK.to_vec()).unwrap();
    let mut again = Image::new();
    for change in image.changes() {
        let (epoch, address, size) = (change.epoch, change.address, change.size);
        match change.what {
            Standing::Nothing => again.unmap(epoch, address, size),
            Standing::Code(bytes) => again.code(epoch, address, bytes.to_vec()),
            Standing::Missing { name, reason } => again.missing(epoch, address, size, name, reason),
            Standing::File { binary, offset, name } => again.map(epoch, address, size, offset, binary, name),
        }
        .unwrap();
    }
    for epoch in 0..7 {
        for address in (victim - 8..victim + 32).chain(BASE + 0xfe0..BASE + 0x1020) {
            let seen =
                |image: &Image| (image.place(epoch, address), image.read(epoch, address).map(|code| code.bytes[0]));
            assert_eq!(seen(&image), seen(&again), "{epoch} {address:#x}");
        }
    }
}

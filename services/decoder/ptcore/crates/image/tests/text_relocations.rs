//! Libraries whose code the dynamic linker completes.

use crate::support::{have, Folder, GCC};
use pt_flow::CodeMemory;
use pt_image::{Binary, Image, Search, Symbols};
use std::sync::Arc;

const SOURCE: &str = "
    .text
    .globl caller, callee
    .type caller, @function
caller:
    call callee
    jne callee
    movl $callee, %eax
    call outside
    ret
    .size caller, . - caller
    .section .text.other, \"ax\"
    .type callee, @function
callee:
    ret
    .size callee, . - callee
    .section .note.GNU-stack
";
const AT: u64 = 0xf7d0_0000;

#[test]
fn calls_lead_where_the_dynamic_linker_lets_them_lead() {
    if !have(&[GCC]) {
        return;
    }
    let folder = Folder::new();
    folder.write("library.s", SOURCE);
    folder.run("gcc", &["-m32", "-nostdlib", "-shared", "-Wl,-z,notext", "-o", "library.so", "library.s"]);
    let binary = Arc::new(Binary::load(&folder.join("library.so"), &Search::default()).unwrap());
    let named = |name: &str| {
        let function = binary.functions().iter().find(|one| binary.name(one).as_deref() == Some(name)).unwrap();
        function.address
    };
    let (caller, callee) = (named("caller"), named("callee"));
    let mut image = Image::new();
    let size = binary.code(0).len() as u64;
    image.map(0, AT, size, 0, &binary, "library.so").unwrap();
    let code = |inside: u64, count: u64| -> Vec<u8> {
        let byte = |at| image.read(0, AT + caller + at).map(|slice| slice.bytes[0]);
        (inside..inside + count).map_while(byte).collect()
    };
    let leads = |code: &[u8], end: u64| {
        let displacement = i32::from_le_bytes(*code.last_chunk().unwrap());
        (caller + end).wrapping_add(displacement as u64)
    };
    let (call, jump) = (code(0, 5), code(5, 6));
    assert_eq!((call[0], leads(&call, 5)), (0xe8, callee));
    assert_eq!((&jump[..2], leads(&jump, 11)), (&[0x0f, 0x85][..], callee));
    let place = image.place(0, AT + caller + 1);
    assert_eq!(image.describe(place.space, place.function, AT + caller + 1).name, "caller");
    // What is no branch stays as it is in the file.
    assert_eq!(code(11, 5), &binary.code(caller + 11)[..5]);
    // Nothing says where that is: it is no instruction.
    assert_eq!((code(16, 5), binary.unknown_branches()), (vec![0xff; 5], 1));
    assert_eq!(code(21, 1), [0xc3]);
}

//! Any file is a binary whose functions, names, lines and code can be asked for, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pt_fuzz::MemoryFile;
use pt_image::{Binary, Search};
use std::cell::RefCell;

thread_local! {
    static FILE: RefCell<MemoryFile> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    let path = FILE.with_borrow_mut(|file| file.hold(bytes));
    let Ok(binary) = Binary::load(&path, &Search::default()) else { return };
    let addresses: Vec<_> = binary.functions().iter().map(|function| function.address).collect();
    for function in binary.functions() {
        binary.name(function);
        binary.frames(function.address);
        binary.find(function.address);
        binary.code(function.address);
        binary.caught_at(function.address);
    }
    binary.lines(&addresses);
});

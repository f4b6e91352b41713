//! Any file is a recording with streams that can be decoded, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pt_calls::Calls;
use pt_capture::{open, Options};
use pt_flow::Flow;
use pt_fuzz::MemoryFile;
use std::cell::RefCell;

thread_local! {
    static FILE: RefCell<MemoryFile> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    let path = FILE.with_borrow_mut(|file| file.hold(bytes));
    let Ok(capture) = open(&path, &Options::default()) else { return };
    let memory = capture.memory();
    for stream in &capture.streams {
        let mut calls = Calls::new(&memory);
        Flow::new(memory).decode(&stream.data, &capture.config, &stream.epochs, &mut calls);
        calls.finish();
    }
});

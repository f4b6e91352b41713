//! Whatever the flow tells, every instruction is in exactly one call, and every call has a caller that began before it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pt_calls::{Calls, NO_PARENT};
use pt_flow::{Config, Flow};
use pt_fuzz::{code_and_stream, CODE};
use pt_image::Image;

fuzz_target!(|input: &[u8]| {
    let (code, stream) = code_and_stream(input);
    let mut image = Image::new();
    if !code.is_empty() {
        image.code(1, CODE, code.to_vec()).expect("code in its first epoch");
    }
    let mut calls = Calls::new(&image);
    let statistics = Flow::new(&image).decode(stream, &Config::default(), &[(0, 1)], &mut calls);
    let trace = calls.finish();
    let told: u64 = trace.functions.iter().map(|function| function.self_instructions).sum();
    assert_eq!(told, statistics.instructions);
    for (row, &parent) in trace.records.parent.iter().enumerate() {
        assert!(parent == NO_PARENT || (parent as usize) < row, "call {row} has the caller {parent}");
    }
});

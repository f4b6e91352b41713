//! Whatever stands beside a recording, it is one with streams that can be decoded, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pt_calls::Calls;
use pt_capture::{list, open, pieces, Options, Threads, View};
use pt_flow::Flow;
use pt_fuzz::Folder;
use std::cell::RefCell;

thread_local! {
    static FOLDER: RefCell<Folder> = RefCell::default();
}

fuzz_target!(|input: &[u8]| {
    FOLDER.with_borrow_mut(|folder| {
        let path = folder.hold(input);
        let options = Options {
            symbols: vec![folder.path().to_owned()],
            vmlinux: folder.found("vmlinux"),
            images: folder.images(),
            ..Options::default()
        };
        let Ok(capture) = open(&path, &options) else { return };
        let memory = capture.memory();
        for stream in &capture.streams {
            pieces(stream, &capture.config, 64);
            let mut threads = Threads::new(&capture.views, |_| Calls::new(&memory));
            Flow::new(memory).decode(&stream.data, &capture.config, &stream.epochs, &mut threads);
            for mut calls in threads.finish().into_values() {
                for function in &calls.finish().functions {
                    memory.describe(function.space, function.function, function.address);
                }
            }
        }
        let all: Vec<_> = (0..capture.streams.len()).collect();
        for cores in capture.groups(&all).iter().filter(|group| group.len() > 1) {
            let make = |_: &View, _| Calls::new(&memory);
            let (sinks, _) = capture.decode_cores(cores, &mut Flow::new(memory), make, || panic!("it is whole"));
            sinks.finish().for_each(|(_, mut calls)| drop(calls.finish()));
        }
        list(&capture, &mut std::io::sink()).expect("a sink takes all");
    });
});

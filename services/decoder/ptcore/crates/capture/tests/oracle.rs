//! The packets of perf.data, of which there is no code, through libipt.
//!
//! Without a C compiler or libipt's headers the test says so and passes.

use crate::differential::{compare, oracle, Layer};
use crate::support;
use pt_capture::{open, Options};
use std::process::Command;

#[test]
fn packets_of_perf_data_are_those_that_libipt_reads() {
    let (Some(oracle), Some(data)) = (oracle(), support::reference_data()) else { return };
    let capture = open(&data.join("pt/perf/perf.data.intel_pt-4.14"), &Options::default()).unwrap();
    let mut packets = Vec::new();
    for (number, stream) in capture.streams.iter().enumerate() {
        let file = std::env::temp_dir().join(format!("pt-capture-differential-{}-{number}", std::process::id()));
        std::fs::write(&file, &stream.data[..]).unwrap();
        let mut command = Command::new(oracle.join("pt_oracle"));
        command.args(["--cpu", "6/78/3", "packets"]).arg(&file);
        let equal = compare(Layer::Packets, command, &stream.data, &capture.config, capture.memory(), &[]);
        std::fs::remove_file(&file).unwrap();
        let equal = equal.unwrap_or_else(|why| panic!("{}: {why}", stream.name));
        assert_eq!(equal.errors, 0, "{}", stream.name);
        packets.push(equal.packets);
    }
    println!("{packets:?}");
    assert!(packets.len() == 2 && packets.iter().sum::<u64>() > 80_000, "{packets:?}");
}

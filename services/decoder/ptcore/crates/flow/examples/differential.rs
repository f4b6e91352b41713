//! A stream that vpt recorded, through libipt and through this decoder:
//! `cargo run --release --example differential -- FOLDER STREAM`.
//!
//! Prints for each layer what was compared and found equal, or where the two differ first; exit code 1 at a difference.

#[path = "../tests/differential/mod.rs"]
mod differential;
#[path = "../tests/support/recording.rs"]
mod recording;

use differential::{as_libipt, compare, oracle, Layer};
use recording::Recording;
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, stream] = &arguments[..] else { panic!("usage: differential FOLDER STREAM") };
    let recording = Recording::open(Path::new(folder), stream.parse().expect("a stream's number"));
    let program = oracle().expect("libipt and a C compiler").join("vpt_listing");
    let mut code = ExitCode::SUCCESS;
    for layer in Layer::ALL {
        let mut command = Command::new(&program);
        command.args([layer.name(), folder, stream]);
        let Recording { packets, image, epochs, .. } = &recording;
        let config = &as_libipt(&recording.config);
        match compare(layer, command, packets, config, image, epochs) {
            Ok(equal) => println!("{}: {equal}", layer.name()),
            Err(difference) => {
                println!("{}: different: {difference}", layer.name());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

//! Each layer and libipt over the same streams, in turns: `pt-bench ROUNDS (FILE.griffin.gz | NAME=FOLDER:STREAM)...`.
//!
//! One JSON object a line for each input: what was decoded, and seconds of processor time by contender and round.

mod input;
mod libipt;

use input::Input;
use libipt::{cpu_seconds, Counts, Files, Peer};
use pt_calls::Calls;
use pt_flow::{Block, DisableKind, Flow, Loss, Sink, Statistics};
use pt_packet::Reader;
use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;

/// Rounds are at least this long for each contender, by repetition.
const LEAST_SECONDS: f64 = 0.04;

/// Takes everything and keeps nothing but the losses.
#[derive(Default)]
struct Nothing {
    losses: u64,
}

impl Sink for Nothing {
    #[inline(always)]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        black_box((block.start, tsc));
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {
        self.losses += 1;
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

/// Something that decodes the whole stream once.
struct Contender<'a> {
    name: &'static str,
    run: Box<dyn FnMut() + 'a>,
    repetitions: u32,
    seconds: Vec<f64>,
}

impl<'a> Contender<'a> {
    fn new(name: &'static str, mut run: impl FnMut() + 'a) -> Self {
        let start = cpu_seconds();
        run();
        let once = (cpu_seconds() - start).max(1e-6);
        let repetitions = (LEAST_SECONDS / once).ceil().max(1.0) as u32;
        Contender { name, run: Box::new(run), repetitions, seconds: Vec::new() }
    }

    fn round(&mut self) {
        let start = cpu_seconds();
        for _ in 0..self.repetitions {
            (self.run)();
        }
        self.seconds.push((cpu_seconds() - start) / f64::from(self.repetitions));
    }
}

fn packets(stream: &[u8]) -> u64 {
    let (mut reader, mut count) = (Reader::new(stream), 0);
    while reader.synchronize().is_some() {
        while let Ok(Some(packet)) = reader.read() {
            black_box(packet);
            count += 1;
        }
    }
    count
}

fn calls(input: &Input, flow: &mut Flow<&pt_image::Image>) -> (Statistics, usize) {
    let mut calls = Calls::new(&input.image);
    let statistics = flow.decode(&input.stream, &input.config, &input.epochs, &mut calls);
    (statistics, black_box(calls.finish()).records.len())
}

fn bench(input: &Input, rounds: usize) -> String {
    let files = Files::of(input).expect("a temporary folder");
    let peer = Peer::new(input, &files);
    let theirs = Counts { packets: peer.packets().packets, ..peer.blocks() };
    let (ours, rows) = calls(input, &mut Flow::new(&input.image));
    let mut only_flow = Flow::new(&input.image);
    let mut with_calls = Flow::new(&input.image);
    let decode = |flow: &mut Flow<_>| {
        black_box(flow.decode(&input.stream, &input.config, &input.epochs, &mut Nothing::default()));
    };
    let mut contenders = [
        Contender::new("libipt packets", || {
            black_box(peer.packets());
        }),
        Contender::new("packets", || {
            black_box(packets(&input.stream));
        }),
        Contender::new("libipt blocks", || {
            black_box(peer.blocks());
        }),
        Contender::new("flow", || decode(&mut only_flow)),
        Contender::new("calls", || {
            calls(input, &mut with_calls);
        }),
        Contender::new("libipt blocks cold", || {
            black_box(Peer::new(input, &files).blocks());
        }),
        Contender::new("calls cold", || {
            calls(input, &mut Flow::new(&input.image));
        }),
    ];
    for _ in 0..rounds {
        contenders.iter_mut().for_each(Contender::round);
    }
    let mut line = format!(
        "{{\"name\": \"{}\", \"bytes\": {}, \"packets\": {}, \"instructions\": {}, \"branches\": {}, \"rows\": {rows}, \
         \"losses\": {}, \"libipt\": {{\"packets\": {}, \"instructions\": {}, \"blocks\": {}, \"errors\": {}}}",
        input.name,
        input.stream.len(),
        ours.packets,
        ours.instructions,
        ours.conditional_branches,
        ours.errors,
        theirs.packets,
        theirs.instructions,
        theirs.blocks,
        theirs.errors
    );
    for contender in &contenders {
        let seconds = contender.seconds.iter().map(|seconds| format!("{seconds:.9}")).collect::<Vec<_>>();
        write!(line, ", \"{}\": [{}]", contender.name, seconds.join(", ")).expect("a string");
    }
    line + "}"
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let usage = "usage: pt-bench ROUNDS (FILE.griffin.gz | NAME=FOLDER:STREAM)...";
    let Some((rounds, inputs)) = arguments.split_first() else { panic!("{usage}") };
    let rounds = rounds.parse().expect(usage);
    for argument in inputs {
        let recording = argument.split_once('=').and_then(|(name, rest)| Some((name, rest.rsplit_once(':')?)));
        let input = match recording {
            Some((name, (folder, stream))) => input::recording(name, Path::new(folder), stream.parse().expect(usage)),
            None => input::griffin(Path::new(argument)),
        };
        println!("{}", bench(&input, rounds));
    }
}

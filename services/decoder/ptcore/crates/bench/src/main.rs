//! Each layer and libipt over the same streams, in turns: `pt-bench ROUNDS[:CONTENDER] (FILE.griffin.gz | NAME=FOLDER:STREAM)...`.
//!
//! One JSON object a line for each input: what was decoded, and seconds of processor time by contender and round.

mod cores;
mod input;
mod libipt;
mod overflows;

use cores::{Core, Cores};
use input::Input;
use libipt::{all_cpu_seconds, cpu_seconds, Counts, Files, Peer};
use pt_calls::{
    decode_calls_in_parts, Batch, Calls, Coverage, Divided, Edge, FunctionTotals, Helper, Output, Totals, PART_BYTES,
};
use pt_flow::{decode_in_parts, Block, DisableKind, Flow, Loss, Path, Sink, Statistics, Stream, Workers};
use pt_image::Image;
use pt_packet::Reader;
use std::fmt::Write;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Rounds are at least this long for each contender, by repetition: what the one before it left in the caches is soon gone, and
/// a core that was idle has woken up.
const LEAST_SECONDS: f64 = 0.25;

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
    #[inline(always)]
    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        black_box((path.id, tsc));
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
    clock: fn() -> f64,
}

impl<'a> Contender<'a> {
    /// By processor time of this thread.
    fn new(name: &'static str, run: impl FnMut() + 'a) -> Self {
        Contender::by(cpu_seconds, name, run)
    }

    fn by(clock: fn() -> f64, name: &'static str, mut run: impl FnMut() + 'a) -> Self {
        let start = clock();
        run();
        let once = (clock() - start).max(1e-6);
        let repetitions = (LEAST_SECONDS / once).ceil().max(1.0) as u32;
        Contender { name, run: Box::new(run), repetitions, seconds: Vec::new(), clock }
    }

    fn round(&mut self) {
        let start = (self.clock)();
        for _ in 0..self.repetitions {
            (self.run)();
        }
        self.seconds.push(((self.clock)() - start) / f64::from(self.repetitions));
    }
}

/// Time that passes, for what several threads do.
fn wall_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Edges by so many threads, each of which begins cold.
fn edges_by(input: &Input, threads: usize) -> (Statistics, Vec<(Edge, u64)>) {
    let mut edges: Vec<(Edge, u64)> = Vec::new();
    let fold = |part: Vec<(Edge, u64)>| edges.extend(part);
    let stream = Stream { data: &input.stream, config: &input.config, epochs: &input.epochs, missing: &[] };
    let workers = Workers { threads, part_bytes: PART_BYTES_OF_EDGES };
    let statistics =
        decode_in_parts(&input.image, stream, workers, Coverage::default, |_, coverage| coverage.finish(), fold);
    edges.sort_unstable_by_key(|&(edge, _)| edge);
    edges.dedup_by(|again, first| {
        let same = again.0 == first.0;
        first.1 += if same { again.1 } else { 0 };
        same
    });
    (statistics, edges)
}

fn packets(stream: &[u8]) -> u64 {
    let (mut reader, mut count) = (Reader::new(stream), 0);
    while reader.synchronize().is_some() {
        // By reference: a copy of what was just written in parts would wait until all of it is.
        while let Ok(Some(packet)) = &reader.read() {
            black_box(packet);
            count += 1;
        }
    }
    count
}

/// Rows that the service takes at once, at first and later.
const FIRST_ROWS: usize = 1 << 18;
const ROWS: usize = 1 << 15;
/// Of a stream of which several threads count the edges.
const PART_BYTES_OF_EDGES: usize = 1 << 20;
/// Bytes between the overflows of a stream that has some.
const OVERFLOW_EVERY: usize = 1 << 20;

/// Takes batches of calls as the service does, and keeps none. `again`: their columns are used again, else each batch is
/// written to fresh memory.
struct Taken {
    rows: usize,
    again: bool,
}

impl Taken {
    fn new(again: bool) -> Self {
        Taken { rows: FIRST_ROWS, again }
    }
}

impl Output for Taken {
    fn rows(&self) -> usize {
        self.rows
    }

    fn takes_addresses(&self) -> bool {
        false
    }

    fn take(&mut self, batch: Batch<'_>) {
        black_box(&batch.calls.call);
        if !self.again {
            drop(std::mem::take(batch.calls));
        }
        self.rows = ROWS;
    }
}

/// A flow and the calls that it tells, warm after the first stream.
struct Warm<'a> {
    input: &'a Input,
    flow: Flow<&'a Image>,
    calls: Calls<&'a Image, Taken>,
}

impl<'a> Warm<'a> {
    fn new(input: &'a Input) -> Self {
        Warm::taken_by(input, Taken::new(true))
    }

    fn taken_by(input: &'a Input, taken: Taken) -> Self {
        let calls = Calls::handing_out(&input.image, taken);
        Warm { input, flow: Flow::new(&input.image), calls }
    }

    fn decode(&mut self) -> (Statistics, Totals) {
        let Input { stream, config, epochs, .. } = self.input;
        self.calls.output().rows = FIRST_ROWS;
        let statistics = self.flow.decode(stream, config, epochs, &mut self.calls);
        (statistics, black_box(self.calls.end_stream()))
    }
}

/// The same by several threads.
struct Many<'a> {
    whole: Warm<'a>,
    helpers: Vec<Helper<&'a Image, &'a Image>>,
}

impl<'a> Many<'a> {
    fn new(input: &'a Input, threads: usize) -> Self {
        let helpers = (0..threads).map(|_| Helper::new(&input.image, &input.image)).collect();
        Many { whole: Warm::new(input), helpers }
    }

    fn decode(&mut self) -> (Divided, Totals) {
        let Warm { input, flow, calls } = &mut self.whole;
        let stream = Stream { data: &input.stream, config: &input.config, epochs: &input.epochs, missing: &[] };
        calls.output().rows = FIRST_ROWS;
        let divided = decode_calls_in_parts(flow, calls, &mut self.helpers, stream, PART_BYTES);
        let mut totals = calls.end_stream();
        for helper in &mut self.helpers {
            totals.add_edges(helper.calls.take_edges());
        }
        (divided, black_box(totals))
    }
}

/// Functions in an order that does not depend on who met them first.
fn ordered(totals: &Totals) -> Vec<String> {
    let mut told: Vec<_> = totals.functions.iter().map(|one: &FunctionTotals| format!("{one:?}")).collect();
    told.sort();
    told
}

/// `lossy`: the same with overflows in it.
fn bench(input: &Input, lossy: Option<&Input>, rounds: usize, only: Option<&str>) -> String {
    let files = Files::of(input).expect("a temporary folder");
    let peer = Peer::new(input, &files);
    let theirs = Counts { packets: peer.packets().packets, ..peer.blocks() };
    let mut warm = Warm::new(input);
    let (ours, totals) = warm.decode();
    let rows = totals.calls;
    // What became known of code without symbols divides it from the outset.
    let (_, known) = warm.decode();
    let memory = warm.flow.memory() + warm.calls.memory();
    let mut fresh = Warm::taken_by(input, Taken::new(false));
    let (mut edges_of, mut coverage) = (Flow::new(&input.image), Coverage::default());
    let mut only_flow = Flow::new(&input.image);
    let (statistics, edges) = edges_by(input, 2);
    assert_eq!(statistics, ours, "{}: by two threads", input.name);
    assert!(edges == totals.edges, "{}: edges by two threads", input.name);
    let mut many = Many::new(input, 2);
    let tell = |Divided { parts, again, .. }: &Divided, pass: &str| {
        eprintln!("{}: {parts} parts by two threads, {again} of them once more, {pass}", input.name);
    };
    for (pass, totals) in [("cold", &totals), ("warm", &known)] {
        let (divided, by_two) = many.decode();
        tell(&divided, pass);
        assert_eq!(divided.statistics, ours, "{}: calls by two threads", input.name);
        assert!(by_two.edges == totals.edges, "{}: edges of calls by two threads", input.name);
        assert_eq!(ordered(&by_two), ordered(totals), "{}: functions by two threads, {pass}", input.name);
    }
    let mut lossy = lossy.map(|lossy| (Warm::new(lossy), Many::new(lossy, 2)));
    if let Some((one, two)) = &mut lossy {
        let ((statistics, totals), (divided, by_two)) = (one.decode(), two.decode());
        tell(&divided, &format!("with {} overflows", statistics.ovf));
        assert_eq!(divided.statistics, statistics, "{}: calls by two threads with overflows", input.name);
        assert_eq!(ordered(&by_two), ordered(&totals), "{}: functions by two threads with overflows", input.name);
    }
    let core = Core::new(input);
    let mut of_core = Flow::new(core.memory());
    assert_eq!(core.decode(&mut of_core), (ours, rows), "{}: calls of a core", input.name);
    let cores = Cores::new(input);
    let (mut one_flow, mut two_flows) = ([cores.flow()], [cores.flow(), cores.flow()]);
    assert_eq!(cores.decode(&mut one_flow), 2 * rows, "{}: calls of two cores", input.name);
    assert_eq!(cores.decode(&mut two_flows), 2 * rows, "{}: calls of two cores by two flows", input.name);
    let mut once_more = Many::new(input, 2);
    once_more.decode();
    let mut alone = Warm::new(input);
    alone.decode();
    let decode = |flow: &mut Flow<_>| {
        black_box(flow.decode(&input.stream, &input.config, &input.epochs, &mut Nothing::default()));
    };
    let mut contenders = vec![
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
        Contender::new("edges", || {
            edges_of.decode(&input.stream, &input.config, &input.epochs, &mut coverage);
            black_box(coverage.finish());
        }),
        Contender::by(wall_seconds, "edges by one", || {
            black_box(edges_by(input, 1));
        }),
        Contender::by(wall_seconds, "edges by two", || {
            black_box(edges_by(input, 2));
        }),
        Contender::new("calls", || {
            warm.decode();
        }),
        Contender::by(wall_seconds, "calls by one", || {
            alone.decode();
        }),
        Contender::by(wall_seconds, "calls by two", || {
            many.decode();
        }),
        Contender::by(all_cpu_seconds, "calls by two, processor", || {
            once_more.decode();
        }),
        Contender::new("calls of a core", || {
            black_box(core.decode(&mut of_core));
        }),
        Contender::by(wall_seconds, "calls of two cores by one", || {
            black_box(cores.decode(&mut one_flow));
        }),
        Contender::by(wall_seconds, "calls of two cores by two", || {
            black_box(cores.decode(&mut two_flows));
        }),
        Contender::new("calls to fresh memory", || {
            fresh.decode();
        }),
        Contender::new("libipt blocks cold", || {
            black_box(Peer::new(input, &files).blocks());
        }),
        Contender::new("calls cold", || {
            Warm::new(input).decode();
        }),
    ];
    if let Some((one, two)) = &mut lossy {
        contenders.push(Contender::by(wall_seconds, "with overflows by one", || {
            one.decode();
        }));
        contenders.push(Contender::by(wall_seconds, "with overflows by two", || {
            two.decode();
        }));
    }
    for _ in 0..rounds {
        contenders.iter_mut().filter(|one| only.is_none_or(|only| one.name == only)).for_each(Contender::round);
    }
    let mut line = format!(
        "{{\"name\": \"{}\", \"bytes\": {}, \"packets\": {}, \"instructions\": {}, \"branches\": {}, \"rows\": {rows}, \
         \"losses\": {}, \"memory\": {memory}, \"libipt\": {{\"packets\": {}, \"instructions\": {}, \"blocks\": {}, \"errors\": {}}}",
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
    let usage = "usage: pt-bench ROUNDS[:CONTENDER] (FILE.griffin.gz | NAME=FOLDER:STREAM)...";
    let Some((rounds, inputs)) = arguments.split_first() else { panic!("{usage}") };
    let (rounds, only) = rounds.split_once(':').map_or((&rounds[..], None), |(rounds, only)| (rounds, Some(only)));
    let rounds = rounds.parse().expect(usage);
    for argument in inputs {
        let recording = argument.split_once('=').and_then(|(name, rest)| Some((name, rest.rsplit_once(':')?)));
        let read = || match recording {
            Some((name, (folder, stream))) => input::recording(name, folder.as_ref(), stream.parse().expect(usage)),
            None => input::griffin(argument.as_ref()),
        };
        let input = read();
        let lossy = (input.stream.len() > 2 * OVERFLOW_EVERY).then(|| {
            let mut lossy = read();
            overflows::put_into(&mut lossy, OVERFLOW_EVERY);
            lossy
        });
        println!("{}", bench(&input, lossy.as_ref(), rounds, only));
    }
}

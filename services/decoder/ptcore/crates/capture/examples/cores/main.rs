//! What cores recorded, divided by thread, against what the plugin that was their trace unit logged of each thread:
//! `cargo run --example cores -- RECORDING FOLDER`.
//!
//! RECORDING is a folder NUMBER in an archive of `kmod/qemu/archive.h`, ARCHIVE/NUMBER, or the folder of a session in an object
//! store, with a `pointers.txt`: tid and thread pointer of each thread. FOLDER has `threads.txt`, `units.txt` and the truth of
//! `kmod/qemu/unit/truth.c`. Exit code 1 at a difference. Where threads of several processes have one thread pointer, as after
//! a fork, nothing tells whose a log is: each instruction must have been decoded as often as it ran.
//!
//! Then one stay on a core is given to another thread, which must be a difference: not where a buffer was full, since threads
//! of a ring do the same and where the end is cut off one stay more or less is none that can be seen. Of a snapshot, which has
//! not kept the beginning, what each thread ran last is compared.

#[path = "../../../flow/tests/support/truth_log.rs"]
mod truth_log;

mod recorded;

use pt_capture::{open, Memory, Options, View};
use pt_flow::{Block, Config, DisableKind, Flow, Loss, Reason, Sink};
use pt_image::Image;
use recorded::{images_of, of_files, of_session, text, unpack, CoreRecorded, Recorded};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::ExitCode;
use truth_log::{Log, Truth};

/// A thread on a core, for as long as no other one is there.
#[derive(Clone)]
struct Stay {
    core: usize,
    tid: u32,
    /// Those of a thread are in this order: how often it had come from another core, and where in this one's packets.
    order: (u32, usize),
    /// TSC ticks.
    arrived: u64,
    addresses: Vec<u64>,
}

/// The stays on a core, and the stay of each of its turns.
fn stays(core: usize, turns: &[(usize, View)]) -> (Vec<Stay>, Vec<usize>) {
    let (mut stays, mut of_turns): (Vec<Stay>, Vec<usize>) = (Vec::new(), Vec::new());
    for &(offset, View { tid, stay, .. }) in turns {
        if stays.last().is_none_or(|last| (last.tid, last.order.0) != (tid, stay)) {
            stays.push(Stay { core, tid, order: (stay, offset), arrived: 0, addresses: Vec::new() });
        }
        of_turns.push(stays.len() - 1);
    }
    (stays, of_turns)
}

struct Core<'s> {
    stays: &'s mut [Stay],
    of_turns: &'s [usize],
    full: bool,
    losses: u64,
}

impl Sink for Core<'_> {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        let stay = &mut self.stays[self.of_turns[block.epoch as usize]];
        if stay.addresses.is_empty() {
            stay.arrived = tsc;
        }
        stay.addresses.extend(block.addresses());
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    /// A full buffer may end inside a packet.
    fn loss(&mut self, loss: &Loss) {
        println!("# {loss:?}");
        self.losses += u64::from(!(self.full && loss.reason == Reason::TruncatedPacket));
    }
    fn overflow(&mut self, offset: usize, _: Option<u64>, _: u64) {
        println!("# an overflow at {offset}");
        self.losses += 1;
    }
}

/// What each stay on the core ran; and how much was lost.
fn decode(core: usize, recorded: &CoreRecorded<'_>, images: &[&Image], config: &Config) -> (Vec<Stay>, u64) {
    let CoreRecorded { packets, turns, full, .. } = recorded;
    let (mut stays, of_turns) = stays(core, turns);
    // One for each turn, so that a block tells the stay that it belongs to.
    let views = (0..).zip(turns).map(|(number, &(_, view))| View { stay: number, ..view }).collect();
    let epochs: Vec<_> = turns.iter().map(|&(offset, _)| offset).zip(0..).collect();
    let mut sink = Core { stays: &mut stays, of_turns: &of_turns, full: *full, losses: 0 };
    Flow::new(Memory::of(images, &views, None)).decode(packets, config, &epochs, &mut sink);
    let losses = sink.losses;
    let (bytes, instructions) = (packets.len(), stays.iter().map(|stay| stay.addresses.len()).sum::<usize>());
    println!("# core {core}: {bytes} bytes, {} stays, {instructions} instructions, {losses} losses", stays.len());
    (stays, losses)
}

/// What the core ran of the one process, and of the kernel for it: threads follow each other there between two
/// instructions that nothing tells. And how much was lost.
fn decode_with_kernel(core: usize, recorded: &CoreRecorded<'_>, images: &[&Image], config: &Config) -> (Stay, u64) {
    let CoreRecorded { packets, full, .. } = recorded;
    let views = [View { pid: 1, tid: 1, image: 1, epoch: 0, kernel: 0, stay: 0 }].into_iter().collect();
    let mut all = [Stay { core, tid: core as u32, order: (0, 0), arrived: 0, addresses: Vec::new() }];
    let mut sink = Core { stays: &mut all, of_turns: &[0], full: *full, losses: 0 };
    Flow::new(Memory::of(images, &views, Some(0))).decode(packets, config, &[], &mut sink);
    let losses = sink.losses;
    let [all] = all;
    let kernel = all.addresses.iter().filter(|&&address| address >> 63 == 1).count();
    let (bytes, instructions) = (packets.len(), all.addresses.len());
    println!("# core {core}: {bytes} bytes, {instructions} instructions, {kernel} of the kernel, {losses} losses");
    (all, losses)
}

/// Whether what was decoded of a thread is what it ran, and how many instructions are; `cut`: a core's buffer was full, and
/// what the unit still held is logged but not in it.
fn compare(tid: u32, stays: &[Stay], mut log: Log, cut: bool) -> (bool, u64) {
    let mut equal = 0;
    for address in stays.iter().flat_map(|stay| &stay.addresses) {
        match log.next() {
            Truth::Instruction(truth) if truth == *address => equal += 1,
            Truth::Instruction(truth) => {
                println!("# thread {tid}, instruction {equal}: truth {truth:x}, decoded {address:x}");
                return (false, equal);
            }
            Truth::Gap => {
                println!("# thread {tid}: the unit lost track behind instruction {equal}");
                return (false, equal);
            }
            Truth::End => {
                println!("# thread {tid}: {address:x} is decoded behind the last instruction {equal} of the truth");
                return (false, equal);
            }
        }
    }
    let missing = std::iter::from_fn(|| matches!(log.next(), Truth::Instruction(_)).then_some(())).count();
    if missing > 0 {
        println!("# thread {tid}: {missing} instructions ran behind the {equal} that are decoded");
    }
    (missing == 0 || (cut && missing as u64 * 4 <= equal), equal)
}

/// Whether what was decoded of a thread is what it ran last, and how many instructions that is.
fn compare_last(tid: u32, stays: &[Stay], mut log: Log) -> (bool, u64) {
    let told = std::iter::from_fn(|| match log.next() {
        Truth::Instruction(address) => Some(address),
        // No instruction stands there.
        Truth::Gap => Some(u64::MAX),
        Truth::End => None,
    });
    let truth: Vec<u64> = told.collect();
    let decoded: Vec<u64> = stays.iter().flat_map(|stay| stay.addresses.iter().copied()).collect();
    let equal = truth.iter().rev().zip(decoded.iter().rev()).take_while(|(truth, decoded)| truth == decoded).count();
    if equal < decoded.len() {
        println!("# thread {tid}: the last {equal} instructions of {} that are decoded are the truth's", decoded.len());
    }
    (equal == decoded.len(), equal as u64)
}

/// From when on all cores have all that ran: a snapshot's first stay may have lost its beginning.
fn whole_since(cores: &[(Vec<Stay>, bool)]) -> u64 {
    let second =
        |stays: &[Stay]| stays.iter().filter(|stay| !stay.addresses.is_empty()).nth(1).map(|stay| stay.arrived);
    let begins = cores.iter().filter(|(_, overwritten)| *overwritten).map(|(stays, _)| second(stays));
    begins.map(|begin| begin.unwrap_or(u64::MAX)).max().unwrap_or(0)
}

/// Leaves the stays from a time on. One that a thread left for another that is not from then on is not either, whatever its time: the
/// order is that of the switches, the time that of the last clock packet on the core.
fn drop_before(since: u64, stays: &mut Vec<Stay>) {
    let mut before: HashMap<u32, (u32, usize)> = HashMap::new();
    for Stay { tid, order, .. } in stays.iter().filter(|stay| !stay.addresses.is_empty() && stay.arrived < since) {
        let last = before.entry(*tid).or_default();
        *last = (*last).max(*order);
    }
    stays.retain(|stay| stay.arrived >= since && before.get(&stay.tid).is_none_or(|&last| stay.order > last));
}

/// The stays of each thread in the order of their times, and how often one went on on another core.
fn by_thread(mut stays: Vec<Stay>) -> (BTreeMap<u32, Vec<Stay>>, u32) {
    stays.sort_by_key(|stay| stay.order);
    let mut threads: BTreeMap<u32, Vec<Stay>> = BTreeMap::new();
    for stay in stays.into_iter().filter(|stay| !stay.addresses.is_empty()) {
        threads.entry(stay.tid).or_default().push(stay);
    }
    let moves = |stays: &Vec<Stay>| stays.windows(2).filter(|pair| pair[0].core != pair[1].core).count() as u32;
    let migrations = threads.values().map(moves).sum();
    (threads, migrations)
}

/// A stay is said to be that of the thread that comes next; false where no two threads ran on one core. One of the `last`: what a
/// thread ran last is that also without its beginning.
fn exchange(stays: &mut [Stay], last: bool) -> bool {
    let ran: Vec<_> = (0..stays.len()).filter(|&number| !stays[number].addresses.is_empty()).collect();
    let alike = |one: &Stay, next: &Stay| one.core == next.core && one.tid != next.tid;
    let mut pairs = ran.windows(2).filter(|pair| alike(&stays[pair[0]], &stays[pair[1]]));
    let found = if last { pairs.next_back() } else { pairs.next() };
    match found {
        Some(&[one, next]) => {
            stays[one].tid = stays[next].tid;
            true
        }
        _ => false,
    }
}

/// A thread of the unit's log.
struct Logged {
    number: u32,
    space: String,
    pointer: String,
}

/// Threads of one address space must have thread pointers of their own.
fn logged(folder: &Path) -> Vec<Logged> {
    let logged = |line: &str| {
        let [number, space, pointer] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("threads.txt: {line}") };
        Logged { number: number.parse().expect("a number"), space: space.to_owned(), pointer: pointer.to_owned() }
    };
    let all: Vec<_> = text(folder, "threads.txt").lines().map(logged).collect();
    let mut known = HashSet::new();
    for Logged { space, pointer, .. } in &all {
        assert!(known.insert((space, pointer)), "two threads of {space} have the thread pointer {pointer}");
    }
    all
}

/// Whether each instruction was decoded as often as it ran, and how many are. Where threads of several processes have one thread
/// pointer, as after a fork, nothing tells whose a log is.
fn compare_counts(stays: &[Stay], logged: &[Logged], folder: &Path) -> (bool, i64) {
    let mut counts: HashMap<u64, i64> = HashMap::new();
    for Logged { number, .. } in logged {
        let mut log = Log::open(folder, *number);
        while let Truth::Instruction(address) = log.next() {
            *counts.entry(address).or_default() += 1;
        }
    }
    let total = counts.values().sum();
    stays.iter().flat_map(|stay| &stay.addresses).for_each(|address| *counts.entry(*address).or_default() -= 1);
    let different = counts.values().filter(|&&count| count != 0).count();
    println!(
        "# {total} instructions ran, at {} addresses, {different} of them more or less often than is decoded",
        counts.len()
    );
    (different == 0, total)
}

/// What the units saw of control is what the module counted.
fn control(units: &str, session: &str) -> bool {
    let counted = |line: &str, name: &str| -> Option<u64> {
        line.split(' ').skip_while(|word| *word != name).nth(1).and_then(|word| word.parse().ok())
    };
    let number = |line: &str, name: &str| counted(line, name).unwrap_or_else(|| panic!("no {name} in {line}"));
    let same = |(unit, core): (&str, &str)| {
        let told = |name| number(core, name);
        let controlled = |unit_told, counter| {
            counted(core, counter).is_none_or(|times| number(unit, unit_told) == times + told("retargets"))
        };
        let bytes = match counted(core, "overwritten") {
            Some(_) => number(unit, "bytes") > told("bytes"),
            None => number(unit, "bytes") == told("bytes"),
        };
        controlled("begun", "on")
            && controlled("ended", "off")
            && bytes
            && number(unit, "refused") == 0
            && number(unit, "unexplained") == 0
    };
    // A core where nothing of the target ran may be left out by one and told by the other.
    let units: Vec<&str> = units.lines().filter(|unit| number(unit, "begun") > 0).collect();
    let session: Vec<&str> = session.lines().filter(|core| number(core, "bytes") > 0).collect();
    units.len() == session.len() && units.into_iter().zip(session).all(same)
}

/// Compares every thread with its log, or with its end (`last`): how many were compared, how many differ, how many instructions are equal.
fn judge(
    threads: &BTreeMap<u32, Vec<Stay>>,
    pointers: &str,
    logged: &[Logged],
    folder: &Path,
    cut: bool,
    last: bool,
) -> (usize, u32, u64) {
    let pointer = |line: &'_ str| line.split_once(' ').map(|(tid, at)| (tid.parse().expect("a tid"), at.to_owned()));
    let pointers: HashMap<u32, String> = pointers.lines().filter_map(pointer).collect();
    let (mut compared, mut different, mut total) = (0, 0, 0);
    for (tid, stays) in threads {
        let of_thread = |pointer: &String| logged.iter().find(|logged| logged.pointer == *pointer);
        let Some(Logged { number, .. }) = pointers.get(tid).and_then(of_thread) else {
            println!("# thread {tid}: something is decoded, the unit knows nothing of it");
            different += 1;
            continue;
        };
        let log = Log::open(folder, *number);
        let (same, equal) = if last { compare_last(*tid, stays, log) } else { compare(*tid, stays, log, cut) };
        (compared, different, total) = (compared + 1, different + u32::from(!same), total + equal);
    }
    (compared, different, total)
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [recording, folder] = &arguments[..] else { panic!("usage: cores RECORDING FOLDER") };
    let (recording, folder) = (Path::new(recording), Path::new(folder));
    let (capture, archive, own);
    let recorded = if recording.is_dir() {
        capture = open(recording, &Options::default()).expect("a session");
        of_session(recording, &capture)
    } else {
        archive = std::fs::read(recording.parent().expect("ARCHIVE/NUMBER")).expect("the recording");
        let number = recording.file_name().and_then(|number| number.to_str()).expect("ARCHIVE/NUMBER");
        let files = unpack(&archive, number);
        own = images_of(&files);
        of_files(&files, &own)
    };
    let Recorded { cores, config, images, processes, with_kernel, session, pointers } = recorded;
    let units = text(folder, "units.txt");
    print!("{}", units.lines().map(|line| format!("# unit of {line}\n")).collect::<String>());
    let (mut all, mut lost, mut cut) = (Vec::new(), 0, false);
    for (core, recorded) in cores.iter().enumerate() {
        let (stays, losses) = if with_kernel {
            let (all, losses) = decode_with_kernel(core, recorded, &images, &config);
            (vec![all], losses)
        } else {
            decode(core, recorded, &images, &config)
        };
        all.push((stays, recorded.overwritten));
        (lost, cut) = (lost + losses, cut | recorded.full);
    }
    let (since, last) = (whole_since(&all), all.iter().any(|(_, overwritten)| *overwritten));
    let mut all: Vec<Stay> = all.into_iter().flat_map(|(stays, _)| stays).collect();
    drop_before(since, &mut all);
    let (agreed, logged) = (control(&units, &session), logged(folder));
    let also = if agreed { "" } else { " (the module's counts are not what the units saw)" };
    if logged.iter().map(|logged| &logged.pointer).collect::<HashSet<_>>().len() < logged.len() {
        let (same, total) = compare_counts(&all, &logged, folder);
        let good = lost == 0 && same && total > 0 && agreed;
        println!("{}ok - each instruction was recorded as often as it ran{also}", if good { "" } else { "not " });
        return ExitCode::from(u8::from(!good));
    }
    let mut exchanged = all.clone();
    let (threads, migrations) = by_thread(all);
    // The unit's logs are those of cores; exchanged, each is held against the other's.
    let (pointers, exchanged_pointers) = match with_kernel {
        true => ("0 0\n1 1\n".into(), "0 1\n1 0\n".into()),
        false => (pointers.clone(), pointers),
    };
    let (compared, different, total) = judge(&threads, &pointers, &logged, folder, cut, last);
    let spaces = logged.iter().map(|logged| &logged.space).collect::<HashSet<_>>().len();
    let what = if with_kernel { "cores" } else { "threads" };
    println!(
        "# {compared} of {} {what} compared, {total} instructions equal, {migrations} migrations, {spaces} of {} address \
         spaces",
        logged.len(),
        processes
    );
    let good = lost == 0 && different == 0 && compared == logged.len() && spaces == processes && total > 0 && agreed;
    println!("{}ok - what was recorded of each thread is what it ran{also}", if good { "" } else { "not " });
    let seen = if cut {
        true
    } else if with_kernel || exchange(&mut exchanged, last) {
        println!("# exchanged:");
        judge(&by_thread(exchanged).0, &exchanged_pointers, &logged, folder, cut, last).1 > 0
    } else {
        println!("# no two threads ran on one core: there is nothing to exchange");
        true
    };
    if !seen {
        println!("not ok - a stay that is given to another thread is no difference");
    }
    ExitCode::from(u8::from(!(good && seen)))
}

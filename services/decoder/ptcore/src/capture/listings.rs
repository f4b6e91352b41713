//! What is listed of a stream: its flow, its calls, its functions.

use pt_calls::{Calls, Output};
use pt_capture::{Of, Threads};
use pt_flow::Flow;
use pt_listing::{
    functions, stop, write_calls, CallListing, CallWriter, Chains, Detail, Dropped, FlowListing, Inlined, Lines, Only,
    Who,
};
use std::collections::BTreeMap;

/// Who ran when the packet at the offset was written.
pub fn thread_at(capture: &pt_capture::Capture, stream: &pt_capture::Stream, offset: usize) -> u32 {
    let next = stream.epochs.partition_point(|&(from, _)| from <= offset);
    let view = stream.epochs[..next].last().and_then(|&(_, view)| capture.views.get(view as usize));
    match (view, stream.of) {
        (Some(view), _) => view.tid,
        (None, Of::Thread { tid, .. }) => tid,
        (None, Of::Core(_)) => 0,
    }
}

pub fn list_flow(
    capture: &pt_capture::Capture,
    number: usize,
    detail: Detail,
    thread: Option<u32>,
    lines: &mut Lines<'_>,
) -> Vec<String> {
    let (stream, memory) = (&capture.streams[number], capture.memory());
    let mut flow = Flow::new(memory);
    let mut sink = FlowListing::new(memory, Who(&capture.views), &stream.name, detail, lines);
    match thread {
        None => capture.decode(number, &mut flow, &mut sink, stop),
        Some(tid) => {
            let mut wanted = Some(sink);
            let make = |view: &pt_capture::View| Only(if view.tid == tid { wanted.take() } else { None });
            let mut threads = Threads::new(&capture.views, make);
            let warnings = capture.decode(number, &mut flow, &mut threads, stop);
            threads.finish();
            warnings
        }
    }
}

/// Names the thread of a core's stream.
fn title(stream: &pt_capture::Stream, (pid, tid): (u32, u32)) -> Option<String> {
    matches!(stream.of, Of::Core(_)).then(|| format!("{}, thread {tid} of process {pid}", stream.name))
}

/// `threads`: who write the calls.
pub fn list_calls(
    capture: &pt_capture::Capture,
    number: usize,
    thread: Option<u32>,
    inlined: bool,
    max_depth: u32,
    threads: usize,
    lines: &mut Lines<'_>,
) -> Vec<String> {
    let (stream, code) = (&capture.streams[number], capture.memory());
    let mut warnings = Vec::new();
    let writer = || CallWriter { code, stream: &stream.name, max_depth, chains: inlined.then(Chains::default) };
    write_calls(threads, lines, writer, |page| {
        let listing = |thread| CallListing::new(code, thread, title(stream, thread), page);
        let followed = follow(capture, number, thread, listing);
        for mut calls in followed.threads.into_values() {
            calls.end_stream();
        }
        warnings = followed.warnings;
    });
    warnings
}

pub fn list_functions(
    capture: &pt_capture::Capture,
    number: usize,
    thread: Option<u32>,
    categories: &pt_image::Categories,
    inlined: bool,
    lines: &mut Lines<'_>,
) -> Vec<String> {
    let (stream, code) = (&capture.streams[number], capture.memory());
    let Followed { flow, threads, warnings } = follow(capture, number, thread, |_| Dropped);
    for (thread, mut calls) in threads {
        let inlined = inlined.then(|| Inlined::of(&flow, &code, &calls.blocks()));
        let totals = calls.end_stream();
        let title = title(stream, thread);
        // The idle thread has losses at most.
        if title.is_some() && totals.functions.is_empty() {
            continue;
        }
        if let Some(title) = title {
            lines.title(&title);
        }
        functions(&totals.functions, &code, categories, inlined.as_ref(), &stream.name, thread, lines);
    }
    warnings
}

/// What has followed the threads of a stream.
struct Followed<'c, O> {
    flow: Flow<pt_capture::Memory<'c>>,
    threads: BTreeMap<(u32, u32), Calls<pt_capture::Memory<'c>, O>>,
    warnings: Vec<String>,
}

/// The calls of a stream's threads; of one where a thread is given.
fn follow<'c, O: Output>(
    capture: &'c pt_capture::Capture,
    number: usize,
    thread: Option<u32>,
    output: impl Fn((u32, u32)) -> O,
) -> Followed<'c, O> {
    let (stream, memory) = (&capture.streams[number], capture.memory());
    let mut flow = Flow::new(memory);
    if let Of::Thread { pid, tid } = stream.of {
        let mut calls = Calls::handing_out(memory, output((pid, tid)));
        let warnings = capture.decode(number, &mut flow, &mut calls, stop);
        return Followed { flow, threads: BTreeMap::from([((pid, tid), calls)]), warnings };
    }
    let mut pids = BTreeMap::new();
    let mut threads = Threads::new(&capture.views, |view: &pt_capture::View| {
        pids.insert(view.tid, view.pid);
        let wanted = thread.is_none() || thread == Some(view.tid);
        Only(wanted.then(|| Calls::handing_out(memory, output((view.pid, view.tid)))))
    });
    let warnings = capture.decode(number, &mut flow, &mut threads, stop);
    let sinks = threads.finish();
    let threads = sinks.into_iter().filter_map(|(tid, sink)| Some(((pids[&tid], tid), sink.0?))).collect();
    Followed { flow, threads, warnings }
}

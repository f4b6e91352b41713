//! What is listed of a stream: its flow, its calls, its functions.

use pt_calls::{Calls, Output};
use pt_capture::{Of, Threads, View};
use pt_flow::Flow;
use pt_listing::{
    functions, stop, write_calls, CallListing, CallWriter, Chains, Detail, Dropped, FlowListing, Inlined, Lines, Only,
    Thread, Who,
};

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
            // Of all threads that had the number, one behind the other.
            let views: Vec<_> = capture.views.iter().map(|&view| pt_capture::View { pid: 0, ..view }).collect();
            let mut threads = Threads::new(&views, make).switching_at(capture.config.thread_switch);
            let warnings = capture.decode(number, &mut flow, &mut threads, stop);
            threads.finish();
            warnings
        }
    }
}

/// The calls of streams that belong together ([`pt_capture::Capture::groups`]). `threads`: who write them.
pub fn list_calls(
    capture: &pt_capture::Capture,
    streams: &[usize],
    thread: Option<u32>,
    inlined: bool,
    max_depth: u32,
    threads: usize,
    lines: &mut Lines<'_>,
) -> Vec<String> {
    let code = capture.memory();
    let mut warnings = Vec::new();
    let writer = || CallWriter { code, max_depth, chains: inlined.then(Chains::default) };
    write_calls(threads, lines, writer, |page| {
        let followed = follow(capture, streams, thread, |thread| CallListing::new(code, thread.clone(), page));
        for (_, mut calls) in followed.threads {
            calls.end_stream();
        }
        warnings = followed.warnings;
    });
    warnings
}

pub fn list_functions(
    capture: &pt_capture::Capture,
    streams: &[usize],
    thread: Option<u32>,
    categories: &pt_image::Categories,
    inlined: bool,
    lines: &mut Lines<'_>,
) -> Vec<String> {
    let code = capture.memory();
    let Followed { flow, threads, warnings } = follow(capture, streams, thread, |_| Dropped);
    for (thread, mut calls) in threads {
        let totals = calls.end_stream();
        let inlined = inlined.then(|| Inlined::of(&flow, &code, &calls.blocks()));
        // The idle thread has losses at most.
        if thread.title.is_some() && totals.functions.is_empty() {
            continue;
        }
        if let Some(title) = &thread.title {
            lines.title(title);
        }
        functions(&totals.functions, &code, categories, inlined.as_ref(), &thread, lines);
    }
    warnings
}

/// What has followed the threads of streams.
struct Followed<'c, O> {
    flow: Flow<pt_capture::Memory<'c>>,
    threads: Vec<(Thread, Calls<pt_capture::Memory<'c>, O>)>,
    warnings: Vec<String>,
}

/// The calls of the streams' threads; of one where a thread is given.
fn follow<'c, O: Output>(
    capture: &'c pt_capture::Capture,
    streams: &[usize],
    wanted: Option<u32>,
    output: impl Fn(&Thread) -> O,
) -> Followed<'c, O> {
    let memory = capture.memory();
    let mut flow = Flow::new(memory);
    let first = &capture.streams[streams[0]];
    if let Of::Thread { pid, tid } = first.of {
        let thread = Thread { pid, tid, title: None, streams: vec![(0, first.name.clone())] };
        let mut calls = Calls::handing_out(memory, output(&thread));
        let warnings = capture.decode(streams[0], &mut flow, &mut calls, stop);
        return Followed { flow, threads: vec![(thread, calls)], warnings };
    }
    let mut known = Vec::new();
    let (sinks, warnings) = capture.decode_cores(
        streams,
        &mut flow,
        |view, core| {
            let thread = thread_of(capture, streams, view, core);
            let is_wanted = wanted.is_none_or(|tid| tid == view.tid);
            let calls = is_wanted.then(|| Calls::handing_out(memory, output(&thread)));
            known.push(((view.pid, view.tid, core), thread));
            Only(calls)
        },
        stop,
    );
    let sinks: Vec<_> = sinks.finish().collect();
    let threads = sinks.into_iter().filter_map(|((pid, tid, core), Only(calls))| {
        let is_it =
            |&(of_process, of, on): &(u32, u32, u32)| (of_process, of) == (pid, tid) && (tid != 0 || on == core);
        let place = known.iter().position(|(one, _)| is_it(one))?;
        Some((known.swap_remove(place).1, calls?))
    });
    Followed { flow, threads: threads.collect(), warnings }
}

/// The thread of a view, which ran first on the core.
fn thread_of(capture: &pt_capture::Capture, streams: &[usize], view: &View, core: u32) -> Thread {
    let View { pid, tid, .. } = *view;
    let name = |core: u32| {
        let stream = streams.iter().map(|&number| &capture.streams[number]).find(|stream| stream.of == Of::Core(core));
        stream.map(|stream| stream.name.clone())
    };
    let stays = capture.stays.as_ref().map_or(&[][..], |stays| stays.of_thread(tid));
    let stays = stays.iter().filter(|stay| stay.pid == pid);
    let mut names: Vec<_> = stays.filter_map(|stay| Some((stay.since, name(stay.core)?))).collect();
    if names.is_empty() {
        names.extend(name(core).map(|name| (0, name)));
    }
    let of_process = format!("thread {tid} of process {pid}");
    let title = match &names[..] {
        [(_, name)] => format!("{name}, {of_process}"),
        _ => of_process,
    };
    Thread { pid, tid, title: Some(title), streams: names }
}

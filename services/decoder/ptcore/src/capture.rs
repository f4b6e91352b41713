//! `Capture`: a recording made anywhere, and its listings.

use crate::accesses::{accesses, rows as accesses_of, Accesses};
use crate::categories::Categories;
use crate::listed::{Listed, Piece};
use crate::listing::{Batches, Worker};
use pt_calls::{Calls, Output};
use pt_capture::{CaptureError as Refusal, Of, Options, RawImage, Switch, Threads};
use pt_flow::{Config, Flow};
use pt_listing::{
    functions, packets, stop, Branches, CallListing, Chains, Counts, Detail, Dropped, FlowListing, Form, Gap, Inlined,
    Lines, Only, Page, Who, MAX_GAPS,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError, PyIsADirectoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

create_exception!(permille.ptcore, CaptureError, PyException, "A recording that cannot be read: (kind, message).");

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Capture(Arc<pt_capture::Capture>);

/// The number of "Is a directory", the same on every Linux.
const EISDIR: i32 = 21;

/// A stream of a capture.
#[pyclass(frozen, get_all, module = "permille.ptcore")]
pub struct Stream {
    index: usize,
    name: String,
    size_bytes: usize,
    core: Option<u32>,
    /// Process, thread and name of every thread that ran.
    threads: Vec<(u32, u32, String)>,
    /// Offsets at which the recorder lost packets.
    lost: Vec<usize>,
}

#[pymethods]
impl Capture {
    #[new]
    #[pyo3(signature = (path, *, images=Vec::new(), cpu=None, symbols=Vec::new(), sideband=Vec::new(), timing=None,
                        vmlinux=None, kallsyms=None, kcore=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        images: Vec<String>,
        cpu: Option<(u16, u8, u8)>,
        symbols: Vec<PathBuf>,
        sideband: Vec<PathBuf>,
        timing: Option<(u8, (u32, u32), u8)>,
        vmlinux: Option<PathBuf>,
        kallsyms: Option<PathBuf>,
        kcore: Option<PathBuf>,
    ) -> PyResult<Self> {
        let images: Result<Vec<RawImage>, _> = images.iter().map(|given| given.parse()).collect();
        let images = images.map_err(refused)?;
        let timing = timing.map(|(mtc_freq, tsc_ctc_ratio, nominal_ratio)| Config {
            mtc_freq,
            tsc_ctc_ratio,
            nominal_ratio,
            ..Config::default()
        });
        let options = Options { cpu, images, symbols, sideband, timing, vmlinux, kallsyms, kcore };
        let opened = py.detach(|| pt_capture::open(&path, &options));
        Ok(Capture(Arc::new(opened.map_err(refused)?)))
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    #[getter]
    fn cpu(&self) -> Option<(u16, u8, u8)> {
        self.0.cpu
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.warnings.clone()
    }

    fn streams(&self) -> Vec<Stream> {
        (0..self.0.streams.len()).map(|index| stream(&self.0, index)).collect()
    }

    /// MTC frequency, TSC ticks per tick of the crystal clock, nominal ratio.
    #[getter]
    fn timing(&self) -> (u8, (u32, u32), u8) {
        let config = &self.0.config;
        (config.mtc_freq, config.tsc_ctc_ratio, config.nominal_ratio)
    }

    fn nanoseconds(&self, tsc: u64) -> Option<u64> {
        Some(self.0.conversion?.nanoseconds(tsc))
    }

    fn pieces(&self, py: Python<'_>, stream: usize, size: usize) -> PyResult<Vec<Piece>> {
        self.check(&[stream])?;
        let pieces = py.detach(|| pt_capture::pieces(&self.0.streams[stream], &self.0.config, size));
        Ok(pieces.into_iter().map(|piece| Piece::new(piece, &self.0.views)).collect())
    }

    fn read(&self, stream: usize, begin: usize, end: usize) -> PyResult<Cow<'_, [u8]>> {
        self.check(&[stream])?;
        let data = &*self.0.streams[stream].data;
        let end = end.min(data.len());
        Ok(Cow::Borrowed(&data[begin.min(end)..end]))
    }

    /// Switch records as session archives have them, by time.
    fn switches(&self) -> Cow<'_, [u8]> {
        let mut records = Vec::new();
        for stream in &self.0.streams {
            let Of::Core(core) = stream.of else { continue };
            records.extend(stream.switches.iter().map(|switch| (switch, core)));
        }
        records.sort_by_key(|(switch, _)| switch.tsc);
        let mut bytes = Vec::with_capacity(24 * records.len());
        for (Switch { tsc, pid, tid, enters }, core) in records {
            bytes.extend(tsc.to_le_bytes());
            for number in [core, *pid, *tid, u32::from(*enters)] {
                bytes.extend(number.to_le_bytes());
            }
        }
        Cow::Owned(bytes)
    }

    fn list_code(&self, py: Python<'_>, code: PathBuf) -> PyResult<Listed> {
        let listed = py.detach(|| {
            let mut file = BufWriter::new(File::create(&code)?);
            let listed = pt_capture::list(&self.0, &mut file)?;
            file.flush()?;
            Ok(listed)
        });
        let failed = |error: std::io::Error| {
            let path = code.to_string_lossy().into_owned();
            PyOSError::new_err((error.raw_os_error().unwrap_or_default(), strerror(&error), path))
        };
        Listed::new(py, listed.map_err(failed)?)
    }

    #[pyo3(signature = (stream, *, flow=true))]
    fn stat(&self, py: Python<'_>, stream: usize, flow: bool) -> PyResult<Py<PyDict>> {
        self.check(&[stream])?;
        let capture = Arc::clone(&self.0);
        let worker = Worker::spawn(move |go_on| count(&capture, stream, flow, go_on))?;
        worker.wait(py)?.into_dict(py)
    }

    #[pyo3(signature = (streams, *, thread=None, json=false))]
    fn dump(&self, streams: Vec<usize>, thread: Option<u32>, json: bool) -> PyResult<Batches> {
        self.list(streams, json, move |capture, number, lines| {
            let stream = &capture.streams[number];
            let ran = |offset| thread.is_none_or(|tid| thread_at(capture, stream, offset) == tid);
            packets(&stream.data, capture.config.errata, &stream.name, ran, lines);
        })
    }

    #[pyo3(signature = (streams, *, blocks=false, thread=None, json=false))]
    fn flow(&self, streams: Vec<usize>, blocks: bool, thread: Option<u32>, json: bool) -> PyResult<Batches> {
        let detail = if blocks { Detail::Blocks } else { Detail::Instructions };
        self.list(streams, json, move |capture, stream, lines| list_flow(capture, stream, detail, thread, lines))
    }

    #[pyo3(signature = (streams, *, table=false, categories=None, inlined=false, max_depth=0, thread=None, json=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn calls(
        &self,
        streams: Vec<usize>,
        table: bool,
        categories: Option<&Categories>,
        inlined: bool,
        max_depth: u32,
        thread: Option<u32>,
        json: bool,
    ) -> PyResult<Batches> {
        let categories = categories.map_or_else(Arc::default, |given| Arc::clone(&given.0));
        self.list(streams, json, move |capture, number, lines| match table {
            true => list_functions(capture, number, thread, &categories, inlined, lines),
            false => list_calls(capture, number, thread, inlined, max_depth, lines),
        })
    }
}

impl Capture {
    fn check(&self, streams: &[usize]) -> PyResult<()> {
        let count = self.0.streams.len();
        match streams.iter().find(|&&stream| stream >= count) {
            Some(stream) => Err(PyIndexError::new_err(format!("there is no stream {stream}: there are {count}"))),
            None => Ok(()),
        }
    }

    fn list(
        &self,
        streams: Vec<usize>,
        json: bool,
        write: impl Fn(&pt_capture::Capture, usize, &mut Lines<'_>) + Send + 'static,
    ) -> PyResult<Batches> {
        self.check(&streams)?;
        let capture = Arc::clone(&self.0);
        let form = if json { Form::Json } else { Form::Text };
        let (listed, current) = (Arc::clone(&capture), Arc::new(AtomicUsize::new(0)));
        let at = Arc::clone(&current);
        let release = move || {
            if let Some(stream) = listed.streams.get(at.load(Ordering::Relaxed)) {
                stream.data.release();
            }
        };
        Batches::spawn(form, release, move |lines| {
            for &number in &streams {
                current.store(number, Ordering::Relaxed);
                if streams.len() > 1 {
                    let stream = &capture.streams[number];
                    lines.title(&format!("stream {number}: {}, {} bytes", stream.name, stream.data.len()));
                }
                write(&capture, number, lines);
            }
        })
    }
}

fn refused(refusal: Refusal) -> PyErr {
    let kind = match &refusal {
        Refusal::Unreadable { path, error } => {
            let path = path.to_string_lossy().into_owned();
            return match (error.raw_os_error(), error.kind()) {
                (Some(number), _) => PyOSError::new_err((number, strerror(error), path)),
                (None, ErrorKind::IsADirectory) => PyIsADirectoryError::new_err((EISDIR, strerror(error), path)),
                (None, _) => CaptureError::new_err(("DAMAGED", format!("{path}: {error}"))),
            };
        }
        Refusal::Unknown { .. } => "UNKNOWN",
        Refusal::Damaged { .. } => "DAMAGED",
        Refusal::Json { .. } => "DESCRIPTION",
        Refusal::Option { .. } => "OPTION",
    };
    CaptureError::new_err((kind, refusal.to_string()))
}

/// The system's words alone: Rust appends the number, and so does Python.
fn strerror(error: &std::io::Error) -> String {
    let told = error.to_string();
    told.split_once(" (os error").map_or(&*told, |(words, _)| words).to_owned()
}

fn stream(capture: &pt_capture::Capture, index: usize) -> Stream {
    let stream = &capture.streams[index];
    let mut threads = BTreeSet::new();
    let core = match stream.of {
        Of::Thread { pid, tid } => {
            threads.insert((pid, tid));
            None
        }
        Of::Core(core) => {
            let views = stream.epochs.iter().filter_map(|&(_, view)| capture.views.get(view as usize));
            threads.extend(views.filter(|view| view.tid != 0).map(|view| (view.pid, view.tid)));
            Some(core)
        }
    };
    let named = |(pid, tid)| (pid, tid, capture.names.get(&tid).cloned().unwrap_or_default());
    Stream {
        index,
        name: stream.name.clone(),
        size_bytes: stream.data.len(),
        lost: stream.lost.clone(),
        core,
        threads: threads.into_iter().map(named).collect(),
    }
}

/// Who ran when the packet at the offset was written.
fn thread_at(capture: &pt_capture::Capture, stream: &pt_capture::Stream, offset: usize) -> u32 {
    let next = stream.epochs.partition_point(|&(from, _)| from <= offset);
    let view = stream.epochs[..next].last().and_then(|&(_, view)| capture.views.get(view as usize));
    match (view, stream.of) {
        (Some(view), _) => view.tid,
        (None, Of::Thread { tid, .. }) => tid,
        (None, Of::Core(_)) => 0,
    }
}

fn list_flow(capture: &pt_capture::Capture, number: usize, detail: Detail, thread: Option<u32>, lines: &mut Lines<'_>) {
    let (stream, memory) = (&capture.streams[number], capture.memory());
    let mut flow = Flow::new(memory);
    let mut sink = FlowListing::new(memory, Who(&capture.views), &stream.name, detail, lines);
    match thread {
        None => {
            flow.decode(&stream.data, &capture.config, &stream.epochs, &mut sink);
        }
        Some(tid) => {
            let mut wanted = Some(sink);
            let make = |view: &pt_capture::View| Only(if view.tid == tid { wanted.take() } else { None });
            let mut threads = Threads::new(&capture.views, make);
            flow.decode(&stream.data, &capture.config, &stream.epochs, &mut threads);
            threads.finish();
        }
    }
}

/// Names the thread of a core's stream.
fn title(stream: &pt_capture::Stream, (pid, tid): (u32, u32)) -> Option<String> {
    matches!(stream.of, Of::Core(_)).then(|| format!("{}, thread {tid} of process {pid}", stream.name))
}

fn list_calls(
    capture: &pt_capture::Capture,
    number: usize,
    thread: Option<u32>,
    inlined: bool,
    max_depth: u32,
    lines: &mut Lines<'_>,
) {
    let (stream, code) = (&capture.streams[number], capture.memory());
    let page = Page::new(lines);
    let listing = |thread| {
        let title = title(stream, thread);
        let (page, described, chains) = (&page, Vec::new(), inlined.then(Chains::default));
        CallListing { code, stream: &stream.name, thread, title, max_depth, page, described, chains }
    };
    for mut calls in follow(capture, number, thread, listing).1.into_values() {
        calls.end_stream();
    }
}

fn list_functions(
    capture: &pt_capture::Capture,
    number: usize,
    thread: Option<u32>,
    categories: &pt_image::Categories,
    inlined: bool,
    lines: &mut Lines<'_>,
) {
    let (stream, code) = (&capture.streams[number], capture.memory());
    let (flow, threads) = follow(capture, number, thread, |_| Dropped);
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
}

/// What follows the threads of a stream.
type Followed<'c, O> = (Flow<pt_capture::Memory<'c>>, BTreeMap<(u32, u32), Calls<pt_capture::Memory<'c>, O>>);

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
        flow.decode(&stream.data, &capture.config, &stream.epochs, &mut calls);
        return (flow, BTreeMap::from([((pid, tid), calls)]));
    }
    let mut pids = BTreeMap::new();
    let mut threads = Threads::new(&capture.views, |view: &pt_capture::View| {
        pids.insert(view.tid, view.pid);
        let wanted = thread.is_none() || thread == Some(view.tid);
        Only(wanted.then(|| Calls::handing_out(memory, output((view.pid, view.tid)))))
    });
    flow.decode(&stream.data, &capture.config, &stream.epochs, &mut threads);
    let sinks = threads.finish();
    let calls = sinks.into_iter().filter_map(|(tid, sink)| Some(((pids[&tid], tid), sink.0?))).collect();
    (flow, calls)
}

/// What `stat` tells of a stream.
struct Stat {
    counts: Counts,
    flow: Option<FlowStat>,
}

struct FlowStat {
    numbers: Vec<(&'static str, u64)>,
    /// Offset, size, address, reason.
    errors: Vec<(u64, u64, u64, String)>,
    last_tsc: u64,
    accesses: Accesses<()>,
    /// Instructions of every thread.
    threads: BTreeMap<u32, u64>,
}

fn count(capture: &pt_capture::Capture, number: usize, flow: bool, go_on: &dyn Fn() -> bool) -> Stat {
    let data = &capture.streams[number].data;
    let go_on = &|| {
        data.release();
        go_on()
    };
    let counts = Counts::of(data, capture.config.errata, go_on);
    if !go_on() {
        stop();
    }
    Stat { counts, flow: flow.then(|| count_flow(capture, number, go_on)) }
}

fn count_flow(capture: &pt_capture::Capture, number: usize, go_on: &dyn Fn() -> bool) -> FlowStat {
    let (stream, memory) = (&capture.streams[number], capture.memory());
    let make = |_: &pt_capture::View| Branches::new(|loss| pt_listing::Code::why(&memory, loss), go_on);
    let mut threads = Threads::new(&capture.views, make);
    let mut flow = Flow::new(memory);
    let statistics = flow.decode(&stream.data, &capture.config, &stream.epochs, &mut threads);
    let mut threads = threads.finish();
    let ran: Vec<_> = threads.values_mut().flat_map(|thread| thread.ran.take()).collect();
    let accesses = accesses(&mut flow, ran.iter().map(|block| (block, ())));
    let sum = |one: fn(&Branches<'_>) -> u64| threads.values().map(one).sum::<u64>();
    let gaps = threads.values().flat_map(|thread| &thread.gaps);
    let row = |gap: &Gap| (gap.loss.offset as u64, gap.loss.size as u64, gap.loss.address, gap.told.clone());
    let mut errors: Vec<_> = gaps.map(row).collect();
    errors.sort();
    errors.truncate(MAX_GAPS);
    FlowStat {
        numbers: vec![
            ("instructions", sum(|thread| thread.instructions)),
            ("blocks", sum(|thread| thread.blocks)),
            ("conditional_branches", sum(|thread| thread.taken + thread.not_taken)),
            ("taken", sum(|thread| thread.taken)),
            ("not_taken", sum(|thread| thread.not_taken)),
            ("jumps", sum(|thread| thread.jumps)),
            ("indirect", sum(|thread| thread.indirect_jumps + thread.indirect_calls)),
            ("indirect_jumps", sum(|thread| thread.indirect_jumps)),
            ("indirect_calls", sum(|thread| thread.indirect_calls)),
            ("calls", sum(|thread| thread.direct_calls + thread.indirect_calls)),
            ("returns", sum(|thread| thread.returns)),
            ("compressed_returns", statistics.compressed_returns),
            ("far_transfers", sum(|thread| thread.far)),
            ("interrupts", sum(|thread| thread.interrupts)),
            ("overflows", sum(|thread| thread.overflows)),
            ("error_count", sum(|thread| thread.gap_count)),
            ("lost_bytes", sum(|thread| thread.lost_bytes)),
        ],
        errors,
        accesses,
        last_tsc: threads.values().map(|thread| thread.last_tsc).max().unwrap_or(0),
        threads: threads.iter().map(|(&tid, thread)| (tid, thread.instructions)).collect(),
    }
}

impl Stat {
    fn into_dict(self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let Stat { counts, flow } = self;
        let told = PyDict::new(py);
        told.set_item("bytes", counts.bytes)?;
        told.set_item("packet_count", counts.packets.values().sum::<u64>())?;
        told.set_item("packets", counts.packets)?;
        told.set_item("tnt_bits", counts.tnt_bits)?;
        told.set_item("bad_packets", counts.bad_count)?;
        told.set_item("bad_packet_bytes", counts.bad_bytes)?;
        let last_tsc = flow.as_ref().map_or(0, |flow| flow.last_tsc);
        told.set_item("first_tsc", counts.times.map(|(first, _)| first))?;
        told.set_item("last_tsc", counts.times.map(|(_, last)| last.max(last_tsc)))?;
        let numbers = PyDict::new(py);
        let bad = counts.bad.into_iter().map(|(offset, size, what)| (offset, size, 0, what)).collect();
        let list = match flow {
            Some(flow) => {
                for (name, count) in flow.numbers {
                    numbers.set_item(name, count)?;
                }
                numbers.set_item("instructions_by_thread", flow.threads)?;
                numbers.set_item("accesses", accesses_of(py, &flow.accesses)?)?;
                flow.errors
            }
            None => bad,
        };
        told.set_item("flow", if numbers.is_empty() { None } else { Some(numbers) })?;
        let mut rows = Vec::new();
        for (offset, size, address, reason) in list {
            let row = PyDict::new(py);
            row.set_item("offset", offset)?;
            row.set_item("size_bytes", size)?;
            row.set_item("address", (address != 0).then(|| format!("{address:#x}")))?;
            row.set_item("reason", reason)?;
            rows.push(row);
        }
        told.set_item("errors", rows)?;
        Ok(told.unbind())
    }
}

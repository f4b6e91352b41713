//! `Capture`: a recording made anywhere, and its listings.

mod listings;
mod refusal;
mod stat;

use crate::categories::Categories;
use crate::listed::{Listed, Piece};
use crate::listing::{Batches, Worker};
use listings::{list_calls, list_flow, list_functions, thread_at};
use pt_calls::PART_BYTES;
use pt_capture::{ByTime, Of, Options, RawImage, Switch};
use pt_flow::{Config, Workers};
use pt_listing::{packets, stop, Detail, Form, Lines};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
pub use refusal::CaptureError;
use refusal::{refused, strerror};
use stat::count;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Capture(Arc<pt_capture::Capture>, Late);

/// Warnings that came while streams were listed.
type Late = Arc<Mutex<Vec<String>>>;

/// A stream of a capture.
#[pyclass(frozen, get_all, module = "permille.ptcore")]
pub struct Stream {
    index: usize,
    name: String,
    size_bytes: usize,
    /// Only its beginning is there.
    cut: bool,
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
                        vmlinux=None, kallsyms=None, kcore=None, packets_only=false, beginnings=false,
                        as_listed=false))]
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
        packets_only: bool,
        beginnings: bool,
        as_listed: bool,
    ) -> PyResult<Self> {
        let images: Result<Vec<RawImage>, _> = images.iter().map(|given| given.parse()).collect();
        let images = images.map_err(refused)?;
        let timing = timing.map(|(mtc_freq, tsc_ctc_ratio, nominal_ratio)| Config {
            mtc_freq,
            tsc_ctc_ratio,
            nominal_ratio,
            ..Config::default()
        });
        let options = Options {
            cpu,
            images,
            symbols,
            sideband,
            timing,
            vmlinux,
            kallsyms,
            kcore,
            packets_only,
            beginnings,
            as_listed,
        };
        // Streams are looked through for who ran: whoever does not wait for that leaves it to itself.
        let opened = Worker::spawn(move |_| pt_capture::open(&path, &options))?.wait(py, || {})?;
        Ok(Capture(Arc::new(opened.map_err(refused)?), Late::default()))
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
        let late = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.warnings.iter().chain(&*late).cloned().collect()
    }

    fn absent(&self, py: Python<'_>) -> BTreeSet<String> {
        py.detach(|| self.0.images.iter().flat_map(pt_image::Image::absent).collect())
    }

    fn undebugged(&self) -> BTreeSet<&str> {
        self.0.images.iter().flat_map(pt_image::Image::undebugged).collect()
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

    #[getter]
    fn filter(&self) -> Vec<(u64, u64)> {
        self.0.config.filter.ranges.iter().flatten().copied().collect()
    }

    #[getter]
    fn without_tnt(&self) -> bool {
        self.0.config.without_tnt
    }

    fn nanoseconds(&self, tsc: u64) -> Option<u64> {
        Some(self.0.conversion?.nanoseconds(tsc))
    }

    fn pieces(&self, py: Python<'_>, stream: usize, size: usize) -> PyResult<Vec<Piece>> {
        self.check(&[stream])?;
        let capture = Arc::clone(&self.0);
        let worker = Worker::spawn(move |_| pt_capture::pieces(&capture.streams[stream], &capture.config, size))?;
        let pieces = worker.wait(py, || self.0.streams[stream].data.release())?;
        Ok(pieces.into_iter().map(|piece| Piece::new(piece, &self.0.views)).collect())
    }

    fn read<'py>(&self, py: Python<'py>, stream: usize, begin: usize, end: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.check(&[stream])?;
        let data = &self.0.streams[stream].data;
        let end = end.min(data.len());
        let read = PyBytes::new(py, &data[begin.min(end)..end]);
        data.release();
        Ok(read)
    }

    /// Whether it is known of all cores which threads were there, and nothing of what they did was overwritten.
    #[getter]
    fn follows_threads(&self) -> bool {
        self.0.stays.is_some()
    }

    /// Switch records as session archives have them, by time.
    fn switches(&self) -> Cow<'_, [u8]> {
        let mut records = Vec::new();
        for stream in &self.0.streams {
            let Of::Core(core) = stream.of else { continue };
            records.extend(stream.begins.iter().chain(&stream.switches).map(|switch| (switch, core)));
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

    #[pyo3(signature = (stream, *, flow=true, threads=0, part_bytes=PART_BYTES))]
    fn stat(
        &self,
        py: Python<'_>,
        stream: usize,
        flow: bool,
        threads: usize,
        part_bytes: usize,
    ) -> PyResult<Py<PyDict>> {
        self.check(&[stream])?;
        let capture = Arc::clone(&self.0);
        let workers = Workers { threads: threads_or_cores(threads), part_bytes };
        let worker = Worker::spawn(move |go_on| count(&capture, stream, flow, workers, go_on))?;
        worker.wait(py, || self.0.streams[stream].data.release())?.into_dict(py)
    }

    #[pyo3(signature = (streams, *, thread=None, json=false))]
    fn dump(&self, streams: Vec<usize>, thread: Option<u32>, json: bool) -> PyResult<Batches> {
        self.list(streams, alone, json, move |capture, streams, lines| {
            let stream = &capture.streams[streams[0]];
            let certain = stream.certain();
            let ran = |offset| {
                if offset >= certain {
                    stop();
                }
                thread.is_none_or(|tid| thread_at(capture, stream, offset) == tid)
            };
            packets(&stream.data, capture.config.errata, &stream.name, ran, lines);
            if stream.cut_from.is_some() {
                stop();
            }
        })
    }

    #[pyo3(signature = (streams, *, blocks=false, thread=None, json=false))]
    fn flow(&self, streams: Vec<usize>, blocks: bool, thread: Option<u32>, json: bool) -> PyResult<Batches> {
        let detail = if blocks { Detail::Blocks } else { Detail::Instructions };
        let late = Arc::clone(&self.1);
        self.list(streams, alone, json, move |capture, streams, lines| {
            tell(&late, list_flow(capture, streams[0], detail, thread, lines));
        })
    }

    #[pyo3(signature = (streams, *, table=false, categories=None, inlined=false, max_depth=0, thread=None, json=false,
                        threads=0))]
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
        threads: usize,
    ) -> PyResult<Batches> {
        let threads = threads_or_cores(threads);
        let categories = categories.map_or_else(Arc::default, |given| Arc::clone(&given.0));
        let late = Arc::clone(&self.1);
        self.list(streams, pt_capture::Capture::groups, json, move |capture, streams, lines| {
            let warnings = match table {
                true => list_functions(capture, streams, thread, &categories, inlined, lines),
                false => list_calls(capture, streams, thread, inlined, max_depth, threads, lines),
            };
            tell(&late, warnings);
        })
    }
}

fn tell(late: &Late, warnings: Vec<String>) {
    late.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
}

impl Capture {
    fn check(&self, streams: &[usize]) -> PyResult<()> {
        let count = self.0.streams.len();
        match streams.iter().find(|&&stream| stream >= count) {
            Some(stream) => Err(PyIndexError::new_err(format!("there is no stream {stream}: there are {count}"))),
            None => Ok(()),
        }
    }

    /// `grouped`: which streams are listed together.
    fn list(
        &self,
        streams: Vec<usize>,
        grouped: impl Fn(&pt_capture::Capture, &[usize]) -> Vec<Vec<usize>>,
        json: bool,
        write: impl Fn(&pt_capture::Capture, &[usize], &mut Lines<'_>) + Send + 'static,
    ) -> PyResult<Batches> {
        self.check(&streams)?;
        let capture = Arc::clone(&self.0);
        let form = if json { Form::Json } else { Form::Text };
        let groups = Arc::new(grouped(&capture, &streams));
        let (listed, of, current) = (Arc::clone(&capture), Arc::clone(&groups), Arc::new(AtomicUsize::new(0)));
        let at = Arc::clone(&current);
        let release = move || {
            for &number in of.get(at.load(Ordering::Relaxed)).into_iter().flatten() {
                listed.streams[number].data.release();
            }
        };
        let cut = streams.iter().any(|&number| capture.streams[number].cut_from.is_some());
        Batches::spawn(form, cut, release, move |lines| {
            for (place, group) in groups.iter().enumerate() {
                current.store(place, Ordering::Relaxed);
                for &number in group.iter().filter(|_| streams.len() > 1) {
                    let stream = &capture.streams[number];
                    lines.title(&format!("stream {number}: {}, {} bytes", stream.name, stream.size()));
                }
                write(&capture, group, lines);
            }
        })
    }
}

/// Each stream by itself.
fn alone(_: &pt_capture::Capture, streams: &[usize]) -> Vec<Vec<usize>> {
    streams.iter().map(|&stream| vec![stream]).collect()
}

/// As many threads as given; 0: as this process has cores for.
fn threads_or_cores(threads: usize) -> usize {
    match threads {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads,
    }
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
            let by_time = stream.by_time.iter().flat_map(ByTime::all);
            let views = stream.epochs.iter().map(|&(_, view)| view).chain(by_time);
            let views = views.filter_map(|view| capture.views.get(view as usize));
            threads.extend(views.filter(|view| view.tid != 0).map(|view| (view.pid, view.tid)));
            Some(core)
        }
    };
    let named = |(pid, tid)| (pid, tid, capture.names.get(&(pid, tid)).cloned().unwrap_or_default());
    Stream {
        index,
        name: stream.name.clone(),
        size_bytes: stream.size(),
        cut: stream.cut_from.is_some(),
        lost: stream.lost.clone(),
        core,
        threads: threads.into_iter().map(named).collect(),
    }
}

//! `Decoder`, `instructions`, `packets`: from a stream to columns.

use crate::column::Column;
use crate::counted::Counted;
use crate::delivery::{caught, Delivery};
use crate::image::{Image, Shared};
use crate::outcome::{Decoded, Outcome};
use pt_calls::{decode_calls_in_parts, Calls, Helper, Output, PART_BYTES};
use pt_flow::{
    AddressFilter, Block, CodeMemory, Config, Cpu, DisableKind, Errata, Flow, Loss, Part, Sink, Statistics, Stream,
};
use pt_image::Symbols;
use pt_packet::Reader;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// What CPUID, IA32_RTIT_CTL and MSR_PLATFORM_INFO said on the recording machine.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct PtConfig(pub Config);

#[pymethods]
impl PtConfig {
    #[new]
    #[pyo3(signature = (family, model, stepping, mtc_freq, tsc_ctc_ratio, nominal_ratio, reference_tsc=0,
                        without_tnt=false, traced=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        family: u32,
        model: u32,
        stepping: u32,
        mtc_freq: u8,
        tsc_ctc_ratio: (u32, u32),
        nominal_ratio: u8,
        reference_tsc: u64,
        without_tnt: bool,
        traced: Vec<(u64, u64)>,
    ) -> Self {
        // An unknown processor is one whose errata nobody knows.
        let narrow = u16::try_from(family).ok().zip(u8::try_from(model).ok()).zip(u8::try_from(stepping).ok());
        let cpu = narrow.map(|((family, model), stepping)| Cpu { family, model, stepping });
        let errata = cpu.and_then(Errata::of).unwrap_or_default();
        let known = Config { mtc_freq, tsc_ctc_ratio, nominal_ratio, reference_tsc, errata, ..Config::default() };
        let mut ranges = traced.into_iter();
        let filter = AddressFilter { ranges: std::array::from_fn(|_| ranges.next()) };
        PtConfig(Config { without_tnt, filter, ..known })
    }
}

/// Decodes streams of threads of one process, and keeps what it found out about their code from one to the next.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct Decoder {
    image: Shared,
    config: Config,
    /// One for each thread that ever decoded at the same time as others.
    idle: Mutex<Vec<Idle>>,
}

/// What is kept between two streams.
struct Idle {
    flow: Flow<Shared>,
    calls: Calls<Shared, Delivery<Shared>>,
    /// As many as threads ever decoded one stream.
    helpers: Vec<Helper<Shared, Shared>>,
}

#[pymethods]
impl Decoder {
    #[new]
    fn new(image: &Image, config: &PtConfig) -> Self {
        Decoder { image: image.share(), config: config.0, idle: Mutex::default() }
    }

    #[pyo3(signature = (data, epochs, take=None, *, inlined=false, timeless=false, threads=1, appended=0,
                        missing=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn decode(
        &self,
        py: Python<'_>,
        data: PyBuffer<u8>,
        epochs: Vec<(usize, u32)>,
        take: Option<Py<PyAny>>,
        inlined: bool,
        timeless: bool,
        threads: usize,
        appended: usize,
        missing: Vec<usize>,
    ) -> PyResult<Decoded> {
        let (stream, config) = (bytes(&data)?, Config { appended, ..self.config });
        let outcome = py.detach(|| {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Idle { mut flow, mut calls, mut helpers } = idle.unwrap_or_else(|| Idle::new(&self.image));
            calls.divide_anew();
            helpers.iter_mut().for_each(|helper| helper.calls.divide_anew());
            *calls.output() = Delivery::new(self.image.clone(), take);
            // What is half done is dropped when it unwinds.
            let (outcome, idle) = caught(|| {
                let stream = Stream { data: stream, config: &config, epochs: &epochs, missing: &missing };
                let statistics = if timeless {
                    let mut counted = Counted::new(calls, true);
                    let statistics = by_one(&mut flow, stream, &mut counted);
                    calls = counted.finish().0;
                    statistics
                } else {
                    by_threads(&self.image, &mut flow, &mut calls, &mut helpers, stream, threads)
                };
                let outcome = Outcome::of(&self.image, &mut flow, &mut calls, &mut helpers, statistics, inlined);
                (outcome, Idle { flow, calls, helpers })
            })?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
            PyResult::Ok(outcome)
        })?;
        outcome.into_python(py)
    }

    /// Bytes that are kept between two streams.
    #[getter]
    fn memory_bytes(&self) -> usize {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |idle: &Idle| {
            idle.flow.memory() + idle.calls.memory() + idle.helpers.iter().map(Helper::memory).sum::<usize>()
        };
        idle.iter().map(of).sum()
    }
}

/// Decodes the stream of one thread by so many, when it is long enough for them. `helpers`: as many as it took so far.
pub fn by_threads<M, O>(
    memory: &M,
    flow: &mut Flow<M>,
    calls: &mut Calls<M, O>,
    helpers: &mut Vec<Helper<M, M>>,
    stream: Stream<'_>,
    threads: usize,
) -> Statistics
where
    M: CodeMemory + Symbols + Clone + Send + Sync,
    O: Output + Send,
{
    if threads > 1 && stream.data.len() >= 2 * PART_BYTES {
        helpers.resize_with(threads, || Helper::new(memory.clone(), memory.clone()));
        return decode_calls_in_parts(flow, calls, helpers, stream, PART_BYTES).statistics;
    }
    by_one(flow, stream, calls)
}

/// Decodes a stream as a whole.
pub fn by_one<M: CodeMemory, S: Sink>(flow: &mut Flow<M>, stream: Stream<'_>, sink: &mut S) -> Statistics {
    let Stream { data, config, epochs, missing } = stream;
    flow.decode_part(data, config, epochs, &Part { missing, ..Part::default() }, sink).statistics
}

impl Idle {
    fn new(image: &Shared) -> Self {
        let delivery = Delivery::new(image.clone(), None);
        Idle { flow: Flow::new(image.clone()), calls: Calls::handing_out(image.clone(), delivery), helpers: Vec::new() }
    }
}

#[pyfunction]
#[pyo3(signature = (data, image, config, epochs, *, inlined=false))]
pub fn decode(
    py: Python<'_>,
    data: PyBuffer<u8>,
    image: &Image,
    config: &PtConfig,
    epochs: Vec<(usize, u32)>,
    inlined: bool,
) -> PyResult<Decoded> {
    Decoder::new(image, config).decode(py, data, epochs, None, inlined, false, 1, 0, Vec::new())
}

/// The stream's bytes; they must not change while it is decoded.
pub fn bytes(data: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !data.is_c_contiguous() {
        return Err(PyBufferError::new_err("the stream must be contiguous bytes"));
    }
    let count = data.item_count();
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the view holds `count` contiguous bytes and keeps them in place until it is released. Nothing writes to
    // them: callers hand over read-only mappings of their own copies.
    Ok(unsafe { std::slice::from_raw_parts(data.buf_ptr().cast(), count) })
}

/// The addresses of all instructions.
#[derive(Default)]
struct Addresses(Vec<u64>);

impl Sink for Addresses {
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        self.0.extend(block.addresses());
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

#[pyfunction]
pub fn instructions(
    py: Python<'_>,
    data: PyBuffer<u8>,
    image: &Image,
    config: &PtConfig,
    epochs: Vec<(usize, u32)>,
) -> PyResult<Column> {
    let stream = bytes(&data)?;
    let addresses = py.detach(|| {
        let mut sink = Addresses::default();
        Flow::new(image.share()).decode(stream, &config.0, &epochs, &mut sink);
        sink.0
    });
    Ok(Column::u64(addresses))
}

#[pyfunction]
pub fn packets(data: PyBuffer<u8>) -> PyResult<Vec<(usize, String)>> {
    let stream = bytes(&data)?;
    let mut told = Vec::new();
    let mut reader = Reader::new(stream);
    loop {
        let offset = reader.offset();
        match reader.read() {
            Ok(Some(packet)) => told.push((offset, format!("{packet:?}"))),
            Ok(None) => return Ok(told),
            Err(error) => {
                told.push((error.offset, format!("{error:?}")));
                if reader.resynchronize().is_none() {
                    return Ok(told);
                }
            }
        }
    }
}

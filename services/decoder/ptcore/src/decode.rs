//! `Decoder`, `instructions`, `packets`: from a stream to columns.

use crate::accesses::{accesses, add, columns as accesses_of, numbers, Accesses, NO_FUNCTION};
use crate::blocks::BlockRows;
use crate::column::{Column, Columns};
use crate::counted::Counted;
use crate::delivery::{caught, Delivery};
use crate::image::{Image, Shared};
use pt_calls::{decode_calls_in_parts, Calls, EdgeKind, Found, FunctionKey, Helper, Targets, Totals, PART_BYTES};
use pt_flow::{Block, CodeMemory, Config, Cpu, DisableKind, Errata, Flow, Loss, Sink, Statistics, Stream};
use pt_image::Symbols;
use pt_listing::{Code, Inlined};
use pt_packet::Reader;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// What CPUID, IA32_RTIT_CTL and MSR_PLATFORM_INFO said on the recording machine.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct PtConfig(pub Config);

#[pymethods]
impl PtConfig {
    #[new]
    #[pyo3(signature = (family, model, stepping, mtc_freq, tsc_ctc_ratio, nominal_ratio, reference_tsc=0,
                        without_tnt=false))]
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
    ) -> Self {
        // An unknown processor is one whose errata nobody knows.
        let narrow = u16::try_from(family).ok().zip(u8::try_from(model).ok()).zip(u8::try_from(stepping).ok());
        let cpu = narrow.map(|((family, model), stepping)| Cpu { family, model, stepping });
        let errata = cpu.and_then(Errata::of).unwrap_or_default();
        let known = Config { mtc_freq, tsc_ctc_ratio, nominal_ratio, reference_tsc, errata, ..Config::default() };
        PtConfig(Config { without_tnt, ..known })
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

    #[pyo3(signature = (data, epochs, take=None, *, inlined=false, timeless=false, threads=1))]
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
    ) -> PyResult<Decoded> {
        let stream = bytes(&data)?;
        let outcome = py.detach(|| {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Idle { mut flow, mut calls, mut helpers } = idle.unwrap_or_else(|| Idle::new(&self.image));
            *calls.output() = Delivery::new(self.image.clone(), take);
            // What is half done is dropped when it unwinds.
            let (outcome, idle) = caught(|| {
                let statistics = if timeless {
                    let mut counted = Counted::new(calls, true);
                    let statistics = flow.decode(stream, &self.config, &epochs, &mut counted);
                    calls = counted.finish().0;
                    statistics
                } else if threads > 1 && stream.len() >= 2 * PART_BYTES {
                    let new = || Helper::new(self.image.clone(), self.image.clone());
                    helpers.resize_with(threads, new);
                    let stream = Stream { data: stream, config: &self.config, epochs: &epochs };
                    decode_calls_in_parts(&mut flow, &mut calls, &mut helpers, stream, PART_BYTES).statistics
                } else {
                    flow.decode(stream, &self.config, &epochs, &mut calls)
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

impl Idle {
    fn new(image: &Shared) -> Self {
        let delivery = Delivery::new(image.clone(), None);
        Idle { flow: Flow::new(image.clone()), calls: Calls::handing_out(image.clone(), delivery), helpers: Vec::new() }
    }
}

/// What is known of a stream when all of it was decoded.
pub struct Outcome {
    statistics: Statistics,
    totals: Totals,
    accesses: Accesses<u32>,
    blocks: BlockRows,
    inlined: Vec<InlinedRow>,
    found: Vec<Found>,
}

impl Outcome {
    /// What `calls` took of the flow, and `helpers` of theirs; the rest of them is handed out. `statistics`: of the same.
    pub fn of<M: CodeMemory, C: Code, S: Symbols>(
        code: &C,
        flow: &mut Flow<M>,
        calls: &mut Calls<S, Delivery<C>>,
        helpers: &mut [Helper<M, S>],
        statistics: Statistics,
        inlined: bool,
    ) -> Outcome {
        let ran = calls.blocks();
        let mut totals = calls.end_stream();
        let numbers = numbers(&totals.functions);
        let number = |function: &FunctionKey| numbers.get(function).copied().unwrap_or(NO_FUNCTION);
        let mut blocks = BlockRows::default();
        let placed: Vec<_> = ran.iter().map(|(block, function)| (block, number(function))).collect();
        blocks.add(calls, &placed);
        let mut read_and_written = accesses(flow, placed.into_iter());
        let mut chains = Inlined::default();
        if inlined {
            chains.add(flow, code, &ran);
        }
        for helper in helpers {
            let ran = helper.calls.end_parts(calls.news());
            let placed: Vec<_> = ran.iter().map(|(block, function)| (block, number(function))).collect();
            blocks.add(&mut helper.calls, &placed);
            add(&mut read_and_written, accesses(&mut helper.flow, placed.into_iter()));
            if inlined {
                chains.add(&helper.flow, code, &ran);
            }
            totals.add_edges(helper.calls.take_edges());
        }
        blocks.keep(&Targets::of(&totals.edges));
        let (found, described) = calls.output().finish();
        debug_assert_eq!(totals.functions.len(), described);
        let inlined = inlined_rows(&chains, &numbers);
        Outcome { statistics, totals, accesses: read_and_written, blocks, inlined, found }
    }

    pub fn into_python(self, py: Python<'_>) -> PyResult<Decoded> {
        self.on_cores(py, BTreeMap::new())
    }

    /// `cores`: what the statistics are the sum of.
    pub fn on_cores(self, py: Python<'_>, cores: BTreeMap<u32, Statistics>) -> PyResult<Decoded> {
        let Outcome { statistics, totals, accesses, blocks, inlined, found } = self;
        let of_core = |(core, counts)| Ok((core, statistics_of(py, &counts)?));
        Ok(Decoded {
            functions: totals_of(py, &totals)?,
            edges: edges_of(py, &totals)?,
            accesses: accesses_of(py, &accesses)?,
            blocks: blocks.into_columns(py)?,
            inlined: inlined_of(py, &inlined)?,
            stats: statistics_of(py, &Statistics { calls: totals.calls, ..statistics })?,
            cores: cores.into_iter().map(of_core).collect::<PyResult<_>>()?,
            callers: Py::new(py, Callers(pt_calls::Callers::new(found)))?,
        })
    }
}

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Decoded {
    functions: Py<PyDict>,
    edges: Py<PyDict>,
    accesses: Py<PyDict>,
    blocks: Py<PyDict>,
    inlined: Py<PyDict>,
    stats: Py<PyDict>,
    #[pyo3(get)]
    cores: BTreeMap<u32, Py<PyDict>>,
    callers: Py<Callers>,
}

#[pymethods]
impl Decoded {
    fn functions(&self, py: Python<'_>) -> Py<PyDict> {
        self.functions.clone_ref(py)
    }

    fn edges(&self, py: Python<'_>) -> Py<PyDict> {
        self.edges.clone_ref(py)
    }

    fn accesses(&self, py: Python<'_>) -> Py<PyDict> {
        self.accesses.clone_ref(py)
    }

    fn blocks(&self, py: Python<'_>) -> Py<PyDict> {
        self.blocks.clone_ref(py)
    }

    fn inlined(&self, py: Python<'_>) -> Py<PyDict> {
        self.inlined.clone_ref(py)
    }

    #[getter]
    fn stats(&self, py: Python<'_>) -> Py<PyDict> {
        self.stats.clone_ref(py)
    }

    #[getter]
    fn callers(&self, py: Python<'_>) -> Py<Callers> {
        self.callers.clone_ref(py)
    }
}

/// Callers that were found when calls below them had been taken already.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct Callers(pt_calls::Callers);

#[pymethods]
impl Callers {
    fn __bool__(&self) -> bool {
        !self.0.is_empty()
    }

    fn place(
        &self,
        py: Python<'_>,
        calls: PyBuffer<u64>,
        parents: PyBuffer<u64>,
        depths: PyBuffer<u32>,
    ) -> PyResult<(Column, Column)> {
        let (calls, mut parents, mut depths) = (calls.to_vec(py)?, parents.to_vec(py)?, depths.to_vec(py)?);
        if calls.len() != parents.len() || calls.len() != depths.len() {
            return Err(PyBufferError::new_err("as many parents and depths as calls are needed"));
        }
        py.detach(|| self.0.place(&calls, &mut parents, &mut depths));
        Ok((Column::u64(parents), Column::u32(depths)))
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
    Decoder::new(image, config).decode(py, data, epochs, None, inlined, false, 1)
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

fn statistics_of(py: Python<'_>, counts: &Statistics) -> PyResult<Py<PyDict>> {
    let stats = PyDict::new(py);
    for (name, count) in [
        ("packets", counts.packets),
        ("instructions", counts.instructions),
        ("conditional_branches", counts.conditional_branches),
        ("tnt_bits", counts.tnt_bits),
        ("returns", counts.returns),
        ("compressed_returns", counts.compressed_returns),
        ("calls", counts.calls),
        ("psb", counts.psb),
        ("ovf", counts.ovf),
        ("errors", counts.errors),
        ("lost_bytes", counts.lost_bytes),
    ] {
        stats.set_item(name, count)?;
    }
    Ok(stats.unbind())
}

fn totals_of(py: Python<'_>, totals: &Totals) -> PyResult<Py<PyDict>> {
    let functions = &totals.functions;
    let columns = Columns::new(py)
        .u64("calls", functions.iter().map(|function| function.calls).collect())?
        .u64("self_instructions", functions.iter().map(|function| function.self_instructions).collect())?
        .u64("total_instructions", functions.iter().map(|function| function.total_instructions).collect())?
        .u64("self_ticks", functions.iter().map(|function| function.self_ticks).collect())?
        .u64("total_ticks", functions.iter().map(|function| function.total_ticks).collect())?;
    Ok(columns.into_dict().unbind())
}

fn edges_of(py: Python<'_>, totals: &Totals) -> PyResult<Py<PyDict>> {
    let edges = &totals.edges;
    let kind = |kind: EdgeKind| kind as u8;
    let columns = Columns::new(py)
        .u64("from", edges.iter().map(|(edge, _)| edge.from).collect())?
        .u64("to", edges.iter().map(|(edge, _)| edge.to).collect())?
        .u64("count", edges.iter().map(|&(_, count)| count).collect())?
        .u8("kind", edges.iter().map(|(edge, _)| kind(edge.kind)).collect())?;
    Ok(columns.into_dict().unbind())
}

/// A function's number, what was inlined into it, and the instructions of that.
struct InlinedRow {
    function: u32,
    chain: String,
    name: String,
    depth: u32,
    instructions: u64,
}

fn inlined_rows(inlined: &Inlined, numbers: &HashMap<FunctionKey, u32>) -> Vec<InlinedRow> {
    let row = |(function, chain, instructions): (FunctionKey, &[String], u64)| InlinedRow {
        function: numbers.get(&function).copied().unwrap_or(NO_FUNCTION),
        chain: chain.join(" > "),
        name: chain.last().cloned().unwrap_or_default(),
        depth: chain.len() as u32,
        instructions,
    };
    inlined.all().map(row).collect()
}

fn inlined_of(py: Python<'_>, rows: &[InlinedRow]) -> PyResult<Py<PyDict>> {
    let columns = Columns::new(py)
        .u32("function", rows.iter().map(|row| row.function).collect())?
        .text("name", rows.iter().map(|row| row.name.as_str()))?
        .text("chain", rows.iter().map(|row| row.chain.as_str()))?
        .u32("depth", rows.iter().map(|row| row.depth).collect())?
        .u64("instructions", rows.iter().map(|row| row.instructions).collect())?;
    Ok(columns.into_dict().unbind())
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

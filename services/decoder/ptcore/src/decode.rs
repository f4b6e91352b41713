//! `decode`, `instructions`, `packets`: from a stream to columns.

use crate::accesses::{accesses, columns as accesses_of, numbers, Accesses, NO_FUNCTION};
use crate::column::{Column, Columns};
use crate::image::Image;
use pt_calls::{Calls, EdgeKind, FunctionKey, LossCause, LossRecord, Records, Trace};
use pt_flow::{Block, CodeMemory, Config, Cpu, DisableKind, Errata, Flow, Loss, Reason, Sink, Statistics};
use pt_image::Symbols;
use pt_listing::{Code, Inlined};
use pt_packet::Reader;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{BTreeMap, HashMap};

/// What CPUID, IA32_RTIT_CTL and MSR_PLATFORM_INFO said on the recording machine.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct PtConfig(pub Config);

#[pymethods]
impl PtConfig {
    #[new]
    fn new(
        family: u32,
        model: u32,
        stepping: u32,
        mtc_freq: u8,
        tsc_ctc_ratio: (u32, u32),
        nominal_ratio: u8,
        return_compression: bool,
    ) -> Self {
        // Return compression shows in the packets themselves.
        let _ = return_compression;
        // An unknown processor is one whose errata nobody knows.
        let narrow = u16::try_from(family).ok().zip(u8::try_from(model).ok()).zip(u8::try_from(stepping).ok());
        let cpu = narrow.map(|((family, model), stepping)| Cpu { family, model, stepping });
        let errata = cpu.and_then(Errata::of).unwrap_or_default();
        PtConfig(Config { mtc_freq, tsc_ctc_ratio, nominal_ratio, errata, ..Config::default() })
    }
}

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Decoded {
    calls: Py<PyDict>,
    functions: Py<PyDict>,
    edges: Py<PyDict>,
    accesses: Py<PyDict>,
    inlined: Py<PyDict>,
    losses: Py<PyDict>,
    stats: Py<PyDict>,
}

#[pymethods]
impl Decoded {
    fn calls(&self, py: Python<'_>) -> Py<PyDict> {
        self.calls.clone_ref(py)
    }

    fn functions(&self, py: Python<'_>) -> Py<PyDict> {
        self.functions.clone_ref(py)
    }

    fn edges(&self, py: Python<'_>) -> Py<PyDict> {
        self.edges.clone_ref(py)
    }

    fn accesses(&self, py: Python<'_>) -> Py<PyDict> {
        self.accesses.clone_ref(py)
    }

    fn inlined(&self, py: Python<'_>) -> Py<PyDict> {
        self.inlined.clone_ref(py)
    }

    fn losses(&self, py: Python<'_>) -> Py<PyDict> {
        self.losses.clone_ref(py)
    }

    #[getter]
    fn stats(&self, py: Python<'_>) -> Py<PyDict> {
        self.stats.clone_ref(py)
    }
}

/// A function as people see it.
struct Described {
    name: String,
    binary: String,
    size: u64,
    symbol_status: String,
    line: Option<(String, u32)>,
}

/// What became of a stream.
pub struct Outcome {
    trace: Trace,
    accesses: Accesses<u32>,
    inlined: Vec<InlinedRow>,
    statistics: Statistics,
    described: Vec<Described>,
    reasons: Vec<String>,
}

impl Outcome {
    /// What `calls` took of the flow. `statistics`: of the same.
    pub fn of<M: CodeMemory, C: Code>(
        code: &C,
        flow: &mut Flow<M>,
        calls: &mut Calls<impl Symbols>,
        statistics: Statistics,
        inlined: bool,
    ) -> Outcome {
        let ran = calls.blocks();
        let trace = calls.finish();
        let numbers = numbers(&trace.functions);
        let number = |function| numbers.get(function).copied().unwrap_or(NO_FUNCTION);
        let accesses = accesses(flow, ran.iter().map(|(block, function)| (block, number(function))));
        let described = describe(code, &trace);
        let reasons = trace.losses.iter().map(|loss| reason(code, loss)).collect();
        let inlined = if inlined { inlined_rows(&Inlined::of(flow, code, &ran), &numbers) } else { Vec::new() };
        Outcome { trace, accesses, inlined, statistics, described, reasons }
    }

    pub fn into_python(self, py: Python<'_>) -> PyResult<Decoded> {
        let Outcome { trace, accesses, inlined, statistics, described, reasons } = self;
        Ok(Decoded {
            stats: statistics_of(py, &statistics, trace.records.len())?,
            functions: functions_of(py, &trace, &described)?,
            edges: edges_of(py, &trace)?,
            accesses: accesses_of(py, &accesses)?,
            inlined: inlined_of(py, &inlined)?,
            losses: losses_of(py, &trace, &reasons)?,
            calls: calls_of(py, trace.records)?,
        })
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
    let stream = bytes(&data)?;
    let found = py.detach(|| {
        let image = image.read();
        let mut calls = Calls::new(&*image);
        let mut flow = Flow::new(&*image);
        let statistics = flow.decode(stream, &config.0, &epochs, &mut calls);
        Outcome::of(&*image, &mut flow, &mut calls, statistics, inlined)
    });
    found.into_python(py)
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

fn describe(image: &impl Code, trace: &Trace) -> Vec<Described> {
    let mut described: Vec<_> = trace
        .functions
        .iter()
        .map(|function| {
            let known = image.describe(function.space, function.function, function.address);
            Described {
                name: known.name,
                binary: known.binary,
                size: known.size,
                symbol_status: known.symbol_status,
                line: None,
            }
        })
        .collect();
    let mut by_space = BTreeMap::<u32, Vec<usize>>::new();
    for (number, function) in trace.functions.iter().enumerate() {
        by_space.entry(function.space).or_default().push(number);
    }
    for (space, numbers) in by_space {
        let Some(binary) = image.binary(space) else { continue };
        let addresses: Vec<_> = numbers.iter().map(|&number| trace.functions[number].address).collect();
        for (number, line) in numbers.into_iter().zip(binary.lines(&addresses)) {
            described[number].line = line;
        }
    }
    described
}

fn reason(image: &impl Code, loss: &LossRecord) -> String {
    match loss.cause {
        LossCause::Overflow => "overflow: the processor could not write packets fast enough".to_owned(),
        LossCause::Undecodable(Reason::NoCode) => {
            let why = image.why_no_code(loss.epoch, loss.address);
            format!("no-code: nothing is known at {:#x}: {why}", loss.address)
        }
        LossCause::Undecodable(reason) => format!("{}: {reason}", reason.name()),
    }
}

fn statistics_of(py: Python<'_>, counts: &Statistics, calls: usize) -> PyResult<Py<PyDict>> {
    let stats = PyDict::new(py);
    for (name, count) in [
        ("packets", counts.packets),
        ("instructions", counts.instructions),
        ("conditional_branches", counts.conditional_branches),
        ("tnt_bits", counts.tnt_bits),
        ("returns", counts.returns),
        ("compressed_returns", counts.compressed_returns),
        ("calls", calls as u64),
        ("psb", counts.psb),
        ("ovf", counts.ovf),
        ("errors", counts.errors),
        ("lost_bytes", counts.lost_bytes),
    ] {
        stats.set_item(name, count)?;
    }
    Ok(stats.unbind())
}

fn calls_of(py: Python<'_>, records: Records) -> PyResult<Py<PyDict>> {
    let columns = Columns::new(py)
        .u64("start_tsc", records.start_tsc)?
        .u64("end_tsc", records.end_tsc)?
        .u32("depth", records.depth)?
        .u32("function", records.function)?
        .u64("call_address", records.call_address)?
        .u64("target", records.target)?
        .u64("instructions", records.instructions)?
        .u64("instructions_total", records.instructions_total)?
        .u8("flags", records.flags)?
        .u32("parent", records.parent)?;
    Ok(columns.into_dict().unbind())
}

fn functions_of(py: Python<'_>, trace: &Trace, described: &[Described]) -> PyResult<Py<PyDict>> {
    let totals = &trace.functions;
    let file = |known: &'_ Described| known.line.as_ref().map_or("", |(file, _)| file.as_str()).to_owned();
    let files: Vec<_> = described.iter().map(file).collect();
    let lines = described.iter().map(|known| known.line.as_ref().map_or(0, |&(_, line)| line));
    let columns = Columns::new(py)
        .u32("index", (0..totals.len() as u32).collect())?
        .text("name", described.iter().map(|known| known.name.as_str()))?
        .text("binary", described.iter().map(|known| known.binary.as_str()))?
        .u64("address", totals.iter().map(|function| function.address).collect())?
        .u64("size", described.iter().map(|known| known.size).collect())?
        .text("symbol_status", described.iter().map(|known| known.symbol_status.as_str()))?
        .text("file", files.iter().map(String::as_str))?
        .u32("line", lines.collect())?
        .u64("calls", totals.iter().map(|function| function.calls).collect())?
        .u64("self_instructions", totals.iter().map(|function| function.self_instructions).collect())?
        .u64("total_instructions", totals.iter().map(|function| function.total_instructions).collect())?
        .u64("self_ticks", totals.iter().map(|function| function.self_ticks).collect())?
        .u64("total_ticks", totals.iter().map(|function| function.total_ticks).collect())?;
    Ok(columns.into_dict().unbind())
}

fn edges_of(py: Python<'_>, trace: &Trace) -> PyResult<Py<PyDict>> {
    let edges = &trace.edges;
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

fn losses_of(py: Python<'_>, trace: &Trace, reasons: &[String]) -> PyResult<Py<PyDict>> {
    let losses = &trace.losses;
    let columns = Columns::new(py)
        .u64("offset", losses.iter().map(|loss| loss.offset).collect())?
        .u64("size_bytes", losses.iter().map(|loss| loss.size).collect())?
        .u64("start_tsc", losses.iter().map(|loss| loss.start_tsc).collect())?
        .u64("end_tsc", losses.iter().map(|loss| loss.end_tsc).collect())?
        .text("reason", reasons.iter().map(String::as_str))?
        .u64("address", losses.iter().map(|loss| loss.address).collect())?;
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
        Flow::new(&*image.read()).decode(stream, &config.0, &epochs, &mut sink);
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

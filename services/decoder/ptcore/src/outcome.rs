//! What a stream adds up to, as columns.

use crate::accesses::{accesses, add, columns as accesses_of, numbers, Accesses, NO_FUNCTION};
use crate::blocks::BlockRows;
use crate::column::{Column, Columns};
use crate::delivery::Delivery;
use pt_calls::{BlockCount, Calls, EdgeKind, Found, FunctionKey, Helper, Learned, Output, Targets, Totals};
use pt_flow::{CodeMemory, Flow, Statistics, Travels};
use pt_image::Symbols;
use pt_listing::{Code, Inlined};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{BTreeMap, HashMap};

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
        // First: a call that nothing came behind is learned, and all blocks are told by what is known then.
        let mut ended = Ending::of(calls.end_stream(), inlined);
        let ran = calls.blocks();
        ended.add(code, flow, calls, &ran);
        for helper in helpers {
            let ran = helper.calls.end_parts(calls.news());
            ended.add(code, &mut helper.flow, &mut helper.calls, &ran);
            ended.totals.add_edges(helper.calls.take_edges());
        }
        ended.finish(calls, statistics)
    }

    /// What `calls` took of several flows, with what they learned of these, by place.
    pub fn of_flows<M: CodeMemory, C: Code, S: Symbols>(
        code: &C,
        flows: &mut [Flow<M>],
        mut learned: Vec<(usize, Learned)>,
        calls: &mut Calls<S, Delivery<C>>,
        statistics: Statistics,
        inlined: bool,
    ) -> Outcome {
        let mut ended = Ending::of(calls.end_stream(), inlined);
        let mut ran = Vec::with_capacity(learned.len());
        for (_, learned) in &mut learned {
            calls.exchange(learned);
            ran.push((calls.blocks(), calls.take_edges()));
            calls.exchange(learned);
        }
        for ((flow, mut learned), (ran, edges)) in learned.into_iter().zip(ran) {
            calls.exchange(&mut learned);
            ended.add(code, &mut flows[flow], calls, &ran);
            calls.exchange(&mut learned);
            ended.totals.add_edges(edges);
        }
        ended.finish(calls, statistics)
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

/// What a stream adds up to, flow by flow.
struct Ending {
    totals: Totals,
    numbers: HashMap<FunctionKey, u32>,
    blocks: BlockRows,
    accesses: Accesses<u32>,
    chains: Option<Inlined>,
}

impl Ending {
    fn of(totals: Totals, inlined: bool) -> Self {
        let numbers = numbers(&totals.functions);
        let (blocks, accesses) = (BlockRows::default(), Accesses::new());
        Ending { totals, numbers, blocks, accesses, chains: inlined.then(Inlined::default) }
    }

    /// What ran of a flow, of which `calls` know the blocks.
    fn add<M: CodeMemory, C: Code, S: Symbols, O: Output>(
        &mut self,
        code: &C,
        flow: &mut Flow<M>,
        calls: &mut Calls<S, O>,
        ran: &[(BlockCount, FunctionKey)],
    ) {
        let number = |function: &FunctionKey| self.numbers.get(function).copied().unwrap_or(NO_FUNCTION);
        let placed: Vec<_> = ran.iter().map(|(block, function)| (block, number(function))).collect();
        self.blocks.add(calls, &placed);
        add(&mut self.accesses, accesses(flow, placed.into_iter()));
        if let Some(chains) = &mut self.chains {
            chains.add(flow, code, ran);
        }
    }

    fn finish<C: Code, S: Symbols>(mut self, calls: &mut Calls<S, Delivery<C>>, statistics: Statistics) -> Outcome {
        self.blocks.keep(&Targets::of(&self.totals.edges));
        let (found, described) = calls.output().finish();
        debug_assert_eq!(self.totals.functions.len(), described);
        let inlined = self.chains.map_or_else(Vec::new, |chains| inlined_rows(&chains, &self.numbers));
        let Ending { totals, blocks, accesses, .. } = self;
        Outcome { statistics, totals, accesses, blocks, inlined, found }
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

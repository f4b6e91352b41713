//! Calls, functions and losses on their way to Python, while their stream is decoded.

use crate::column::Columns;
use crate::shelf::Shelf;
use pt_calls::{Batch, Columns as CallColumns, Found, FunctionKey, LossCause, LossRecord, Output, Records};
use pt_listing::Code;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// Calls of the first batch: so many that the stack has mostly been left far behind, as callers that are found later cost a
/// pass over all rows.
const FIRST_ROWS: usize = 1 << 18;
/// Of those behind it: few enough for their columns to stay in the cache, where they are filled, read and filled again.
const ROWS: usize = 1 << 15;
/// Fewer are not worth a call of Python.
const LEAST_ROWS: usize = 1 << 12;

/// Hands each batch to a Python callable: it takes the columns of the calls, of the functions that they name for the
/// first time, and of the losses. What it raises ends the decode by unwinding with it.
pub struct Delivery<C> {
    code: C,
    take: Option<Py<PyAny>>,
    rows: usize,
    found: Vec<Found>,
    /// How many functions were told.
    functions: usize,
    shelf: Arc<Shelf>,
}

impl<C> Delivery<C> {
    pub fn new(code: C, take: Option<Py<PyAny>>) -> Self {
        Delivery { code, take, rows: FIRST_ROWS, found: Vec::new(), functions: 0, shelf: Arc::default() }
    }

    /// One of `threads`, which share the memory.
    pub fn of_many(code: C, take: Option<Py<PyAny>>, threads: usize) -> Self {
        Delivery { rows: (FIRST_ROWS / threads.max(1)).max(LEAST_ROWS), ..Delivery::new(code, take) }
    }

    /// Callers that were found late, and how many functions were told.
    pub fn finish(&mut self) -> (Vec<Found>, usize) {
        self.take = None;
        (std::mem::take(&mut self.found), std::mem::take(&mut self.functions))
    }
}

impl<C: Code> Output for Delivery<C> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn takes_addresses(&self) -> bool {
        false
    }

    fn take(&mut self, batch: Batch<'_>) {
        self.found.extend(batch.found);
        self.functions += batch.functions.len();
        let Some(take) = &self.take else { return };
        if batch.calls.is_empty() && batch.losses.is_empty() {
            return;
        }
        let described = describe(&self.code, batch.functions);
        let reasons: Vec<_> = batch.losses.iter().map(|loss| reason(&self.code, loss)).collect();
        let calls = std::mem::take(batch.calls);
        let delivered = Python::attach(|py| {
            let columns = (
                calls_of(py, calls, &self.shelf)?,
                functions_of(py, batch.functions, &described)?,
                losses_of(py, batch.losses, &reasons)?,
            );
            take.call1(py, columns)
        });
        if let Err(error) = delivered {
            resume_unwind(Box::new(error));
        }
        // Those that were just read, unless somebody keeps them.
        *batch.calls = self.shelf.records();
        self.rows = self.rows.min(ROWS);
    }
}

/// What a callable raises while `decode` runs.
pub fn caught<T>(decode: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(decode)).or_else(|payload| match payload.downcast::<PyErr>() {
        Ok(error) => Err(*error),
        Err(payload) => resume_unwind(payload),
    })
}

/// A function as people see it.
struct Described {
    name: String,
    binary: String,
    size: u64,
    symbol_status: String,
    line: Option<(String, u32)>,
}

fn describe(code: &impl Code, functions: &[FunctionKey]) -> Vec<Described> {
    let describe = |function: &FunctionKey| {
        let known = code.describe(function.space, function.function, function.address);
        let (name, binary, size, symbol_status) = (known.name, known.binary, known.size, known.symbol_status);
        Described { name, binary, size, symbol_status, line: None }
    };
    let mut described: Vec<_> = functions.iter().map(describe).collect();
    let mut by_space = BTreeMap::<u32, Vec<usize>>::new();
    for (number, function) in functions.iter().enumerate() {
        by_space.entry(function.space).or_default().push(number);
    }
    for (space, numbers) in by_space {
        let Some(binary) = code.binary(space) else { continue };
        let addresses: Vec<_> = numbers.iter().map(|&number| functions[number].address).collect();
        for (number, line) in numbers.into_iter().zip(binary.lines(&addresses)) {
            described[number].line = line;
        }
    }
    described
}

fn reason(code: &impl Code, loss: &LossRecord) -> String {
    match loss.cause {
        LossCause::Overflow => "overflow: the processor could not write packets fast enough".to_owned(),
        LossCause::Undecodable(reason) => code.why(reason, loss.epoch, loss.address),
    }
}

fn calls_of(py: Python<'_>, records: Records, shelf: &Arc<Shelf>) -> PyResult<Py<PyDict>> {
    let Records { call, parent, columns } = records;
    let CallColumns { start_tsc, end_tsc, depth, function, .. } = columns;
    let columns = Columns::from_shelf(py, shelf)
        .u64("call", call)?
        .u64("parent", parent)?
        .u64("start_tsc", start_tsc)?
        .u64("end_tsc", end_tsc)?
        .u32("depth", depth)?
        .u32("function", function)?
        .u64("instructions", columns.instructions)?
        .u64("instructions_total", columns.instructions_total)?
        .u8("flags", columns.flags)?;
    Ok(columns.into_dict().unbind())
}

fn functions_of(py: Python<'_>, functions: &[FunctionKey], described: &[Described]) -> PyResult<Py<PyDict>> {
    let file = |known: &'_ Described| known.line.as_ref().map_or("", |(file, _)| file.as_str()).to_owned();
    let files: Vec<_> = described.iter().map(file).collect();
    let lines = described.iter().map(|known| known.line.as_ref().map_or(0, |&(_, line)| line));
    let columns = Columns::new(py)
        .text("name", described.iter().map(|known| known.name.as_str()))?
        .text("binary", described.iter().map(|known| known.binary.as_str()))?
        .u64("address", functions.iter().map(|function| function.address).collect())?
        .u64("size", described.iter().map(|known| known.size).collect())?
        .text("symbol_status", described.iter().map(|known| known.symbol_status.as_str()))?
        .text("file", files.iter().map(String::as_str))?
        .u32("line", lines.collect())?;
    Ok(columns.into_dict().unbind())
}

fn losses_of(py: Python<'_>, losses: &[LossRecord], reasons: &[String]) -> PyResult<Py<PyDict>> {
    let columns = Columns::new(py)
        .u32("core", losses.iter().map(|loss| loss.core).collect())?
        .u64("offset", losses.iter().map(|loss| loss.offset).collect())?
        .u64("size_bytes", losses.iter().map(|loss| loss.size).collect())?
        .u64("start_tsc", losses.iter().map(|loss| loss.start_tsc).collect())?
        .u64("end_tsc", losses.iter().map(|loss| loss.end_tsc).collect())?
        .text("reason", reasons.iter().map(String::as_str))?
        .u64("address", losses.iter().map(|loss| loss.address).collect())?;
    Ok(columns.into_dict().unbind())
}

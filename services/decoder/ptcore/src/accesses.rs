//! Reads and writes of memory by class of instruction and width.

use crate::column::Columns;
use pt_calls::{BlockCount, FunctionKey, FunctionTotals};
use pt_flow::{CodeMemory, Flow, InstructionClass};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::{BTreeMap, HashMap};

/// Reads and writes by what they are told for, class and width.
pub type Accesses<K> = BTreeMap<(K, InstructionClass, u16), (u64, u64)>;

/// What the blocks read and wrote as often as they ran. Each block is looked at once.
pub fn accesses<'b, M: CodeMemory, K: Ord + Copy>(
    flow: &mut Flow<M>,
    ran: impl Iterator<Item = (&'b BlockCount, K)>,
) -> Accesses<K> {
    let mut found = Accesses::new();
    for (block, key) in ran {
        for one in flow.accesses(block.epoch, block.id, block.instructions) {
            let (reads, writes) = found.entry((key, one.class, one.width)).or_default();
            *reads += one.reads * block.count;
            *writes += one.writes * block.count;
        }
    }
    found
}

/// Adds what others read and wrote.
pub fn add<K: Ord>(sum: &mut Accesses<K>, others: Accesses<K>) {
    for (key, (reads, writes)) in others {
        let known = sum.entry(key).or_default();
        *known = (known.0 + reads, known.1 + writes);
    }
}

/// In place of a function that has no calls of its own: a stub.
pub const NO_FUNCTION: u32 = u32::MAX;

/// The number of each function among `totals`.
pub fn numbers(totals: &[FunctionTotals]) -> HashMap<FunctionKey, u32> {
    totals.iter().map(FunctionTotals::key).zip(0..).collect()
}

/// As columns: function, class by its number, width, reads, writes.
pub fn columns(py: Python<'_>, accesses: &Accesses<u32>) -> PyResult<Py<PyDict>> {
    let columns = Columns::new(py)
        .u32("function", accesses.keys().map(|&(function, _, _)| function).collect())?
        .u8("class", accesses.keys().map(|&(_, class, _)| class as u8).collect())?
        .u32("width_bytes", accesses.keys().map(|&(_, _, width)| width.into()).collect())?
        .u64("reads", accesses.values().map(|&(reads, _)| reads).collect())?
        .u64("writes", accesses.values().map(|&(_, writes)| writes).collect())?;
    Ok(columns.into_dict().unbind())
}

/// As a list of dictionaries.
pub fn rows(py: Python<'_>, accesses: &Accesses<()>) -> PyResult<Py<PyList>> {
    let rows = PyList::empty(py);
    for (&((), class, width), &(reads, writes)) in accesses {
        let row = PyDict::new(py);
        row.set_item("instruction_class", class.name())?;
        row.set_item("width_bytes", width)?;
        row.set_item("reads", reads)?;
        row.set_item("writes", writes)?;
        rows.append(row)?;
    }
    Ok(rows.unbind())
}

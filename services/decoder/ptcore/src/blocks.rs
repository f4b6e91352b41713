//! Which basic blocks of functions ran.

use crate::accesses::NO_FUNCTION;
use crate::column::{Column, Columns};
use pt_calls::{BlockCount, Calls, Output, Targets};
use pt_image::Symbols;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Blocks of functions by the functions' numbers: where they start, in the process and in their space's own addresses.
#[derive(Default)]
pub struct BlockRows {
    functions: Vec<u32>,
    starts: Vec<u64>,
    own: Vec<u64>,
}

impl BlockRows {
    /// Blocks that ran, with the numbers of their functions.
    pub fn add<S: Symbols, O: Output>(&mut self, calls: &mut Calls<S, O>, ran: &[(&BlockCount, u32)]) {
        for &(block, function) in ran.iter().filter(|&&(_, function)| function != NO_FUNCTION) {
            self.functions.push(function);
            self.starts.push(block.start);
            self.own.push(calls.own_start(block));
        }
    }

    /// Those that branches led to.
    pub fn keep(&mut self, targets: &Targets) {
        let mut kept = 0;
        for row in 0..self.starts.len() {
            if targets.contains(self.starts[row]) {
                (self.functions[kept], self.own[kept]) = (self.functions[row], self.own[row]);
                kept += 1;
            }
        }
        self.functions.truncate(kept);
        self.own.truncate(kept);
    }

    /// As columns: function, address.
    pub fn into_columns(self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let columns = Columns::new(py).u32("function", self.functions)?.u64("address", self.own)?;
        Ok(columns.into_dict().unbind())
    }
}

/// See the stubs. `heads`: the binary of functions that no symbol bounds, -1 of others.
#[pyfunction]
pub fn block_counts(
    py: Python<'_>,
    functions: PyBuffer<i32>,
    addresses: PyBuffer<u64>,
    heads: PyBuffer<i32>,
    begins: PyBuffer<i32>,
    blocks: PyBuffer<u64>,
) -> PyResult<Column> {
    let (functions, addresses, heads) = (functions.to_vec(py)?, addresses.to_vec(py)?, heads.to_vec(py)?);
    let (begins, blocks) = (begins.to_vec(py)?, blocks.to_vec(py)?);
    let rows = functions.len();
    let grow = begins.windows(2).all(|begin| begin[0] >= 0 && begin[0] <= begin[1]);
    let inside = begins.last().is_some_and(|&end| usize::try_from(end).is_ok_and(|end| end <= blocks.len()));
    if [addresses.len(), heads.len(), begins.len()] != [rows, rows, rows + 1] || !grow || !inside {
        return Err(PyValueError::new_err("functions and their blocks do not fit each other"));
    }
    Ok(py.detach(|| {
        let bare = |&row: &usize| heads[row] >= 0;
        let mut known: Vec<_> =
            (0..rows).filter(bare).map(|row| (heads[row], addresses[row], functions[row])).collect();
        known.sort_unstable();
        let owner = |row: usize, block: u64| {
            let behind = known.partition_point(|&(binary, begin, _)| (binary, begin) <= (heads[row], block));
            let found = behind.checked_sub(1).map(|place| known[place]).filter(|&(binary, ..)| binary == heads[row]);
            found.map_or(functions[row], |(.., function)| function)
        };
        let mut ran = Vec::with_capacity(blocks.len());
        for row in 0..rows {
            let own = &blocks[begins[row] as usize..begins[row + 1] as usize];
            let owned = |&block: &u64| (if bare(&row) { owner(row, block) } else { functions[row] }, block);
            ran.extend(own.iter().map(owned));
        }
        ran.sort_unstable();
        ran.dedup();
        let first = |function| ran.partition_point(|&(other, _)| other < function);
        let behind = |function| ran.partition_point(|&(other, _)| other <= function);
        Column::u64(functions.iter().map(|&function| (behind(function) - first(function)) as u64).collect())
    }))
}

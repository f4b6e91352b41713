//! Which basic blocks of functions ran.

use crate::accesses::NO_FUNCTION;
use crate::column::Columns;
use pt_calls::{BlockCount, Calls, Output, Targets};
use pt_image::Symbols;
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

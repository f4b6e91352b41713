//! Which basic blocks of functions ran.

use crate::accesses::NO_FUNCTION;
use crate::column::{Column, Columns};
use pt_calls::{BlockCount, Calls, Output, Targets};
use pt_image::Symbols;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

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

/// Multiplicative: addresses are no adversaries beyond slowness.
#[derive(Default)]
struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// Different blocks of the functions of many streams.
#[pyclass(module = "permille.ptcore")]
#[derive(Default)]
pub struct Blocks(HashSet<(u32, u64), BuildHasherDefault<PlaceHasher>>);

#[pymethods]
impl Blocks {
    #[new]
    fn new() -> Self {
        Blocks::default()
    }

    fn add(
        &mut self,
        py: Python<'_>,
        places: PyBuffer<i32>,
        function: &Bound<'_, Column>,
        address: &Bound<'_, Column>,
    ) -> PyResult<()> {
        let places = places.to_vec(py)?;
        let (Some(functions), Some(addresses)) = (function.get().as_u32(), address.get().as_u64()) else {
            return Err(PyValueError::new_err("functions have 32 bits, addresses 64"));
        };
        for (&function, &address) in functions.iter().zip(addresses) {
            let Some(&place) = places.get(function as usize) else {
                return Err(PyValueError::new_err(format!("a block of function {function} of {}", places.len())));
            };
            self.0.insert((place as u32, address));
        }
        Ok(())
    }

    fn of(&self, py: Python<'_>, functions: usize) -> (Column, Column) {
        py.detach(|| {
            let mut blocks: Vec<_> = self.0.iter().copied().collect();
            blocks.sort_unstable();
            let ends = (0..functions as u32).map(|place| blocks.partition_point(|block| block.0 <= place) as u32);
            let offsets = std::iter::once(0).chain(ends).collect();
            (Column::u32(offsets), Column::u64(blocks.into_iter().map(|(_, address)| address).collect()))
        })
    }
}

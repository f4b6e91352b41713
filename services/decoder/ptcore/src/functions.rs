//! `Functions`: those of a part's segments, each once, with what the segments add up to and the blocks that ran.

use crate::column::{Column, Columns};
use crate::given_columns::{NamedColumn, Texts};
use pt_flow::AddressHasher;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;

const SUMMED: [&str; 5] = ["calls", "self_instructions", "total_instructions", "self_ticks", "total_ticks"];

/// A function as the first segment that names it describes it.
struct Known {
    binary: u32,
    address: u64,
    name: String,
    size: u64,
    symbol_status: String,
    file: String,
    line: u32,
    sums: [u64; SUMMED.len()],
}

#[pyclass(module = "permille.ptcore")]
#[derive(Default)]
pub struct Functions {
    known: Vec<Known>,
    binaries: Vec<String>,
    binary_numbers: HashMap<String, u32>,
    /// Those of a binary at an address, which differ by their names.
    places: HashMap<(u32, u64), Vec<u32>, BuildHasherDefault<AddressHasher>>,
    blocks: HashSet<(u32, u64), BuildHasherDefault<AddressHasher>>,
}

#[pymethods]
impl Functions {
    #[new]
    fn new() -> Self {
        Functions::default()
    }

    fn add(&mut self, columns: &Bound<'_, PyDict>) -> PyResult<Column> {
        let [binaries, names] = [Texts::of(columns, "binary")?, Texts::of(columns, "name")?];
        let [statuses, files] = [Texts::of(columns, "symbol_status")?, Texts::of(columns, "file")?];
        let [address, size, line] = ["address", "size", "line"].map(|name| NamedColumn::of(columns, name));
        let [address, size, line] = [address?, size?, line?];
        let (addresses, sizes, lines) = (address.u64s()?, size.u64s()?, line.u32s()?);
        let rows = addresses.len();
        let texts = [&binaries, &names, &statuses, &files];
        if sizes.len() != rows || lines.len() != rows || texts.iter().any(|texts| texts.len() != rows) {
            return Err(PyValueError::new_err("columns of functions must be of one length"));
        }
        let mut places = Vec::with_capacity(rows);
        let (mut path, mut binary) = ("", self.binary(""));
        for row in 0..rows {
            let (name, address) = (names.get(row)?, addresses[row]);
            // Functions of one binary mostly follow one another.
            if binaries.get(row)? != path {
                path = binaries.get(row)?;
                binary = self.binary(path);
            }
            let here = self.places.entry((binary, address)).or_default();
            let place = match here.iter().find(|&&place| self.known[place as usize].name == name) {
                Some(&place) => place,
                None => {
                    let place = self.known.len() as u32;
                    here.push(place);
                    self.known.push(Known {
                        binary,
                        address,
                        name: name.to_owned(),
                        size: sizes[row],
                        symbol_status: statuses.get(row)?.to_owned(),
                        file: files.get(row)?.to_owned(),
                        line: lines[row],
                        sums: [0; SUMMED.len()],
                    });
                    place
                }
            };
            places.push(place);
        }
        Ok(Column::u32(places))
    }

    fn add_totals(
        &mut self,
        py: Python<'_>,
        places: PyBuffer<i32>,
        sums: &Bound<'_, PyDict>,
        blocks: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let places = places.to_vec(py)?;
        if let Some(place) = places.iter().find(|&&place| place < 0 || place as usize >= self.known.len()) {
            return Err(PyValueError::new_err(format!("there is no function {place}, only {}", self.known.len())));
        }
        for (number, name) in SUMMED.iter().enumerate() {
            let sums = NamedColumn::of(sums, name)?;
            let sums = sums.u64s()?;
            if sums.len() != places.len() {
                return Err(PyValueError::new_err(format!(
                    "{name} of {} functions, not of {}",
                    sums.len(),
                    places.len()
                )));
            }
            for (&place, sum) in places.iter().zip(sums) {
                let total = &mut self.known[place as usize].sums[number];
                *total = total.wrapping_add(*sum);
            }
        }
        let (function, address) = (NamedColumn::of(blocks, "function")?, NamedColumn::of(blocks, "address")?);
        let (function, address) = (function.u32s()?, address.u64s()?);
        if function.len() != address.len() {
            let (functions, addresses) = (function.len(), address.len());
            return Err(PyValueError::new_err(format!("blocks of {functions} functions at {addresses} addresses")));
        }
        for (&function, &address) in function.iter().zip(address) {
            let Some(&place) = places.get(function as usize) else {
                return Err(PyValueError::new_err(format!("a block of function {function} of {}", places.len())));
            };
            self.blocks.insert((place as u32, address));
        }
        Ok(())
    }

    fn keys(&self, begin: usize) -> Vec<(&str, u64, &str)> {
        let known = self.known.get(begin..).unwrap_or_default();
        known.iter().map(|known| (&*self.binaries[known.binary as usize], known.address, &*known.name)).collect()
    }

    fn told(&self, places: Vec<usize>) -> PyResult<(Vec<&str>, Vec<&str>, Vec<u32>)> {
        let known = |&place: &usize| self.known.get(place);
        let told: Option<Vec<_>> = places.iter().map(known).collect();
        let told = told.ok_or_else(|| PyValueError::new_err(format!("there are {} functions", self.known.len())))?;
        let names = told.iter().map(|known| &*known.name).collect();
        let files = told.iter().map(|known| &*known.file).collect();
        Ok((names, files, told.iter().map(|known| known.line).collect()))
    }

    fn columns(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let known = || self.known.iter();
        let (begins, addresses) = self.blocks();
        let mut columns = Columns::new(py)
            .text("name", known().map(|known| &*known.name))?
            .text("module", known().map(|known| &*self.binaries[known.binary as usize]))?
            .u64("address", known().map(|known| known.address).collect())?
            .u64("size", known().map(|known| known.size).collect())?
            .text("symbol_status", known().map(|known| &*known.symbol_status))?
            .text("file", known().map(|known| &*known.file))?
            .u32("line", known().map(|known| known.line).collect())?
            .u32("block_begins", begins)?
            .u64("blocks", addresses)?;
        for (number, name) in SUMMED.iter().enumerate() {
            columns = columns.u64(name, known().map(|known| known.sums[number]).collect())?;
        }
        Ok(columns.into_dict().unbind())
    }
}

impl Functions {
    fn binary(&mut self, path: &str) -> u32 {
        if let Some(&number) = self.binary_numbers.get(path) {
            return number;
        }
        let number = self.binaries.len() as u32;
        self.binaries.push(path.to_owned());
        self.binary_numbers.insert(path.to_owned(), number);
        number
    }

    /// Where the blocks of each function begin, and their addresses in order.
    fn blocks(&self) -> (Vec<u32>, Vec<u64>) {
        let mut blocks: Vec<_> = self.blocks.iter().copied().collect();
        blocks.sort_unstable();
        let ends = (0..self.known.len() as u32).map(|place| blocks.partition_point(|block| block.0 <= place) as u32);
        let begins = std::iter::once(0).chain(ends).collect();
        (begins, blocks.into_iter().map(|(_, address)| address).collect())
    }
}

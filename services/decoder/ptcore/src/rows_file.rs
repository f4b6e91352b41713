//! `RowsFile`: from columns of numbers and texts to a file of any table.

use crate::column::Column;
use pt_parquet::{flags, indices, Chunk, Deltas, Dictionary, File, Kind, Numbers, Packer};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::collections::hash_map::{Entry, HashMap};

/// How numbers are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Deltas,
    Few,
}

/// The bytes of a Parquet file, row group by row group.
#[pyclass(module = "permille.ptcore")]
pub struct RowsFile {
    file: File,
    packer: Packer,
    columns: Vec<(Kind, How)>,
}

#[pymethods]
impl RowsFile {
    #[new]
    fn new(columns: Vec<(String, String, String)>, level: i32) -> PyResult<Self> {
        let known: Vec<_> = columns.iter().map(|(_, kind, how)| known(kind, how)).collect::<PyResult<_>>()?;
        let named: Vec<_> = columns.iter().zip(&known).map(|((name, ..), &(kind, _))| (&**name, kind)).collect();
        Ok(RowsFile { file: File::new(&named), packer: Packer::new(level)?, columns: known })
    }

    #[getter]
    fn rows(&self) -> usize {
        self.file.rows()
    }

    fn group(&mut self, rows: usize, columns: &Bound<'_, PyList>) -> PyResult<Column> {
        if columns.len() != self.columns.len() {
            return Err(PyValueError::new_err(format!("{} columns, not {}", self.columns.len(), columns.len())));
        }
        let chunks = self.columns.clone().into_iter().zip(columns).map(|((kind, how), column)| match kind {
            Kind::Text => self.texts(rows, &column.cast_into()?),
            Kind::Boolean => {
                let set = numbers::<u8>(&column, rows)?;
                Ok(self.packer.plain(rows, |out| flags(&set, 1, out))?)
            }
            Kind::Int32 => self.narrow(rows, how, &numbers(&column, rows)?),
            Kind::Int64 => self.wide(rows, how, &numbers::<i64>(&column, rows)?),
        });
        let chunks: Vec<_> = chunks.collect::<PyResult<_>>()?;
        Ok(Column::u8(self.file.group(rows, &chunks)))
    }

    fn finish(&mut self, told: HashMap<String, String>) -> Column {
        let mut told: Vec<_> = told.iter().map(|(key, value)| (&**key, &**value)).collect();
        told.sort_unstable();
        Column::u8(self.file.finish(&told))
    }
}

impl RowsFile {
    fn narrow(&mut self, rows: usize, how: How, numbers: &[i32]) -> PyResult<Chunk> {
        if how == How::Few {
            let mut few = Numbers::default();
            few.extend(&numbers.iter().map(|&number| number as u32 as u64).collect::<Vec<_>>());
            let mut places = Vec::new();
            if let Some(values) = few.finish(&mut places) {
                let values: Vec<_> = values.into_iter().map(|value| value as i32).collect();
                return Ok(self.packer.places(rows, &Dictionary::Int32(&values), |out| out.append(&mut places))?);
            }
        }
        Ok(self.packer.plain(rows, |out| out.extend(numbers.iter().flat_map(|number| number.to_le_bytes())))?)
    }

    fn wide(&mut self, rows: usize, how: How, numbers: &[i64]) -> PyResult<Chunk> {
        if how == How::Plain {
            return Ok(self
                .packer
                .plain(rows, |out| out.extend(numbers.iter().flat_map(|number| number.to_le_bytes())))?);
        }
        let numbers: Vec<_> = numbers.iter().map(|&number| number as u64).collect();
        if how == How::Deltas {
            let mut deltas = Deltas::default();
            deltas.extend(&numbers);
            return Ok(self.packer.deltas(rows, |out| deltas.finish(out))?);
        }
        let mut few = Numbers::default();
        few.extend(&numbers);
        let mut encoded = Vec::new();
        Ok(match few.finish(&mut encoded) {
            Some(values) => self.packer.places(rows, &Dictionary::Int64(&values), |out| out.append(&mut encoded))?,
            None => self.packer.deltas(rows, |out| out.append(&mut encoded))?,
        })
    }

    /// Each different text stands once in a dictionary: readers that keep dictionaries want it so.
    fn texts(&mut self, rows: usize, column: &Bound<'_, PyTuple>) -> PyResult<Chunk> {
        let (offsets, bytes, places): (Bound<'_, PyAny>, Bound<'_, PyAny>, Option<Bound<'_, PyAny>>) =
            column.extract()?;
        let (offsets, bytes) =
            (PyBuffer::<i32>::get(&offsets)?.to_vec(column.py())?, PyBuffer::<u8>::get(&bytes)?.to_vec(column.py())?);
        let mut known = HashMap::new();
        let mut different = Vec::new();
        let mut number = |span: &[i32]| {
            let text = bytes.get(span[0] as usize..span[1] as usize).and_then(|text| std::str::from_utf8(text).ok());
            let text = text.ok_or_else(|| PyValueError::new_err("texts are offsets and UTF-8"))?;
            PyResult::Ok(match known.entry(text) {
                Entry::Occupied(number) => *number.get(),
                Entry::Vacant(place) => {
                    different.push(text);
                    *place.insert(different.len() as u32 - 1)
                }
            })
        };
        let numbered: Vec<u32> = offsets.windows(2).map(&mut number).collect::<PyResult<_>>()?;
        let of_rows = match places {
            None => numbered,
            Some(places) => {
                let of = |place: i32| numbered.get(place as usize).copied();
                let found: Option<Vec<_>> = numbers::<i32>(&places, rows)?.into_iter().map(of).collect();
                found.ok_or_else(|| PyValueError::new_err(format!("there are {} texts", numbered.len())))?
            }
        };
        if of_rows.len() != rows {
            return Err(PyValueError::new_err(format!("{} texts in {rows} rows", of_rows.len())));
        }
        let most = different.len().saturating_sub(1) as u32;
        Ok(self.packer.places(rows, &Dictionary::Text(&different), |out| indices(&of_rows, most, out))?)
    }
}

fn known(kind: &str, how: &str) -> PyResult<(Kind, How)> {
    let kind = match kind {
        "bool" => Kind::Boolean,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "string" => Kind::Text,
        other => return Err(PyValueError::new_err(format!("{other}: bool, int32, int64 and string can be written"))),
    };
    let how = match how {
        "plain" => How::Plain,
        "deltas" if kind == Kind::Int64 => How::Deltas,
        "few" => How::Few,
        other => return Err(PyValueError::new_err(format!("{other}: plain, few, and deltas of int64 can be written"))),
    };
    Ok((kind, how))
}

fn numbers<T: pyo3::buffer::Element>(column: &Bound<'_, PyAny>, rows: usize) -> PyResult<Vec<T>> {
    let numbers = PyBuffer::<T>::get(column)?.to_vec(column.py())?;
    if numbers.len() != rows {
        return Err(PyValueError::new_err(format!("{} numbers in {rows} rows", numbers.len())));
    }
    Ok(numbers)
}

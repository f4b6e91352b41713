//! `RowsFile`: from columns of numbers and texts to a file of any table.

use crate::column::Column;
use pt_parquet::{flags, indices, Chunk, Deltas, Dictionary, File, Kind, Numbers, Packer};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::collections::hash_map::{Entry, HashMap};
use std::io;

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
        let given = self.columns.iter().zip(columns).map(|(&(kind, _), column)| {
            Ok(match kind {
                Kind::Text => Given::Text(Texts::of(&column.cast_into()?, rows)?),
                Kind::Boolean => Given::Flags(numbers(&column, rows)?),
                Kind::Int32 => Given::Narrow(numbers(&column, rows)?),
                Kind::Int64 => Given::Wide(numbers(&column, rows)?),
            })
        });
        let given: Vec<_> = given.collect::<PyResult<_>>()?;
        columns.py().detach(|| {
            let hows = self.columns.iter().map(|&(_, how)| how);
            let chunks = given.iter().zip(hows).map(|(given, how)| given.chunk(rows, how, &mut self.packer));
            let chunks: Vec<_> = chunks.collect::<PyResult<_>>()?;
            Ok(Column::u8(self.file.group(rows, &chunks)))
        })
    }

    fn finish(&mut self, told: HashMap<String, String>) -> Column {
        let mut told: Vec<_> = told.iter().map(|(key, value)| (&**key, &**value)).collect();
        told.sort_unstable();
        Column::u8(self.file.finish(&told))
    }
}

/// A column on its way.
enum Given {
    Flags(Vec<u8>),
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
    Text(Texts),
}

impl Given {
    fn chunk(&self, rows: usize, how: How, packer: &mut Packer) -> PyResult<Chunk> {
        match self {
            Given::Flags(set) => Ok(packer.plain(rows, |out| flags(set, 1, out))?),
            Given::Narrow(numbers) => Ok(narrow(rows, how, numbers, packer)?),
            Given::Wide(numbers) => Ok(wide(rows, how, numbers, packer)?),
            Given::Text(texts) => texts.chunk(rows, packer),
        }
    }
}

fn narrow(rows: usize, how: How, numbers: &[i32], packer: &mut Packer) -> io::Result<Chunk> {
    if how == How::Few {
        let mut few = Numbers::default();
        few.extend(&numbers.iter().map(|&number| u64::from(number as u32)).collect::<Vec<_>>());
        let mut places = Vec::new();
        if let Some(values) = few.finish(&mut places) {
            let values: Vec<_> = values.into_iter().map(|value| value as i32).collect();
            return packer.places(rows, &Dictionary::Int32(&values), |out| out.append(&mut places));
        }
    }
    packer.plain(rows, |out| out.extend(numbers.iter().flat_map(|number| number.to_le_bytes())))
}

fn wide(rows: usize, how: How, numbers: &[i64], packer: &mut Packer) -> io::Result<Chunk> {
    if how == How::Plain {
        return packer.plain(rows, |out| out.extend(numbers.iter().flat_map(|number| number.to_le_bytes())));
    }
    let numbers: Vec<_> = numbers.iter().map(|&number| number as u64).collect();
    if how == How::Deltas {
        let mut deltas = Deltas::default();
        deltas.extend(&numbers);
        return packer.deltas(rows, |out| deltas.finish(out));
    }
    let mut few = Numbers::default();
    few.extend(&numbers);
    packer.numbers(rows, &mut few, Kind::Int64)
}

/// Texts one behind the other, and which of them each row has, where not those in their order.
struct Texts {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
    places: Option<Vec<i32>>,
}

impl Texts {
    fn of(column: &Bound<'_, PyTuple>, rows: usize) -> PyResult<Texts> {
        let py = column.py();
        let (offsets, bytes, places): (Bound<'_, PyAny>, Bound<'_, PyAny>, Option<Bound<'_, PyAny>>) =
            column.extract()?;
        let offsets = PyBuffer::<i32>::get(&offsets)?.to_vec(py)?;
        let bytes = PyBuffer::<u8>::get(&bytes)?.to_vec(py)?;
        let places = places.map(|places| numbers(&places, rows)).transpose()?;
        Ok(Texts { offsets, bytes, places })
    }

    /// Each different text stands once in a dictionary: readers that keep dictionaries want it so.
    fn chunk(&self, rows: usize, packer: &mut Packer) -> PyResult<Chunk> {
        let mut known = HashMap::new();
        let mut different = Vec::new();
        let mut number = |span: &[i32]| {
            let text = self.bytes.get(span[0] as usize..span[1] as usize);
            let text = text.and_then(|text| std::str::from_utf8(text).ok());
            let text = text.ok_or_else(|| PyValueError::new_err("texts are offsets and UTF-8"))?;
            PyResult::Ok(match known.entry(text) {
                Entry::Occupied(number) => *number.get(),
                Entry::Vacant(place) => {
                    different.push(text);
                    *place.insert(different.len() as u32 - 1)
                }
            })
        };
        let numbered: Vec<u32> = self.offsets.windows(2).map(&mut number).collect::<PyResult<_>>()?;
        let of_rows = match &self.places {
            None => numbered,
            Some(places) => {
                let found: Option<Vec<_>> = places.iter().map(|&place| numbered.get(place as usize).copied()).collect();
                found.ok_or_else(|| PyValueError::new_err(format!("there are {} texts", numbered.len())))?
            }
        };
        if of_rows.len() != rows {
            return Err(PyValueError::new_err(format!("{} texts in {rows} rows", of_rows.len())));
        }
        let most = different.len().saturating_sub(1) as u32;
        Ok(packer.places(rows, &Dictionary::Text(&different), |out| indices(&of_rows, most, out))?)
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

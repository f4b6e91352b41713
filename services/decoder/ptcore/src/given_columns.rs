//! Columns that Python gives back, by their names among others.

use crate::column::Column;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A column of numbers. A name without a column raises ValueError, another width or object TypeError.
pub struct NamedColumn<'py> {
    name: &'static str,
    column: Bound<'py, Column>,
}

impl<'py> NamedColumn<'py> {
    pub fn of(columns: &Bound<'py, PyDict>, name: &'static str) -> PyResult<Self> {
        Ok(NamedColumn { name, column: required(columns, name)?.cast_into()? })
    }

    pub fn u8s(&self) -> PyResult<&[u8]> {
        self.column.get().as_u8().ok_or_else(|| self.wrong(u8::BITS))
    }

    pub fn u32s(&self) -> PyResult<&[u32]> {
        self.column.get().as_u32().ok_or_else(|| self.wrong(u32::BITS))
    }

    pub fn u64s(&self) -> PyResult<&[u64]> {
        self.column.get().as_u64().ok_or_else(|| self.wrong(u64::BITS))
    }

    fn wrong(&self, bits: u32) -> PyErr {
        let has = self.column.get().width();
        PyTypeError::new_err(format!("the column {} has a width of {has} bits in place of {bits}", self.name))
    }
}

/// A column of texts, as `Columns::text` makes it. Whatever is no UTF-8 between the offsets raises ValueError.
pub struct Texts<'py> {
    offsets: Bound<'py, Column>,
    bytes: Bound<'py, Column>,
}

impl<'py> Texts<'py> {
    pub fn of(columns: &Bound<'py, PyDict>, name: &str) -> PyResult<Self> {
        let (offsets, bytes) = required(columns, name)?.extract()?;
        Ok(Texts { offsets, bytes })
    }

    pub fn len(&self) -> usize {
        self.offsets.len().unwrap_or_default().saturating_sub(1)
    }

    pub fn get(&self, row: usize) -> PyResult<&str> {
        let (offsets, bytes) = (self.offsets.get().as_u32(), self.bytes.get().as_u8());
        let text = offsets
            .zip(bytes)
            .and_then(|(offsets, bytes)| bytes.get(*offsets.get(row)? as usize..*offsets.get(row + 1)? as usize));
        let text = text.ok_or_else(|| PyValueError::new_err("texts are offsets of 32 bits and bytes"))?;
        std::str::from_utf8(text).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

fn required<'py>(columns: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    columns.get_item(name)?.ok_or_else(|| PyValueError::new_err(format!("the column {name} is missing")))
}

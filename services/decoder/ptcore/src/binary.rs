//! `Binary`: an ELF file.

use crate::column::Columns;
use pt_image::{BinaryError, Search};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Binary(pub Arc<pt_image::Binary>);

#[pymethods]
impl Binary {
    #[new]
    #[pyo3(signature = (path, debug_path=None, *, mapped_as=None, folders=Vec::new()))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        debug_path: Option<PathBuf>,
        mapped_as: Option<PathBuf>,
        folders: Vec<PathBuf>,
    ) -> PyResult<Self> {
        let search = Search { debug: debug_path, mapped: mapped_as, folders, ..Search::default() };
        let read = || pt_image::Binary::load(&path, &search);
        let binary = py.detach(read).map_err(|error| match &error {
            BinaryError::Unreadable { error: cause, .. } => match cause.raw_os_error() {
                Some(number) => PyOSError::new_err((number, error.to_string())),
                None => PyOSError::new_err(error.to_string()),
            },
            BinaryError::NotElf { .. } | BinaryError::OtherArchitecture { .. } => {
                PyValueError::new_err(error.to_string())
            }
        })?;
        Ok(Binary(Arc::new(binary)))
    }

    #[getter]
    fn build_id(&self) -> &str {
        self.0.build_id()
    }

    #[getter]
    fn symbol_status(&self) -> &str {
        self.0.symbol_status()
    }

    fn functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let functions = self.0.functions();
        let names: Vec<_> = functions.iter().map(|function| self.0.name(function).unwrap_or_default()).collect();
        let columns = Columns::new(py)
            .text("name", names.iter().map(String::as_str))?
            .u64("address", functions.iter().map(|function| function.address).collect())?
            .u64("size", functions.iter().map(|function| function.size).collect())?
            .text("symbol_status", functions.iter().map(|function| function.source.name()))?;
        Ok(columns.into_dict())
    }

    fn line(&self, py: Python<'_>, address: u64) -> Option<(String, u32)> {
        py.detach(|| self.0.lines(&[address]).pop().flatten())
    }
}

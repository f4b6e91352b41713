//! `Categories`: what functions are for.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Categories(pub Arc<pt_image::Categories>);

#[pymethods]
impl Categories {
    #[new]
    #[pyo3(signature = (path=None))]
    fn new(path: Option<PathBuf>) -> PyResult<Self> {
        let mut categories = pt_image::Categories::new();
        if let Some(path) = path {
            let shown = path.to_string_lossy();
            let table = std::fs::read(&path).map_err(|error| match error.raw_os_error() {
                Some(number) => PyOSError::new_err((number, error.to_string(), shown.clone().into_owned())),
                None => PyOSError::new_err(error.to_string()),
            })?;
            let table = String::from_utf8(table).map_err(|error| {
                let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|&byte| byte == b'\n').count();
                PyValueError::new_err(format!("{shown}, line {line}: it is not UTF-8"))
            })?;
            categories.extend(&table).map_err(|error| PyValueError::new_err(format!("{shown}, {error}")))?;
        }
        Ok(Categories(Arc::new(categories)))
    }

    fn of(&self, names: Vec<String>, binaries: Vec<String>) -> Vec<String> {
        names.iter().zip(&binaries).map(|(name, binary)| self.0.of(name, binary).to_owned()).collect()
    }
}

//! `Categories`: what functions are for.

use crate::listing::Worker;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of a pipe the end may never come.
const MAX_BYTES: u64 = 16 << 20;

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Categories(pub Arc<pt_image::Categories>);

#[pymethods]
impl Categories {
    #[new]
    #[pyo3(signature = (path=None))]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Self> {
        let mut categories = pt_image::Categories::new();
        if let Some(path) = path {
            let shown = path.to_string_lossy().into_owned();
            // A pipe may have nothing to say for long.
            let read = Worker::spawn(move |_| beginning(&path))?.wait(py, || {})?;
            let table = read.map_err(|error| match error.raw_os_error() {
                Some(number) => PyOSError::new_err((number, error.to_string(), shown.clone())),
                None => PyOSError::new_err(error.to_string()),
            })?;
            if table.len() as u64 > MAX_BYTES {
                return Err(PyValueError::new_err(format!("{shown}: more than {} MiB of rules", MAX_BYTES >> 20)));
            }
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

/// One byte more than there may be shows that there are more.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

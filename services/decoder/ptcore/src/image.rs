//! `Image`: the address space of a process.

use crate::binary::Binary;
use pt_image::ImageError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

#[pyclass(frozen, module = "permille.ptcore")]
#[derive(Default)]
pub struct Image(RwLock<pt_image::Image>);

impl Image {
    pub fn read(&self) -> RwLockReadGuard<'_, pt_image::Image> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the image. A decode may read it for long: others must be able to run meanwhile.
    fn change(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut pt_image::Image) -> Result<(), ImageError> + Send,
    ) -> PyResult<()> {
        let changed = py.detach(|| change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)));
        changed.map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Image {
    #[new]
    fn new() -> Self {
        Image::default()
    }

    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn map(
        &self,
        py: Python<'_>,
        epoch: u32,
        address: u64,
        size: u64,
        offset: u64,
        binary: &Binary,
        name: &str,
    ) -> PyResult<()> {
        self.change(py, |image| image.map(epoch, address, size, offset, &binary.0, name))
    }

    fn unmap(&self, py: Python<'_>, epoch: u32, address: u64, size: u64) -> PyResult<()> {
        self.change(py, |image| image.unmap(epoch, address, size))
    }

    fn code(&self, py: Python<'_>, epoch: u32, address: u64, data: Vec<u8>) -> PyResult<()> {
        self.change(py, |image| image.code(epoch, address, data))
    }

    fn missing(&self, py: Python<'_>, epoch: u32, address: u64, size: u64, name: &str, reason: &str) -> PyResult<()> {
        self.change(py, |image| image.missing(epoch, address, size, name, reason))
    }
}

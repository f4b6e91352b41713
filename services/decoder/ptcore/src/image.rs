//! `Image`: the address space of a process.

use crate::binary::Binary;
use crate::generated::Generated;
use pt_image::ImageError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

#[pyclass(frozen, module = "permille.ptcore")]
#[derive(Default)]
pub struct Image(Mutex<Shared>);

/// An image that some decoders read.
pub type Shared = Arc<pt_image::Image>;

impl Image {
    pub fn share(&self) -> Shared {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the image, which what was decoded with it would not notice.
    fn change(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut pt_image::Image) -> Result<(), ImageError> + Send,
    ) -> PyResult<()> {
        let changed = py.detach(|| {
            let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::get_mut(&mut shared).map(change)
        });
        match changed {
            Some(changed) => changed.map_err(|error| PyValueError::new_err(error.to_string())),
            None => Err(PyRuntimeError::new_err("a decoder uses the image: change it before the decoder is made")),
        }
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

    fn name_generated(&self, py: Python<'_>, generated: &Generated) -> PyResult<()> {
        self.change(py, |image| {
            generated.0.name(image);
            Ok(())
        })
    }

    fn load(&self, py: Python<'_>, epoch: u32, generated: &Generated, number: usize, exact: bool) -> PyResult<()> {
        self.change(py, |image| {
            // What cannot be there is no function.
            let _ = generated.0.load(image, epoch, number, exact);
            Ok(())
        })
    }

    fn absent(&self, py: Python<'_>) -> Vec<String> {
        let image = self.share();
        py.detach(|| image.absent())
    }

    fn missing(&self, py: Python<'_>, epoch: u32, address: u64, size: u64, name: &str, reason: &str) -> PyResult<()> {
        self.change(py, |image| image.missing(epoch, address, size, name, reason))
    }
}

//! `Image`: the address space of a process.

use crate::binary::Binary;
use crate::generated::Generated;
use pt_flow::{CodeMemory, CodeSlice};
use pt_image::{Description, ImageError, Place, Symbols};
use pt_listing::Code;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

#[pyclass(frozen, module = "permille.ptcore")]
#[derive(Default)]
pub struct Image(Mutex<Shared>);

/// An image that some decoders read.
#[derive(Clone, Default)]
pub struct Shared(pub Arc<pt_image::Image>);

impl CodeMemory for Shared {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        self.0.read(epoch, address)
    }
}

impl Symbols for Shared {
    fn place(&self, epoch: u32, address: u64) -> Place {
        self.0.place(epoch, address)
    }

    fn caught_at(&self, epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        self.0.caught_at(epoch, pad)
    }
}

impl Code for Shared {
    fn why_no_code(&self, epoch: u32, address: u64) -> String {
        self.0.why_no_code(epoch, address)
    }

    fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description {
        self.0.describe(space, function, address)
    }

    fn binary(&self, space: u32) -> Option<&Arc<pt_image::Binary>> {
        self.0.binary(space)
    }
}

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
            Arc::get_mut(&mut shared.0).map(change)
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
        py.detach(|| image.0.absent())
    }

    fn missing(&self, py: Python<'_>, epoch: u32, address: u64, size: u64, name: &str, reason: &str) -> PyResult<()> {
        self.change(py, |image| image.missing(epoch, address, size, name, reason))
    }
}

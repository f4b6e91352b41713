//! Columns of numbers that Python reads in place.

use crate::shelf::Shelf;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{c_int, c_void, CStr};
use std::ptr;
use std::sync::Arc;

enum Numbers {
    U8(Vec<u8>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

/// Numbers of one width. They never change, so every view of them stays valid as long as the object lives.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct Column {
    numbers: Numbers,
    /// Where the memory goes when nobody wants them any more.
    shelf: Option<Arc<Shelf>>,
}

impl Drop for Column {
    fn drop(&mut self) {
        if let Some(shelf) = &self.shelf {
            match &mut self.numbers {
                Numbers::U8(numbers) => shelf.u8s.put(numbers),
                Numbers::U32(numbers) => shelf.u32s.put(numbers),
                Numbers::U64(numbers) => shelf.u64s.put(numbers),
            }
        }
    }
}

struct Layout {
    data: *const c_void,
    count: usize,
    width: usize,
    format: &'static CStr,
}

fn layout<T>(numbers: &[T], format: &'static CStr) -> Layout {
    Layout { data: numbers.as_ptr().cast(), count: numbers.len(), width: size_of::<T>(), format }
}

impl Column {
    fn layout(&self) -> Layout {
        match &self.numbers {
            Numbers::U8(numbers) => layout(numbers, c"B"),
            Numbers::U32(numbers) => layout(numbers, c"I"),
            Numbers::U64(numbers) => layout(numbers, c"Q"),
        }
    }
}

#[pymethods]
impl Column {
    /// Copies numbers without signs.
    #[new]
    fn new(numbers: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = numbers.py();
        if let Ok(numbers) = PyBuffer::<u8>::get(numbers) {
            return Ok(Column::u8(numbers.to_vec(py)?));
        }
        if let Ok(numbers) = PyBuffer::<u32>::get(numbers) {
            return Ok(Column::u32(numbers.to_vec(py)?));
        }
        Ok(Column::u64(PyBuffer::<u64>::get(numbers)?.to_vec(py)?))
    }

    fn __len__(&self) -> usize {
        self.layout().count
    }

    /// # Safety
    /// `view` is the interpreter's: null or a `Py_buffer` to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("a column is read-only"));
        }
        let Layout { data, count, width, format } = slf.get().layout();
        // SAFETY: `view` is not null and the interpreter's for this call. It holds a reference to the column until it is
        // released, and the column's numbers neither move nor change before. Shape and stride are in a box behind `internal`,
        // as a view has no place of its own for a number of elements.
        unsafe {
            let shape = Box::into_raw(Box::new([count as ffi::Py_ssize_t, width as ffi::Py_ssize_t]));
            (*view).buf = data.cast_mut();
            (*view).len = (count * width) as ffi::Py_ssize_t;
            (*view).readonly = 1;
            (*view).itemsize = width as ffi::Py_ssize_t;
            (*view).format = if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                format.as_ptr().cast_mut()
            } else {
                ptr::null_mut()
            };
            (*view).ndim = 1;
            (*view).shape = shape.cast();
            (*view).strides = shape.cast::<ffi::Py_ssize_t>().add(1);
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = shape.cast();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }

    /// # Safety
    /// `view` was filled by `__getbuffer__`.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `internal` is the box that `__getbuffer__` made for this very view.
        drop(unsafe { Box::from_raw((*view).internal.cast::<[ffi::Py_ssize_t; 2]>()) });
    }
}

/// Named columns in order.
pub struct Columns<'py> {
    named: Bound<'py, PyDict>,
    shelf: Option<Arc<Shelf>>,
}

impl<'py> Columns<'py> {
    pub fn new(py: Python<'py>) -> Self {
        Columns { named: PyDict::new(py), shelf: None }
    }

    /// Their memory goes to the shelf in the end.
    pub fn from_shelf(py: Python<'py>, shelf: &Arc<Shelf>) -> Self {
        Columns { shelf: Some(Arc::clone(shelf)), ..Columns::new(py) }
    }

    pub fn into_dict(self) -> Bound<'py, PyDict> {
        self.named
    }

    pub fn u8(self, name: &str, numbers: Vec<u8>) -> PyResult<Self> {
        self.set(name, Numbers::U8(numbers))
    }

    pub fn u32(self, name: &str, numbers: Vec<u32>) -> PyResult<Self> {
        self.set(name, Numbers::U32(numbers))
    }

    pub fn u64(self, name: &str, numbers: Vec<u64>) -> PyResult<Self> {
        self.set(name, Numbers::U64(numbers))
    }

    /// UTF-8 as offsets and bytes. Fails for more than 4 GiB.
    pub fn text<'t>(self, name: &str, texts: impl Iterator<Item = &'t str>) -> PyResult<Self> {
        let mut bytes = Vec::new();
        let mut offsets = vec![0u32];
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            offsets.push(u32::try_from(bytes.len())?);
        }
        self.named.set_item(name, (Column::u32(offsets), Column::u8(bytes)))?;
        Ok(self)
    }

    fn set(self, name: &str, numbers: Numbers) -> PyResult<Self> {
        self.named.set_item(name, Column { numbers, shelf: self.shelf.clone() })?;
        Ok(self)
    }
}

impl Column {
    fn of(numbers: Numbers) -> Column {
        Column { numbers, shelf: None }
    }

    pub fn u32(numbers: Vec<u32>) -> Column {
        Column::of(Numbers::U32(numbers))
    }

    pub fn u64(numbers: Vec<u64>) -> Column {
        Column::of(Numbers::U64(numbers))
    }

    pub fn u8(numbers: Vec<u8>) -> Column {
        Column::of(Numbers::U8(numbers))
    }

    /// Bits of a number.
    pub fn width(&self) -> usize {
        self.layout().width * 8
    }

    pub fn as_u8(&self) -> Option<&[u8]> {
        match &self.numbers {
            Numbers::U8(numbers) => Some(numbers),
            _ => None,
        }
    }

    pub fn as_u32(&self) -> Option<&[u32]> {
        match &self.numbers {
            Numbers::U32(numbers) => Some(numbers),
            _ => None,
        }
    }

    pub fn as_u64(&self) -> Option<&[u64]> {
        match &self.numbers {
            Numbers::U64(numbers) => Some(numbers),
            _ => None,
        }
    }
}

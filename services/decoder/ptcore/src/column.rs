//! Columns of numbers that Python reads in place.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{c_int, c_void, CStr};
use std::ptr;

enum Numbers {
    U8(Vec<u8>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

/// Numbers of one width. They never change, so every view of them stays valid as long as the object lives.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct Column(Numbers);

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
        match &self.0 {
            Numbers::U8(numbers) => layout(numbers, c"B"),
            Numbers::U32(numbers) => layout(numbers, c"I"),
            Numbers::U64(numbers) => layout(numbers, c"Q"),
        }
    }
}

#[pymethods]
impl Column {
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
        // released, and the column's numbers neither move nor change before. Shape and strides may live in the view itself:
        // `len` counts bytes, so the shape is kept in `internal`.
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
pub struct Columns<'py>(Bound<'py, PyDict>);

impl<'py> Columns<'py> {
    pub fn new(py: Python<'py>) -> Self {
        Columns(PyDict::new(py))
    }

    pub fn into_dict(self) -> Bound<'py, PyDict> {
        self.0
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
        self.0.set_item(name, (Column(Numbers::U32(offsets)), Column(Numbers::U8(bytes))))?;
        Ok(self)
    }

    fn set(self, name: &str, numbers: Numbers) -> PyResult<Self> {
        self.0.set_item(name, Column(numbers))?;
        Ok(self)
    }
}

impl Column {
    pub fn u32(numbers: Vec<u32>) -> Column {
        Column(Numbers::U32(numbers))
    }

    pub fn u64(numbers: Vec<u64>) -> Column {
        Column(Numbers::U64(numbers))
    }
}

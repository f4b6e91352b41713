//! A capture as a session archive keeps it: pieces of streams, changes of images, binaries.

use pt_capture::{Code, View};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

/// A part of a stream that is decoded on its own.
#[pyclass(frozen, get_all, module = "permille.ptcore")]
pub struct Piece {
    begin: usize,
    /// Where the next piece begins.
    next: usize,
    /// Packets to put behind it.
    tail: Cow<'static, [u8]>,
    first_tsc: u64,
    last_tsc: u64,
    /// Offset in the piece, process, thread, epoch of the process's image, epoch of the kernel's, how often the thread had come
    /// from another core.
    turns: Vec<(usize, u32, u32, u32, u32, u32)>,
    lost: Vec<usize>,
}

impl Piece {
    pub fn new(piece: pt_capture::Piece, views: &[View]) -> Piece {
        let turn = |&(offset, view): &(usize, u32)| {
            let View { pid, tid, epoch, kernel, stay, .. } = *views.get(view as usize)?;
            Some((offset, pid, tid, epoch, kernel, stay))
        };
        Piece {
            begin: piece.from,
            next: piece.next,
            tail: Cow::Owned(piece.tail),
            first_tsc: piece.first_tsc,
            last_tsc: piece.last_tsc,
            turns: piece.epochs.iter().filter_map(turn).collect(),
            lost: piece.lost,
        }
    }
}

/// A change of an image, in the words of `maps.json`.
#[pyclass(frozen, get_all, module = "permille.ptcore")]
pub struct ListedChange {
    epoch: u32,
    event: &'static str,
    address: u64,
    size_bytes: u64,
    offset: u64,
    path: String,
    /// Place in the list of binaries.
    binary: Option<usize>,
    code_offset: u64,
    /// Of the ELF file that stands in the code file.
    code_size: u64,
    missing: String,
}

#[pyclass(frozen, module = "permille.ptcore")]
pub struct ListedBinary(Arc<pt_image::Binary>);

#[pymethods]
impl ListedBinary {
    #[getter]
    fn path(&self) -> String {
        self.0.path().to_string_lossy().into_owned()
    }

    #[getter]
    fn build_id(&self) -> &str {
        self.0.build_id()
    }

    #[getter]
    fn size_bytes(&self) -> usize {
        self.0.code(0).len()
    }

    /// Of its separate debug file, 0 without one.
    #[getter]
    fn debug_bytes(&self) -> usize {
        self.0.debug().map_or(0, <[u8]>::len)
    }

    #[pyo3(signature = (begin, end, *, debug=false))]
    fn read(&self, begin: usize, end: usize, debug: bool) -> Cow<'_, [u8]> {
        let bytes = if debug { self.0.debug().unwrap_or_default() } else { self.0.code(0) };
        let end = end.min(bytes.len());
        Cow::Borrowed(&bytes[begin.min(end)..end])
    }
}

#[pyclass(frozen, get_all, module = "permille.ptcore")]
pub struct Listed {
    /// By pid, the kernel's half as 2^32 - 1.
    processes: Vec<(u32, Vec<Py<ListedChange>>)>,
    binaries: Vec<Py<ListedBinary>>,
}

impl Listed {
    pub fn new(py: Python<'_>, listed: pt_capture::Listed) -> PyResult<Listed> {
        let process = |(pid, changes): (u32, Vec<_>)| {
            let changes = changes.into_iter().map(|one| Py::new(py, ListedChange::from(one)));
            PyResult::Ok((pid, changes.collect::<PyResult<_>>()?))
        };
        Ok(Listed {
            processes: listed.processes.into_iter().map(process).collect::<PyResult<_>>()?,
            binaries: listed.binaries.into_iter().map(|one| Py::new(py, ListedBinary(one))).collect::<PyResult<_>>()?,
        })
    }
}

impl From<pt_capture::ListedChange> for ListedChange {
    fn from(change: pt_capture::ListedChange) -> Self {
        let plain = ListedChange {
            epoch: change.epoch,
            event: "map",
            address: change.address,
            size_bytes: change.size,
            offset: 0,
            path: String::new(),
            binary: None,
            code_offset: 0,
            code_size: 0,
            missing: String::new(),
        };
        match change.code {
            Code::Nothing => ListedChange { event: "unmap", ..plain },
            Code::Bytes { at } => ListedChange { event: "code", code_offset: at, ..plain },
            Code::Binary { number, offset, name } => ListedChange { binary: Some(number), offset, path: name, ..plain },
            Code::Inside { at, size, offset, name } => {
                ListedChange { code_offset: at, code_size: size, offset, path: name, ..plain }
            }
            Code::Missing { name, reason } => ListedChange { path: name, missing: reason, ..plain },
        }
    }
}

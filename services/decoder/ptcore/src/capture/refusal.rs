//! Why a recording cannot be read, as Python's exceptions.

use pt_capture::CaptureError as Refusal;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIsADirectoryError, PyOSError};
use pyo3::prelude::*;
use std::io::ErrorKind;

create_exception!(permille.ptcore, CaptureError, PyException, "A recording that cannot be read: (kind, message).");

/// The number of "Is a directory", the same on every Linux.
const EISDIR: i32 = 21;

pub fn refused(refusal: Refusal) -> PyErr {
    let kind = match &refusal {
        Refusal::Unreadable { path, error } => {
            let path = path.to_string_lossy().into_owned();
            return match (error.raw_os_error(), error.kind()) {
                (Some(number), _) => PyOSError::new_err((number, strerror(error), path)),
                (None, ErrorKind::IsADirectory) => PyIsADirectoryError::new_err((EISDIR, strerror(error), path)),
                (None, _) => CaptureError::new_err(("DAMAGED", format!("{path}: {error}"))),
            };
        }
        Refusal::Unknown { .. } => "UNKNOWN",
        Refusal::Damaged { .. } => "DAMAGED",
        Refusal::Packed { .. } => "PACKED",
        Refusal::Json { .. } => "DESCRIPTION",
        Refusal::Temporary { .. } => "TEMPORARY",
        Refusal::Option { .. } => "OPTION",
    };
    CaptureError::new_err((kind, refusal.to_string()))
}

/// The system's words alone: Rust appends the number, and so does Python.
pub fn strerror(error: &std::io::Error) -> String {
    let told = error.to_string();
    told.split_once(" (os error").map_or(&*told, |(words, _)| words).to_owned()
}

//! Work that Python waits for without holding the GIL and may leave at any time.

use pt_listing::{stopped, Form, Lines};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Batches that may be ahead of the reader.
const AHEAD: usize = 4;
/// How long Ctrl-C may take to be heard, and what was read may stay. Packets that are skipped are gigabytes in a second.
const PATIENCE: Duration = Duration::from_millis(10);

type Outcome<T> = Result<T, String>;

/// Batches of whole lines, as an iterator of bytes. Nothing more is listed once it is gone.
#[pyclass(frozen, module = "permille.ptcore")]
pub struct Batches {
    lines: Mutex<Receiver<Outcome<String>>>,
    meanwhile: Box<dyn Fn() + Send + Sync>,
}

impl Batches {
    /// Lists on a thread of its own. `meanwhile`: again and again. `cut`: the listing ends where a stream is not certain any
    /// more, and the lines before that may not be either: the last batch is kept back.
    pub fn spawn(
        form: Form,
        cut: bool,
        meanwhile: impl Fn() + Send + Sync + 'static,
        list: impl FnOnce(&mut Lines<'_>) + Send + 'static,
    ) -> PyResult<Self> {
        let (sender, receiver) = sync_channel::<Outcome<String>>(AHEAD);
        on_a_thread(sender, move |sender| {
            let mut last = None;
            let mut lines = Lines::new(form, |batch| {
                let next = if cut { last.replace(batch) } else { Some(batch) };
                next.is_none_or(|batch| sender.send(Ok(batch)).is_ok())
            });
            list(&mut lines);
            lines.flush();
            drop(lines);
            // Where nobody waits any more, none are wanted.
            let _ = last.map(|batch| sender.send(Ok(batch)));
        })?;
        Ok(Batches { lines: Mutex::new(receiver), meanwhile: Box::new(meanwhile) })
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let batch = wait(py, &self.lines, &self.meanwhile)?;
        Ok(batch.map(|batch| PyBytes::new(py, batch.as_bytes())))
    }
}

/// One result of a long work.
pub struct Worker<T> {
    result: Mutex<Receiver<Outcome<T>>>,
    wanted: Arc<AtomicBool>,
}

impl<T: Send + 'static> Worker<T> {
    /// Works on a thread of its own; the work asks from time to time whether it is to go on.
    pub fn spawn(work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T + Send + 'static) -> PyResult<Self> {
        let (sender, receiver) = sync_channel(1);
        let wanted = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&wanted);
        on_a_thread(sender, move |sender| {
            let done = work(&|| still.load(Ordering::Relaxed));
            // Nobody waits any more when it cannot be sent.
            let _ = sender.send(Ok(done));
        })?;
        Ok(Worker { result: Mutex::new(receiver), wanted })
    }

    /// Raises what a signal handler raises meanwhile; the work ends then. `meanwhile`: again and again.
    pub fn wait(&self, py: Python<'_>, meanwhile: impl Fn() + Sync) -> PyResult<T> {
        let done = wait(py, &self.result, &meanwhile)?;
        done.ok_or_else(|| PyRuntimeError::new_err("the work ended without a result"))
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}

fn on_a_thread<T: Send + 'static>(
    sender: SyncSender<Outcome<T>>,
    work: impl FnOnce(&SyncSender<Outcome<T>>) + Send + 'static,
) -> PyResult<()> {
    let run = move || {
        // What the work holds is dropped with it: nothing half done is seen afterwards.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(&sender))) {
            if !stopped(&*payload) {
                let _ = sender.send(Err(text(&*payload)));
            }
        }
    };
    thread::Builder::new().name("ptcore".to_owned()).spawn(run)?;
    Ok(())
}

fn text(payload: &(dyn Any + Send)) -> String {
    let known = payload.downcast_ref::<String>().cloned();
    known.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

/// The next outcome; `None` when there are no more.
fn wait<T: Send>(
    py: Python<'_>,
    receiver: &Mutex<Receiver<Outcome<T>>>,
    meanwhile: &(dyn Fn() + Sync),
) -> PyResult<Option<T>> {
    loop {
        let came = py.detach(|| {
            meanwhile();
            receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE)
        });
        match came {
            Ok(Ok(outcome)) => return Ok(Some(outcome)),
            Ok(Err(defect)) => return Err(PyRuntimeError::new_err(format!("the decoder failed: {defect}"))),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}

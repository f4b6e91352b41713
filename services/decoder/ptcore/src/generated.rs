//! `Generated`: what a recorded process told of the code that it wrote.

use pt_capture::{Conversion, Timeline, Told, What};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::path::PathBuf;

#[pyclass(frozen, module = "permille.ptcore")]
pub struct Generated(pub pt_capture::Generated);

/// Epoch, number of the change (negative: -1 - that of a load), its address and size.
type Step = (u32, i64, u64, u64);

#[pymethods]
impl Generated {
    #[new]
    #[pyo3(signature = (perf_map=None, dumps=Vec::new(), clock=None))]
    fn new(
        py: Python<'_>,
        perf_map: Option<PathBuf>,
        dumps: Vec<(String, PathBuf)>,
        clock: Option<((u64, u64), (u64, u64))>,
    ) -> PyResult<Self> {
        let read = || -> std::io::Result<_> {
            let map = perf_map.map(|path| pt_capture::Bytes::open(&path)).transpose()?;
            let opened = dumps.iter().map(|(name, path)| Ok((name.as_str(), pt_capture::Bytes::open(path)?)));
            let opened = opened.collect::<std::io::Result<Vec<_>>>()?;
            let dumps: Vec<_> = opened.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
            let conversion = clock.and_then(|(first, last)| Conversion::through(first, last));
            Ok(pt_capture::Generated::read(map.as_deref().unwrap_or_default(), &dumps, conversion))
        };
        Ok(Generated(py.detach(read)?))
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    fn placed(
        &self,
        py: Python<'_>,
        changes: Vec<(u32, u64, u64, u64, bool)>,
        by_time: bool,
        code: Vec<Option<PyBackedBytes>>,
    ) -> (Vec<Step>, Vec<(u64, u32)>) {
        py.detach(|| {
            let told = |(epoch, tsc, address, size, code)| Told { epoch, tsc, address, size, code };
            let told: Vec<_> = changes.into_iter().map(told).collect();
            let stood = |number: usize| code.get(number)?.as_deref();
            let Timeline { steps, epochs } =
                if by_time { self.0.by_time(&told, stood) } else { self.0.by_epochs(&told) };
            let step = |(epoch, what)| match what {
                What::Change { number, address, size } => (epoch, number as i64, address, size),
                What::Load { number } => (epoch, -1 - number as i64, 0, 0),
            };
            (steps.into_iter().map(step).collect(), epochs)
        })
    }
}

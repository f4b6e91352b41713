//! `CallsFile`: from ptcore's columns to a file of the table `calls`.

use crate::call_rows::{CallRows, Calls, Clock, Functions, Origin, Ranges, Timeline, COLUMNS};
use crate::column::Column;
use crate::given_columns::NamedColumn;
use pt_parquet::{File, Packer};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyDict;

/// The bytes of a Parquet file, row group by row group.
#[pyclass(module = "permille.ptcore")]
pub struct CallsFile {
    file: File,
    packer: Packer,
    rows: CallRows,
    ranges: Option<Ranges>,
}

#[pymethods]
impl CallsFile {
    #[new]
    fn new(level: i32) -> PyResult<Self> {
        Ok(CallsFile {
            file: File::new(&COLUMNS),
            packer: Packer::new(level)?,
            rows: CallRows::default(),
            ranges: None,
        })
    }

    #[classattr]
    #[pyo3(name = "COLUMNS")]
    fn columns() -> Vec<&'static str> {
        COLUMNS.iter().map(|&(name, _)| name).collect()
    }

    /// Rows of the groups that are done.
    #[getter]
    fn rows(&self) -> usize {
        self.file.rows()
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.rows.rows()
    }

    #[getter]
    fn ranges(&self) -> Option<Ranges> {
        self.ranges
    }

    #[getter]
    fn functions(&self) -> Vec<u32> {
        self.rows.used().to_vec()
    }

    #[pyo3(signature = (calls, functions, origin, clock, timeline))]
    fn add(
        &mut self,
        py: Python<'_>,
        calls: &Bound<'_, PyDict>,
        functions: PyBuffer<i32>,
        origin: (i32, i32, i32),
        clock: (u64, u64, i64, f64),
        timeline: (PyBuffer<u64>, PyBuffer<i32>),
    ) -> PyResult<()> {
        let column = |name| NamedColumn::of(calls, name);
        let [call, parent] = [column("call")?, column("parent")?];
        let [start, end] = [column("start_tsc")?, column("end_tsc")?];
        let [depth, function, flags] = [column("depth")?, column("function")?, column("flags")?];
        let [own, total] = [column("instructions")?, column("instructions_total")?];
        let calls = Calls {
            call: call.u64s()?,
            parent: parent.u64s()?,
            start_tsc: start.u64s()?,
            end_tsc: end.u64s()?,
            depth: depth.u32s()?,
            function: function.u32s()?,
            instructions: own.u64s()?,
            instructions_total: total.u64s()?,
            flags: flags.u8s()?,
        };
        let functions: Vec<_> = functions.to_vec(py)?.into_iter().map(|place| place as u32).collect();
        let (times, cores) = (timeline.0.to_vec(py)?, timeline.1.to_vec(py)?);
        calls.check(&functions)?;
        if cores.len() != times.len() || times.first() != Some(&0) {
            return Err(PyValueError::new_err("a timeline has a core for each time, the first of which is 0"));
        }
        let (segment, pid, tid) = origin;
        let (first_tsc, tsc0, ns0, ns_per_tick) = clock;
        let origin = Origin { segment, pid, tid };
        let clock = Clock { first_tsc, tsc0, ns0, ns_per_tick };
        let timeline = Timeline { times: &times, cores: &cores };
        let packer = &mut self.packer;
        py.detach(|| self.rows.add(&calls, &functions, origin, clock, &timeline, packer))?;
        Ok(())
    }

    fn group(
        &mut self,
        py: Python<'_>,
        numbers: Vec<i32>,
        names: Vec<PyBackedStr>,
        files: Vec<PyBackedStr>,
        lines: Vec<i32>,
    ) -> PyResult<Column> {
        let used = self.rows.used().len();
        if [numbers.len(), names.len(), files.len(), lines.len()] != [used; 4] {
            return Err(PyValueError::new_err(format!("{used} functions are to be told")));
        }
        let names: Vec<_> = names.iter().map(|name| &**name).collect();
        let files: Vec<_> = files.iter().map(|file| &**file).collect();
        let functions = Functions { numbers: &numbers, names: &names, files: &files, lines: &lines };
        let bytes = py.detach(|| {
            let rows = self.rows.rows();
            let (chunks, ranges) = self.rows.group(&functions, &mut self.packer)?;
            self.ranges = Some(self.ranges.map_or(ranges, |known| {
                let wider = |one: usize| (known[one].0.min(ranges[one].0), known[one].1.max(ranges[one].1));
                [wider(0), wider(1)]
            }));
            PyResult::Ok(self.file.group(rows, &chunks))
        })?;
        Ok(Column::u8(bytes))
    }

    fn finish(&mut self) -> Column {
        Column::u8(self.file.finish(&[]))
    }
}

impl Calls<'_> {
    /// That columns fit each other and the functions.
    fn check(&self, functions: &[u32]) -> PyResult<()> {
        let rows = self.call.len();
        let lengths = [
            self.parent.len(),
            self.start_tsc.len(),
            self.end_tsc.len(),
            self.depth.len(),
            self.function.len(),
            self.instructions.len(),
            self.instructions_total.len(),
            self.flags.len(),
        ];
        if lengths.iter().any(|&length| length != rows) {
            return Err(PyValueError::new_err("columns of calls must be of one length"));
        }
        let known = |&function: &u32| (function as usize) < functions.len();
        if !self.function.iter().all(known) {
            return Err(PyValueError::new_err("calls name a function that is not known"));
        }
        Ok(())
    }
}

//! The Python module `permille.ptcore`.

mod accesses;
mod binary;
mod blocks;
mod call_rows;
mod calls_file;
mod capture;
mod categories;
mod column;
mod counted;
mod decode;
mod delivery;
mod functions;
mod generated;
mod given_columns;
mod image;
mod listed;
mod listing;
mod outcome;
mod rows_file;
mod shelf;
mod threads;

use pyo3::prelude::*;

#[pymodule]
fn _ptcore(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<binary::Binary>()?;
    module.add_class::<calls_file::CallsFile>()?;
    module.add_class::<capture::Capture>()?;
    module.add_class::<capture::Stream>()?;
    module.add("CaptureError", module.py().get_type::<capture::CaptureError>())?;
    module.add("INSTRUCTION_CLASSES", pt_flow::InstructionClass::ALL.map(|class| class.name()).to_vec())?;
    module.add_class::<categories::Categories>()?;
    module.add_class::<column::Column>()?;
    module.add_class::<outcome::Callers>()?;
    module.add_class::<outcome::Decoded>()?;
    module.add_class::<decode::Decoder>()?;
    module.add_class::<decode::PtConfig>()?;
    module.add_class::<functions::Functions>()?;
    module.add_class::<generated::Generated>()?;
    module.add_class::<image::Image>()?;
    module.add_class::<listed::Listed>()?;
    module.add_class::<listed::ListedBinary>()?;
    module.add_class::<listed::ListedChange>()?;
    module.add_class::<listed::Piece>()?;
    module.add_class::<listing::Batches>()?;
    module.add_class::<rows_file::RowsFile>()?;
    module.add_function(wrap_pyfunction!(blocks::block_counts, module)?)?;
    module.add_function(wrap_pyfunction!(decode::decode, module)?)?;
    module.add_function(wrap_pyfunction!(threads::decode_threads, module)?)?;
    module.add_function(wrap_pyfunction!(threads::divide, module)?)?;
    module.add_function(wrap_pyfunction!(threads::switch_warnings, module)?)?;
    module.add_function(wrap_pyfunction!(decode::instructions, module)?)?;
    module.add_function(wrap_pyfunction!(decode::packets, module)?)?;
    Ok(())
}

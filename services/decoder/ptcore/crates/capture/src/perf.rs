//! perf.data: files, pipes and folders of `perf record`, and loose files of perf event records.

mod address_filters;
mod attributes;
mod auxtrace;
mod bpf;
mod buffers;
mod build_ids;
mod file;
mod id_index;
mod kernel;
mod kernel_changes;
mod layouts;
mod modules;
mod outsiders;
mod overlap;
mod portable;
mod pt_info;
pub mod record;
#[cfg(test)]
mod recording;
mod records;
mod running;
mod sample_type;
mod samples;
mod sched_switch;
mod scope;
mod sideband;
mod thread_names;
mod untimed;
mod written;

pub use file::{is_file, read};
pub use sideband::{attach_loose, core_named};

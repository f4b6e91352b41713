//! The tests of the crate, as one program: compiled and linked once.

mod accesses;
mod conformance;
mod damaged_times;
mod differential;
mod evidence;
mod flow;
mod griffin;
mod guest_times;
mod hidden_kernel;
mod machine;
mod made_up;
mod made_up_times;
mod modes;
mod mutations;
mod newer_code;
mod next_ip;
mod notices;
mod one_by_one;
mod oracle;
mod slots;
mod support;
mod turns;
mod vectors;
mod waiting;

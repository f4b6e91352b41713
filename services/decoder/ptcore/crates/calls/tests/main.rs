//! The tests of the crate, as one program: compiled and linked once.

mod batches;
mod bounds;
mod calls;
mod deep;
mod far_calls;
mod filters;
mod functions;
mod gathered;
mod griffin;
mod hidden;
mod hidden_kernel;
mod in_parts;
mod kernel;
mod machine;
mod nested;
mod parts;
mod paths;
mod pieces;
mod side_by_side;
#[path = "../../flow/tests/support/mod.rs"]
mod support;
mod switches;
mod threads;
mod times;
mod truth;
mod turns;

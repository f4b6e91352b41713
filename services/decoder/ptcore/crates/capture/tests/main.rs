//! The tests of the crate, as one program: compiled and linked once.

mod attribution;
#[path = "../../flow/tests/differential/mod.rs"]
mod differential;
mod given;
mod griffin;
mod lldb;
mod made_up_turns;
mod mutations;
mod oracle;
mod perf;
mod pieces;
mod raw;
mod session;
mod support;

//! Function calls, branch edges and losses from the flow of a Processor Trace stream.
//!
//! [`Calls`] is the [`pt_flow::Sink`] that follows the flow of one thread with a stack of calls. Every instruction that
//! the flow tells is counted in exactly one call.

mod blocks;
mod calls;
mod clock;
mod coverage;
mod edges;
mod functions;
mod plan;
mod records;
mod stack;

pub use blocks::{BlockCount, Blocks};
pub use calls::{Calls, LossCause, LossRecord, Trace};
pub use coverage::Coverage;
pub use edges::{Edge, EdgeKind};
pub use functions::{FunctionKey, FunctionTotals};
pub use records::{Records, ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, TAIL_CALL, UNWOUND};

//! Function calls, branch edges and losses from the flow of a Processor Trace stream.
//!
//! [`Calls`] is the [`pt_flow::Sink`] that follows the flow of one thread with a stack of calls. Every instruction that
//! the flow tells is counted in exactly one call.
#![forbid(unsafe_code)]

mod arrival;
mod blocks;
mod cached;
mod calls;
mod clock;
mod coverage;
mod edges;
mod extents;
mod found;
mod fragment;
mod functions;
mod gathered;
mod in_parts;
mod known;
mod losses;
mod members;
mod numbered;
mod output;
mod pages;
mod plan;
mod records;
mod stack;
mod targets;
mod trace;
mod uncounted;
mod window;

pub use blocks::{BlockCount, Blocks};
pub use calls::{Calls, Learned};
pub use coverage::Coverage;
pub use edges::{Edge, EdgeKind};
pub use found::{Callers, Found};
pub use functions::{FunctionKey, FunctionTotals, News};
pub use in_parts::{decode_calls_in_parts, Divided, Helper, PART_BYTES};
pub use losses::{LossCause, LossRecord};
pub use output::{Batch, Kept, Output};
pub use records::{Columns, Records, ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, TAIL_CALL, UNWOUND};
pub use targets::Targets;
pub use trace::{Totals, Trace};

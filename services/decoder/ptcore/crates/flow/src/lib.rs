//! Execution flow from Intel Processor Trace packets and the code they ran.
//!
//! [`Flow`] walks the code of a [`CodeMemory`] along the packets of a stream and tells a [`Sink`] every block that ran.
#![forbid(unsafe_code)]

mod loss;
mod memory;
mod sink;

pub use loss::{Loss, Reason};
pub use memory::{CodeMemory, CodeSlice};
pub use sink::{Block, BlockKind, DisableKind, Sink};

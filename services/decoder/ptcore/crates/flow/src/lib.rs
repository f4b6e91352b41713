//! Execution flow from Intel Processor Trace packets and the code they ran.
//!
//! [`Flow`] walks the code of a [`CodeMemory`] along the packets of a stream and tells a [`Sink`] every block that ran.
#![forbid(unsafe_code)]

mod access;
mod calibration;
mod code;
mod config;
mod crystal;
mod event;
mod events;
mod flow;
mod loss;
mod memory;
mod notice;
mod part;
mod parts;
mod path;
mod returns;
mod sink;
mod statistics;
mod system;
mod time;
mod walk;

pub use access::{Access, InstructionClass};
pub use calibration::Rate;
pub use config::{AddressFilter, Config};
pub use flow::Flow;
pub use loss::{Loss, Reason};
pub use memory::{CodeMemory, CodeSlice};
pub use notice::{Notice, NoticeKind};
pub use part::{Ended, Part, Stopped};
pub use parts::{decode_in_parts, Stream, Workers};
pub use pt_packet::{Cpu, Errata, Execution};
pub use sink::{Block, BlockKind, DisableKind, Path, Sink};
pub use statistics::Statistics;
pub use time::Time;

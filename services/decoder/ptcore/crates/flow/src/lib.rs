//! Execution flow from Intel Processor Trace packets and the code they ran.
//!
//! [`Flow`] walks the code of a [`CodeMemory`] along the packets of a stream and tells a [`Sink`] every block that ran.
#![forbid(unsafe_code)]

mod access;
mod block;
mod calibration;
mod code;
mod code_block;
mod cold_path;
mod cond_branches;
mod config;
mod crystal;
mod epochs_ahead;
mod event;
mod events;
mod flow;
mod lead;
mod loss;
mod memory;
mod notice;
mod part;
mod parts;
mod path;
mod paths;
mod places;
mod returns;
mod shared_work;
mod sink;
mod statistics;
mod system;
mod tally;
mod time;
mod view;
mod walk;
mod whole_tsc;

pub use access::{Access, InstructionClass};
pub use block::{Block, BlockKind};
pub use calibration::Rate;
pub use code::AddressHasher;
pub use cold_path::cold_path;
pub use cond_branches::{CondBranch, CondBranches};
pub use config::{AddressFilter, Config};
pub use flow::Flow;
pub use loss::{Loss, Reason};
pub use memory::{CodeMemory, CodeSlice, Near};
pub use notice::{Notice, NoticeKind};
pub use part::{Clock, Ended, Part, Stopped};
pub use parts::{decode_in_parts, part_by_itself, Stream};
pub use path::Path;
pub use paths::Step;
pub use places::{places_to_join, Places, Workers};
pub use pt_packet::{find_psb, Cpu, Errata, Execution};
pub use shared_work::share;
pub use sink::{DisableKind, Sink, Travels};
pub use statistics::Statistics;
pub use time::{Latest, Time, World};
pub use view::is_kernel;
pub use walk::{InTurn, InTurns, Turns};
pub use whole_tsc::whole_tsc;

//! Recordings of Processor Trace, however they were made: packet streams, the code that ran, and who ran when.
//!
//! [`open`] recognises a file or folder by its content and gives a [`Capture`]. A stream is decoded with the capture's
//! [`Memory`] and the stream's own epochs, which are numbers of [`View`]s: thread and address space as of some moment.
//! The thread of a decoded block is that of its epoch's view; [`Threads`] divides what a sink is told by thread.
#![forbid(unsafe_code)]

mod attribute;
mod by_stay;
mod by_time;
mod bytes;
mod capture;
mod contradictions;
mod conversion;
mod core_stream;
mod decoding;
mod elf;
mod error;
mod fields;
mod files;
mod gaps;
mod given;
mod griffin;
mod guests;
mod identity;
mod ids;
mod jit;
mod json;
mod listed;
mod lldb;
mod memory;
mod on_core;
mod open;
mod options;
mod perf;
mod perf_map;
mod pieces;
mod raw;
mod runs;
mod session;
mod side_by_side;
mod spaces;
mod stays;
mod temporary;
mod thread_sinks;
mod threads;
mod ticks;
mod timeline;
mod unpacked;
mod vdso;
mod views;
mod zstd;

pub use attribute::{place, Placed, Turn};
pub use by_stay::ByStay;
pub use by_time::ByTime;
pub use bytes::Bytes;
pub use capture::{Capture, Kind, Of, Stream, Switch, View};
pub use conversion::Conversion;
pub use core_stream::{divide, Divided, Epochs, SwitchRecords};
pub use decoding::{decode_cores, CoreStream};
pub use error::CaptureError;
pub use jit::{Generated, Timeline, Told, What};
pub use listed::{list, Code, Listed, ListedChange};
pub use memory::Memory;
pub use open::open;
pub use options::{Options, RawImage};
pub use pieces::{pieces, Piece};
pub use side_by_side::{decode_side_by_side, Travelled};
pub use spaces::KERNEL;
pub use stays::{Stay, Stays};
pub use thread_sinks::{Sinks, ThreadSinks};
pub use threads::Threads;
pub use views::Views;

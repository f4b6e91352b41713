//! A Processor Trace stream as people and programs read it: counts, packets, flow and calls.
//!
//! Everything is written into [`Lines`], which hands on what it holds from time to time: the listing of a stream takes no
//! more memory than the stream's decode. [`Form::Json`] is one object a line.
#![forbid(unsafe_code)]

mod branches;
mod calls;
mod code;
mod counts;
mod escape;
mod flow;
mod inlined;
mod lines;
mod notice;
mod packets;
mod page;
mod row;
mod thread;
mod times;
mod who;

pub use branches::{Branches, Gap};
pub use calls::{functions, CallListing, CallWriter, Dropped};
pub use code::Code;
pub use counts::{Counts, MAX_GAPS};
pub use escape::escaped;
pub use flow::{Detail, FlowListing};
pub use inlined::{Chains, Inlined};
pub use lines::{stop, stopped, Form, Lines};
pub use packets::packets;
pub use page::{write_calls, Page};
pub use row::{Row, Value};
pub use thread::Thread;
pub use times::Times;
pub use who::{Only, Who};

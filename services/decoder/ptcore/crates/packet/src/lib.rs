//! Packets of Intel Processor Trace, read in place from a byte slice.
//!
//! Encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, chapter "Intel Processor Trace",
//! section "Trace Packets and Data Types".
#![forbid(unsafe_code)]

mod errata;
mod packet;
mod reader;
pub mod writer;

pub use errata::{Cpu, Errata};
pub use packet::{Compression, Execution, Ip, Packet};
pub use reader::{find_psb, psbs, Error, ErrorKind, Reader, OVF, PSB};

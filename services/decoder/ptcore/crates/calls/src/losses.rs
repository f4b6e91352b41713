//! Stretches of the stream without calls.

use pt_flow::Reason;

/// Why a stretch of the stream has no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The bytes are there and could not be decoded.
    Undecodable(Reason),
    /// The processor wrote that it lost packets.
    Overflow,
}

/// A stretch without calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRecord {
    /// Whose stream it is, of those of several cores.
    pub core: u32,
    /// Bytes of the stream: where it begins, and how long it is.
    pub offset: u64,
    pub size: u64,
    /// TSC ticks; 0 when unknown.
    pub start_tsc: u64,
    pub end_tsc: u64,
    pub cause: LossCause,
    /// Where the flow stood, in which epoch of the image; 0 when unknown.
    pub address: u64,
    pub epoch: u32,
}

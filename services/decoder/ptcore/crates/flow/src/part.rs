//! A part of a stream, from one PSB up to another, and how it ended.

use crate::statistics::Statistics;
use crate::Time;

/// Which part of a stream to decode.
#[derive(Clone, Debug, Default)]
pub struct Part<'p> {
    /// 0 or the offset of a PSB.
    pub from: usize,
    /// The flow of the part before is known to fit that PSB.
    pub joins: bool,
    /// Offsets of PSBs behind it, in order. The part ends at the first of them from which the rest can be decoded by
    /// itself, else with the stream.
    pub stops: &'p [usize],
    /// Offsets of the stream in front of which packets are missing, in order.
    pub missing: &'p [usize],
    /// What is known of the time where the part begins.
    pub clock: Clock,
}

/// Where the time of a part comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// Its own packets alone.
    #[default]
    New,
    /// The packets from this PSB before it on as well: what they leave open is known later.
    From(usize),
    /// The part before.
    Known(Box<Time>),
}

/// How a part ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub statistics: Statistics,
    /// `None` at the end of the stream.
    pub stopped: Option<Stopped>,
    /// The time behind the PSB+ at which the part joined the one before; `None` when it did not.
    pub joined: Option<Box<Time>>,
    /// The time at the end.
    pub time: Box<Time>,
}

/// A PSB from which another part goes on.
#[derive(Clone, Debug)]
pub struct Stopped {
    pub psb: usize,
    /// Whether the flow leads there; otherwise it was lost before.
    pub fits: bool,
    /// The time in front of the PSB and behind its PSB+.
    pub before: Box<Time>,
    pub behind: Box<Time>,
}

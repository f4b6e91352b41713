//! A part of a stream, from one PSB up to another, and how it ended.

use crate::statistics::Statistics;

/// Which part of a stream to decode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part<'p> {
    /// 0 or the offset of a PSB.
    pub from: usize,
    /// The flow of the part before is known to fit that PSB.
    pub joins: bool,
    /// Offsets of PSBs behind it, in order. The part ends at the first of them from which the rest can be decoded by
    /// itself, else with the stream.
    pub stops: &'p [usize],
}

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub statistics: Statistics,
    /// `None` at the end of the stream.
    pub stopped: Option<Stopped>,
    /// The flow does not lead anywhere from the first PSB: it is told once more if the part joins.
    pub astray: bool,
}

/// A PSB from which another part goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    pub psb: usize,
    /// Whether the flow leads there; otherwise it was lost before.
    pub fits: bool,
}

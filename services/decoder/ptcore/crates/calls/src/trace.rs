//! What became known of a stream.

use crate::edges::Edge;
use crate::functions::FunctionTotals;
use crate::losses::LossRecord;
use crate::records::Records;

/// Everything that became known of a stream.
pub struct Trace {
    pub records: Records,
    pub functions: Vec<FunctionTotals>,
    /// In order.
    pub edges: Vec<(Edge, u64)>,
    pub losses: Vec<LossRecord>,
}

/// What a stream adds up to.
pub struct Totals {
    /// By their numbers.
    pub functions: Vec<FunctionTotals>,
    /// In order.
    pub edges: Vec<(Edge, u64)>,
    /// How many calls there were.
    pub calls: u64,
}

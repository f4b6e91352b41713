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

impl Totals {
    /// Adds edges that were counted elsewhere, which are in order too.
    pub fn add_edges(&mut self, edges: Vec<(Edge, u64)>) {
        if self.edges.is_empty() {
            self.edges = edges;
            return;
        }
        let mine = std::mem::take(&mut self.edges);
        self.edges.reserve(mine.len().max(edges.len()));
        let (mut mine, mut others) = (mine.into_iter().peekable(), edges.into_iter().peekable());
        while let (Some(&(one, count)), Some(&(other, more))) = (mine.peek(), others.peek()) {
            self.edges.push(if one <= other {
                (one, count + if one == other { more } else { 0 })
            } else {
                (other, more)
            });
            if one <= other {
                mine.next();
            }
            if other <= one {
                others.next();
            }
        }
        self.edges.extend(mine.chain(others));
    }
}

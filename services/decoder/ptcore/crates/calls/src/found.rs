//! Callers that were found when calls below them had been handed out already.

use crate::records::NO_PARENT;
use std::ops::Range;

/// Of the same stretch, calls with numbers behind `caller` and up to `last` lie inside it: they are one deeper than they
/// were told, and those without a caller are called by it. The caller found next lies around it likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub caller: u64,
    pub last: u64,
}

/// All that were found in a stream.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// In the order in which they were found.
    found: Vec<Found>,
    /// Those of one stretch: the lowest and the highest number that they concern.
    stretches: Vec<(u64, u64, Range<usize>)>,
}

impl Callers {
    pub fn new(found: Vec<Found>) -> Self {
        let (mut stretches, mut at) = (Vec::new(), 0);
        // Within a stretch each has the number before the last one's.
        for of_stretch in found.chunk_by(|one, next| one.caller == next.caller + 1) {
            let range = at..at + of_stretch.len();
            at = range.end;
            stretches.push((found[at - 1].caller, found[at - 1].last, range));
        }
        Callers { found, stretches }
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Gives calls as they were handed out the callers and the depth that they have.
    pub fn place(&self, calls: &[u64], parents: &mut [u64], depths: &mut [u32]) {
        for ((&call, parent), depth) in calls.iter().zip(parents).zip(depths) {
            let next = self.stretches.partition_point(|&(_, high, _)| high < call);
            let Some((_, _, range)) = self.stretches.get(next).filter(|&&(low, ..)| low < call) else { continue };
            let found = &self.found[range.clone()];
            let around = found.partition_point(|one| one.last < call || one.caller >= call);
            *depth += (found.len() - around) as u32;
            if *parent == NO_PARENT {
                *parent = found[around].caller;
            }
        }
    }
}

//! Where branches led.

use crate::edges::Edge;
use pt_flow::AddressHasher;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

/// The addresses that branches led to, taken or not. Code that begins at one of them is a basic block however the stream
/// was divided; where a PSB, an interruption or the recording's begin cut the code says nothing about it.
pub struct Targets(HashSet<u64, BuildHasherDefault<AddressHasher>>);

impl Targets {
    pub fn of(edges: &[(Edge, u64)]) -> Self {
        let mut targets = HashSet::with_capacity_and_hasher(edges.len(), BuildHasherDefault::default());
        targets.extend(edges.iter().map(|(edge, _)| edge.to));
        Targets(targets)
    }

    pub fn contains(&self, address: u64) -> bool {
        self.0.contains(&address)
    }
}

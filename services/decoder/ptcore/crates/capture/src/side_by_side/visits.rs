//! Which threads come to which cores, in their order.

use crate::View;
use std::collections::HashMap;

/// A stay of a thread on the core of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visit {
    pub stay: u32,
    pub stream: usize,
    /// The last epoch of the stream that is of the thread in this stay.
    pub last: usize,
}

pub struct Visits {
    /// By stream and epoch: whose turn it is, by tid and stay.
    turns: Vec<Vec<(u32, u32)>>,
    /// By tid; none of the idle thread, which is everywhere.
    of_threads: HashMap<u32, Vec<Visit>>,
}

impl Visits {
    /// `epochs`: by stream, as numbers of views.
    pub fn of<'e>(views: &[View], epochs: impl Iterator<Item = &'e [(usize, u32)]>) -> Self {
        let turn = |&(_, epoch): &(usize, u32)| views.get(epoch as usize).map_or((0, 0), |view| (view.tid, view.stay));
        let turns: Vec<Vec<_>> = epochs.map(|epochs| epochs.iter().map(turn).collect()).collect();
        let mut last = HashMap::new();
        for (stream, turns) in turns.iter().enumerate() {
            for (number, &(tid, stay)) in turns.iter().enumerate().filter(|&(_, &(tid, _))| tid != 0) {
                last.insert((tid, stay, stream), number);
            }
        }
        let mut of_threads: HashMap<u32, Vec<Visit>> = HashMap::new();
        for ((tid, stay, stream), last) in last {
            of_threads.entry(tid).or_default().push(Visit { stay, stream, last });
        }
        of_threads.values_mut().for_each(|visits| visits.sort_unstable());
        Visits { turns, of_threads }
    }

    /// Whose turn it is on a stream of which so many epochs have begun, or where it begins; `None` of the idle thread.
    pub fn at(&self, stream: usize, begun: usize) -> Option<(u32, u32)> {
        self.turns[stream].get(begun.saturating_sub(1)).copied().filter(|&(tid, _)| tid != 0)
    }

    pub fn of_thread(&self, tid: u32) -> &[Visit] {
        self.of_threads.get(&tid).map_or(&[], Vec::as_slice)
    }
}

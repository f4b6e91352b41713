//! What the calls that are open wait for: whether any of them goes on at an address is told without a look at each.

use super::frame::{Frame, Interruption};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Calls that are looked at one by one before what is known of those around them is asked for.
pub const NEAR: usize = 64;

/// What is known of the open calls, from the outermost one on. It is made up for what changed only when it is asked for, so that
/// calls begin and end without it; each is put in and taken out once. Rows tell which calls are still the same: those of open
/// calls stay up to where calls are handed out, and there all is forgotten.
#[derive(Default)]
pub struct Awaited {
    calls: Vec<Awaiting>,
    /// By the call that interrupts: where what it interrupted resumes, and where else.
    interruptions: Vec<(usize, [u64; 2])>,
    returns: Outermost<u64>,
    /// By the function that made the call, and where it returns to.
    made: Outermost<(u32, u64)>,
    resumes: Outermost<u64>,
}

struct Awaiting {
    row: u32,
    returns_to: u64,
    /// The function of the call around it.
    caller: Option<u32>,
}

impl Awaited {
    /// What is known is that of these calls and interruptions.
    pub fn follow(&mut self, frames: &[Frame], interruptions: &[Interruption]) {
        let same = self.same(frames);
        while self.calls.len() > same {
            self.take_out();
        }
        while self.calls.len() < frames.len() {
            self.put_in(frames, interruptions);
        }
    }

    /// Whether a call returns to `address`.
    pub fn returns_to(&self, address: u64) -> bool {
        self.returns.knows(address..=address)
    }

    /// Whether a call that `function` made returns to one of these addresses.
    pub fn made(&self, function: u32, returns: RangeInclusive<u64>) -> bool {
        let (first, last) = returns.into_inner();
        first <= last && self.made.knows((function, first)..=(function, last))
    }

    /// Whether an interruption resumes at `address`.
    pub fn resumes_at(&self, address: u64) -> bool {
        self.resumes.knows(address..=address)
    }

    /// How many calls are those that are known: around one of them all are.
    fn same(&self, frames: &[Frame]) -> usize {
        let (mut same, mut other) = (0, self.calls.len().min(frames.len()));
        while same < other {
            let middle = (same + other) / 2;
            if self.calls[middle].row == frames[middle].row {
                same = middle + 1;
            } else {
                other = middle;
            }
        }
        same
    }

    fn put_in(&mut self, frames: &[Frame], interruptions: &[Interruption]) {
        let depth = self.calls.len();
        let Frame { row, returns_to, .. } = frames[depth];
        let caller = depth.checked_sub(1).map(|around| frames[around].function);
        self.calls.push(Awaiting { row, returns_to, caller });
        self.returns.put(returns_to, depth);
        if let Some(function) = caller {
            self.made.put((function, returns_to), depth);
        }
        let next = interruptions.get(self.interruptions.len());
        if let Some(&Interruption { resumes, repeats, .. }) = next.filter(|_| frames[depth].is_asynchronous()) {
            self.interruptions.push((depth, [resumes, repeats]));
            self.resumes.put(resumes, depth);
            self.resumes.put(repeats, depth);
        }
    }

    fn take_out(&mut self) {
        let Some(Awaiting { returns_to, caller, .. }) = self.calls.pop() else { return };
        let depth = self.calls.len();
        self.returns.take(returns_to, depth);
        if let Some(function) = caller {
            self.made.take((function, returns_to), depth);
        }
        if let Some(&(_, addresses)) = self.interruptions.last().filter(|known| known.0 == depth) {
            self.interruptions.pop();
            addresses.into_iter().for_each(|address| self.resumes.take(address, depth));
        }
    }
}

/// The depth of the outermost call that waits for something.
struct Outermost<K>(BTreeMap<K, usize>);

impl<K> Default for Outermost<K> {
    fn default() -> Self {
        Outermost(BTreeMap::new())
    }
}

impl<K: Ord> Outermost<K> {
    fn knows(&self, keys: RangeInclusive<K>) -> bool {
        self.0.range(keys).next().is_some()
    }

    fn put(&mut self, key: K, depth: usize) {
        self.0.entry(key).or_insert(depth);
    }

    fn take(&mut self, key: K, depth: usize) {
        if self.0.get(&key) == Some(&depth) {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::frame::INTERRUPTED;

    /// A call that was opened as the one of that number, with addresses and functions of which there are few.
    fn frame(row: u32, asynchronous: bool) -> Frame {
        let marks = if asynchronous { INTERRUPTED } else { 0 };
        let (function, returns_to) = (row % 5, u64::from(row % 7));
        Frame { row, function, timed: function, marks, returns_to, began: 0, below: 0 }
    }

    #[test]
    fn it_knows_what_a_look_at_each_call_would_find() {
        let (mut awaited, mut frames, mut interruptions) = (Awaited::default(), Vec::new(), Vec::new());
        let mut row = 0;
        for round in 0..2000_usize {
            // Some end, others begin.
            for _ in 0..(round * 7 % 11).min(frames.len()) {
                if frames.pop().is_some_and(|frame: Frame| frame.is_asynchronous()) {
                    interruptions.pop();
                }
            }
            for _ in 0..round * 5 % 12 {
                row += 1;
                frames.push(frame(row, row % 3 == 0));
                if row % 3 == 0 {
                    let (resumes, repeats) = (u64::from(row % 11), u64::from(row % 13));
                    interruptions.push(Interruption { resumes, repeats, returning: false });
                }
            }
            if round % 3 == 0 {
                continue;
            }
            awaited.follow(&frames, &interruptions);
            assert_eq!(awaited.calls.len(), frames.len());
            for address in 0..14 {
                assert_eq!(awaited.returns_to(address), frames.iter().any(|frame| frame.returns_to == address));
                let resumes = |known: &Interruption| known.resumes == address || known.repeats == address;
                assert_eq!(awaited.resumes_at(address), interruptions.iter().any(resumes));
                for function in 0..6 {
                    let made = |pair: &[Frame]| pair[0].function == function && pair[1].returns_to >= address;
                    assert_eq!(awaited.made(function, address..=6), address <= 6 && frames.windows(2).any(made));
                }
            }
        }
        awaited.follow(&[], &[]);
        assert!(awaited.returns.0.is_empty() && awaited.made.0.is_empty() && awaited.resumes.0.is_empty());
    }
}

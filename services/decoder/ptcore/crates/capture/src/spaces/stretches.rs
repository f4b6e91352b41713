//! Sets of addresses.

use std::collections::BTreeMap;

/// Stretches that neither overlap nor touch: start to end.
#[derive(Default)]
pub struct Stretches(BTreeMap<u64, u64>);

impl Stretches {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn overlap(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, &known)| known > start)
    }

    /// Whether all of it is there.
    pub fn hold(&self, start: u64, end: u64) -> bool {
        self.0.range(..=start).next_back().is_some_and(|(_, &known)| known >= end)
    }

    /// From the first to the last that is there of a stretch; `None` where nothing is.
    pub fn bounds(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let before = self.0.range(..=start).next_back().filter(|(_, &known)| known > start);
        let (&first, _) = before.or_else(|| self.0.range(start..end).next())?;
        let (_, &last) = self.0.range(..end).next_back()?;
        Some((first.max(start), last.min(end)))
    }

    pub fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|&(_, &to)| to >= start) {
            (start, end) = (start.min(from), end.max(to));
            self.0.remove(&from);
        }
        if start < end {
            self.0.insert(start, end);
        }
    }

    pub fn remove(&mut self, start: u64, end: u64) {
        while let Some((&from, &to)) = self.0.range(..end).next_back().filter(|&(_, &to)| to > start) {
            self.0.remove(&from);
            if to > end {
                self.0.insert(end, to);
            }
            if from < start {
                self.0.insert(from, start);
            }
        }
    }

    /// The parts of a stretch that are not there.
    pub fn holes(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.0.range(..=start).next_back().filter(|(_, &known)| known > start);
        let inside = self.0.range(start..end).filter(|(&from, _)| from > start);
        let (mut holes, mut at) = (Vec::new(), start);
        for (&from, &to) in before.into_iter().chain(inside) {
            if at < from {
                holes.push((at, from));
            }
            at = to;
        }
        if at < end {
            holes.push((at, end));
        }
        holes
    }

    pub fn take(&mut self) -> impl Iterator<Item = (u64, u64)> {
        std::mem::take(&mut self.0).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_plain_set_of_addresses() {
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let (mut stretches, mut model) = (Stretches::default(), [false; 64]);
        for _ in 0..5000 {
            let start = random(60);
            let end = start + 1 + random(64 - start - 1);
            let range = start as usize..end as usize;
            let inside = &model[range.clone()];
            assert_eq!(stretches.overlap(start, end), inside.contains(&true));
            assert_eq!(stretches.hold(start, end), !inside.contains(&false));
            let first = inside.iter().position(|&there| there);
            let last = inside.iter().rposition(|&there| there);
            let bounds = first.zip(last).map(|(first, last)| (start + first as u64, start + last as u64 + 1));
            assert_eq!(stretches.bounds(start, end), bounds);
            let mut filled = inside.to_vec();
            for (from, to) in stretches.holes(start, end) {
                let hole = &mut filled[(from - start) as usize..(to - start) as usize];
                assert!(!hole.contains(&true));
                hole.fill(true);
            }
            assert!(!filled.contains(&false));
            let add = random(2) == 0;
            model[range].fill(add);
            if add {
                stretches.add(start, end);
            } else {
                stretches.remove(start, end);
            }
        }
    }
}

//! Begins and ends on their way to a time.

use crate::functions::Sums;
use crate::pages::Pages;
use std::collections::HashMap;

/// Marks in `Change::ended`: a begin; the end of a call inside another one of its function.
pub const BEGIN: u32 = u32::MAX;
pub const INNER: u32 = u32::MAX - 1;
/// In `Change::ended`: the call belongs to a gapless stretch before.
const PAST: u32 = 1 << 31;
/// Begins and ends that may wait for the end of one stretch.
pub const MOST: usize = 1 << 20;
/// Times are given when so many wait for no more than that, or stretches are over: what is needed for it stays in the cache.
const CHANGES: usize = 1 << 9;
const STRETCHES: usize = 1 << 7;

/// A begin or an end.
#[derive(Clone, Copy, Default)]
pub struct Change {
    /// Instructions that had run.
    pub at: u64,
    pub row: u32,
    /// The function whose own time is over, `NOBODY` when it is not counted.
    pub before: u32,
    /// Of the call that ended.
    pub ended: u32,
}

/// A stretch of instructions between two packets, and when it began and ended.
#[derive(Clone, Copy, Default)]
pub struct Stretch {
    pub from: u64,
    pub to: u64,
    pub since: u64,
    pub ran: u64,
}

/// Begins and ends in their order. Those of stretches that are over come first, and get their times many at once.
pub struct Waiting {
    /// The first `count` are some.
    changes: Vec<Change>,
    count: usize,
    /// The first `ended` are some: stretches, and how many are not behind them.
    over: Vec<(Stretch, usize)>,
    ended: usize,
    /// How many are of stretches that are over.
    settled: usize,
    /// The time of the last begin or end.
    pub last: u64,
    /// How many belong to gapless stretches before.
    past: usize,
    inner: Vec<Inner>,
}

/// Calls of the function that are waiting turned out to be inside another one of it.
struct Inner {
    function: u32,
    from: usize,
    to: usize,
}

impl Change {
    #[inline(always)]
    pub fn is(&mut self, at: u64, row: u32, before: u32, ended: u32) {
        (self.at, self.row, self.before, self.ended) = (at, row, before, ended);
    }
}

impl Default for Waiting {
    fn default() -> Self {
        let over = vec![<(Stretch, usize)>::default(); STRETCHES];
        let (changes, inner) = (vec![Change::default(); CHANGES], Vec::new());
        Waiting { changes, count: 0, over, ended: 0, settled: 0, last: 0, past: 0, inner }
    }
}

impl Waiting {
    /// The place of the next one. `None` when there is no room.
    #[inline(always)]
    pub fn place(&mut self) -> Option<&mut Change> {
        let place = self.changes.get_mut(self.count);
        self.count += usize::from(place.is_some());
        place
    }

    /// Adds one for which there was no room before all times were given that are known. False when no more may wait.
    pub fn make_room(&mut self, change: Change) -> bool {
        let more = if self.count + 1 == MOST { MOST } else { (2 * self.count).min(MOST - 1) };
        if self.count == self.changes.len() {
            self.changes.resize(more, Change::default());
        }
        if let Some(place) = self.place() {
            *place = change;
        }
        self.count != MOST
    }

    /// What waits is of a stretch that is over. Whether times have to be given before the next one is.
    #[inline(always)]
    #[must_use]
    pub fn settle(&mut self, stretch: Stretch) -> bool {
        if self.settled == self.count {
            return false;
        }
        if let Some((place, end)) = self.over.get_mut(self.ended) {
            (place.from, place.to, place.since, place.ran) = (stretch.from, stretch.to, stretch.since, stretch.ran);
            *end = self.count;
        }
        self.settled = self.count;
        self.ended += 1;
        self.ended == STRETCHES || self.past != 0
    }

    /// Gives a time to what is of stretches that are over.
    #[inline(never)]
    pub fn give_times(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        if self.settled == 0 {
            return;
        }
        if !self.inner.is_empty() {
            self.take_inner();
        }
        // Up to the first time that was told rows have none already.
        let all = &self.over[..self.ended];
        let over = if all.last().is_some_and(|(stretch, _)| stretch.to != 0) { all } else { &[] };
        let (mut first, mut last) = (if over.is_empty() { self.settled } else { 0 }, self.last);
        (self.past, self.settled) = (0, 0);
        for (stretch, end) in over {
            last = stretch.give_times(&self.changes[first..*end], last, pages, sums);
            first = *end;
        }
        self.last = last;
        self.ended = 0;
        self.changes.copy_within(first..self.count, 0);
        self.count -= first;
        self.changes.truncate(MOST - 1);
    }

    /// Rows whose begin or end is in the stretch that is not over.
    pub fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.changes[self.settled..self.count].iter().map(|change| change.row)
    }

    pub fn move_rows(&mut self, place: impl Fn(u32) -> u32) {
        self.changes[..self.count].iter_mut().for_each(|change| change.row = place(change.row));
    }

    /// What ends from now on is of another gapless stretch. All times that are known were given.
    pub fn leave_stretch(&mut self) {
        for change in self.changes[self.past..self.count].iter_mut().filter(|change| change.ended < PAST) {
            change.ended |= PAST;
        }
        self.past = self.count;
    }

    /// The function's calls of this gapless stretch turn out to be inside another one.
    pub fn are_inner(&mut self, function: u32) {
        let (from, to) = (self.past, self.count);
        if from != to {
            self.inner.push(Inner { function, from, to });
        }
    }

    #[cold]
    fn take_inner(&mut self) {
        let mut from = HashMap::new();
        for at in (0..self.count).rev() {
            while let Some(inner) = self.inner.last().filter(|inner| inner.to > at) {
                from.insert(inner.function, inner.from);
                self.inner.pop();
            }
            let ended = &mut self.changes[at].ended;
            if from.get(&(*ended & !PAST)).is_some_and(|&from| from <= at) && *ended < INNER {
                *ended = INNER;
            }
        }
        self.inner.clear();
    }

    /// For another stream.
    pub fn reset(&mut self) {
        (self.count, self.ended, self.settled, self.past, self.last) = (0, 0, 0, 0, 0);
        self.inner.clear();
    }
}

impl Stretch {
    /// Gives times to what is of it; the last one. `last`: the one before.
    #[inline(always)]
    fn give_times(&self, changes: &[Change], last: u64, pages: &mut Pages, sums: &mut [Sums]) -> u64 {
        let (ticks, run) = (self.to - self.from, self.ran - self.since);
        // Nothing ran, or one of them is long.
        if (run.wrapping_sub(1) >> 16) | (ticks >> 32) != 0 {
            return self.give_long(changes, last, pages, sums);
        }
        // A little more than the quotient, by which no product reaches the next number: one division is enough for all.
        let pace = (ticks << 32) / run + 1;
        give(changes, last, |at| self.from + (((at - self.since) * pace) >> 32), pages, sums)
    }

    #[cold]
    #[inline(never)]
    fn give_long(&self, changes: &[Change], last: u64, pages: &mut Pages, sums: &mut [Sums]) -> u64 {
        let (ticks, run) = (self.to - self.from, self.ran - self.since);
        if ticks == 0 {
            return give(changes, last, |_| self.from, pages, sums);
        }
        // Stretches of more instructions than a number of 32 bits holds are none that a processor leaves without a packet.
        let at = |at: u64| (at - self.since).min(u32::MAX.into());
        give(changes, last, |ran| self.from + share(ticks, at(ran), run), pages, sums)
    }
}

#[inline(always)]
fn give(changes: &[Change], mut last: u64, time: impl Fn(u64) -> u64, pages: &mut Pages, sums: &mut [Sums]) -> u64 {
    for &Change { at, row, before, ended } in changes {
        let tsc = time(at);
        if let Some(sums) = sums.get_mut(before as usize) {
            sums.self_ticks += tsc - last;
        }
        last = tsc;
        let (page, at) = pages.at(row);
        if ended == BEGIN {
            page.start_tsc[at] = tsc;
            continue;
        }
        page.end_tsc[at] = tsc;
        let start = page.start_tsc[at];
        let ticks = if start == 0 { 0 } else { tsc.saturating_sub(start) };
        match sums.get_mut(ended as usize) {
            Some(sums) => sums.total_ticks += ticks,
            None if ended == INNER => {}
            None => ended_before(&mut sums[(ended & !PAST) as usize], ticks),
        }
    }
    last
}

/// The call was of a gapless stretch before.
#[cold]
fn ended_before(sums: &mut Sums, ticks: u64) {
    sums.total_ticks += ticks;
    sums.before.1 += ticks;
}

/// `ticks` * `at` / `run`.
#[inline(always)]
fn share(ticks: u64, at: u64, run: u64) -> u64 {
    match ticks.checked_mul(at) {
        Some(product) => product.checked_div(run).unwrap_or(ticks),
        None => (u128::from(ticks) * u128::from(at) / u128::from(run)) as u64,
    }
}

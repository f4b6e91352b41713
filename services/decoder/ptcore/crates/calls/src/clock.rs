//! Times between two packets.

use crate::functions::Sums;
use crate::pages::Pages;
use std::collections::HashMap;

/// Gives the begins and ends of calls a time: packets say when a stretch of instructions was over, and within the stretch
/// time passes evenly over the instructions.
#[derive(Default)]
pub struct Clock {
    /// When the stretch before was over, TSC ticks; 0 when unknown.
    from: u64,
    /// When this one is over; `OPEN` until a packet behind a PSB says so.
    to: u64,
    /// Instructions up to now, and those that had run when this stretch began.
    pub ran: u64,
    since: u64,
    /// The time of the last begin or end.
    last: u64,
    waiting: Vec<Waiting>,
    /// How many of them belong to stretches before.
    past: usize,
    inner: Vec<Inner>,
    /// More began and ended within one stretch than may wait.
    pub was_cut: bool,
}

/// Calls of the function that are waiting turned out to be inside another one of it.
struct Inner {
    function: u32,
    from: usize,
    to: usize,
}

/// A begin or an end whose time is not known yet.
#[derive(Clone, Copy)]
struct Waiting {
    /// Instructions that had run.
    at: u64,
    row: u32,
    /// The function whose own time is over, `NOBODY` when it is not counted.
    before: u32,
    /// Of the call that ended.
    ended: u32,
}

/// Marks in `Waiting::ended`: a begin; the end of a call inside another one of its function.
pub const BEGIN: u32 = u32::MAX;
pub const INNER: u32 = u32::MAX - 1;
/// In `Waiting::ended`: the call belongs to a stretch before.
const PAST: u32 = 1 << 31;
/// In place of a time.
const OPEN: u64 = u64::MAX;
/// Begins and ends that may wait. Where there are more, half of the time that is left is theirs.
const MOST_WAITING: usize = 1 << 20;

impl Clock {
    /// Whether no time is known yet.
    #[inline(always)]
    pub fn is_unknown(&self) -> bool {
        self.to == 0
    }

    /// What follows is over at `tsc`.
    #[inline(always)]
    pub fn advance(&mut self, tsc: u64, pages: &mut Pages, sums: &mut [Sums]) {
        if self.to == OPEN {
            self.to = tsc;
        } else if tsc != self.to {
            self.settle(tsc, pages, sums);
        }
    }

    /// What ran up to now is over at `tsc`, which is not before any time that was told. What runs from now on begins there,
    /// and the next time that is told says when it is over.
    pub fn end_stretch(&mut self, tsc: u64, pages: &mut Pages, sums: &mut [Sums]) {
        self.give_all(pages, sums);
        self.begin_at(tsc);
    }

    /// Nothing waits, and what runs from now on begins at `tsc`.
    pub fn begin_at(&mut self, tsc: u64) {
        (self.from, self.to, self.since) = (tsc, if tsc == 0 { 0 } else { OPEN }, self.ran);
    }

    /// No instruction runs between the time known last and `tsc`.
    pub fn skip(&mut self, tsc: u64, pages: &mut Pages, sums: &mut [Sums]) {
        self.close();
        self.settle(tsc, pages, sums);
        self.from = tsc;
    }

    /// The call in `row` begins; up to now `before` was running.
    #[inline(always)]
    pub fn begins(&mut self, row: u32, before: u32, pages: &mut Pages, sums: &mut [Sums]) {
        self.tell(row, before, BEGIN, pages, sums);
    }

    /// The call in `row` ends; `ended` is its function, or `INNER`.
    #[inline(always)]
    pub fn ends(&mut self, row: u32, before: u32, ended: u32, pages: &mut Pages, sums: &mut [Sums]) {
        self.tell(row, before, ended, pages, sums);
    }

    #[inline(always)]
    fn tell(&mut self, row: u32, before: u32, ended: u32, pages: &mut Pages, sums: &mut [Sums]) {
        let waiting = Waiting { at: self.ran, row, before, ended };
        if self.from == self.to {
            self.set(waiting, self.to, pages, sums);
        } else {
            self.waiting.push(waiting);
            if self.waiting.len() == MOST_WAITING {
                self.cut(pages, sums);
            }
        }
    }

    #[cold]
    fn cut(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        let to = self.to;
        self.to = if to == OPEN { self.from } else { self.from + (to - self.from) / 2 };
        self.was_cut = true;
        self.give_times(pages, sums);
        (self.from, self.to, self.since) = (self.to, to, self.ran);
    }

    /// Rows whose begin or end is not known yet.
    pub fn waiting_rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.iter().map(|waiting| waiting.row)
    }

    pub fn move_rows(&mut self, place: impl Fn(u32) -> u32) {
        self.waiting.iter_mut().for_each(|waiting| waiting.row = place(waiting.row));
    }

    /// What ends from now on is of another stretch.
    pub fn leave_stretch(&mut self) {
        for waiting in self.waiting[self.past..].iter_mut().filter(|waiting| waiting.ended < PAST) {
            waiting.ended |= PAST;
        }
        self.past = self.waiting.len();
    }

    /// The function's calls of this stretch turn out to be inside another one.
    pub fn are_inner(&mut self, function: u32) {
        let (from, to) = (self.past, self.waiting.len());
        if from != to {
            self.inner.push(Inner { function, from, to });
        }
    }

    #[cold]
    fn take_inner(&mut self) {
        let mut from = HashMap::new();
        for at in (0..self.waiting.len()).rev() {
            while let Some(inner) = self.inner.last().filter(|inner| inner.to > at) {
                from.insert(inner.function, inner.from);
                self.inner.pop();
            }
            let ended = &mut self.waiting[at].ended;
            if from.get(&(*ended & !PAST)).is_some_and(|&from| from <= at) && *ended < INNER {
                *ended = INNER;
            }
        }
        self.inner.clear();
    }

    #[inline(always)]
    fn set(&mut self, waiting: Waiting, tsc: u64, pages: &mut Pages, sums: &mut [Sums]) {
        let Waiting { row, before, ended, .. } = waiting;
        if let Some(sums) = sums.get_mut(before as usize) {
            sums.self_ticks += tsc - self.last;
        }
        self.last = tsc;
        let (page, at) = pages.at(row);
        if ended == BEGIN {
            page.start_tsc[at] = tsc;
            return;
        }
        page.end_tsc[at] = tsc;
        if ended == INNER {
            return;
        }
        let start = page.start_tsc[at];
        let ticks = if start == 0 { 0 } else { tsc.saturating_sub(start) };
        match sums.get_mut(ended as usize) {
            Some(sums) => sums.total_ticks += ticks,
            None => ended_before(&mut sums[(ended & !PAST) as usize], ticks),
        }
    }

    #[inline(always)]
    fn settle(&mut self, tsc: u64, pages: &mut Pages, sums: &mut [Sums]) {
        self.give_all(pages, sums);
        // Before the first time there is nothing to divide.
        self.from = if self.to == 0 { tsc } else { self.to };
        self.to = tsc.max(self.from);
        self.since = self.ran;
    }

    /// No time was told since the last PSB: none passed.
    fn close(&mut self) {
        if self.to == OPEN {
            self.to = self.from;
        }
    }

    #[inline(always)]
    fn give_all(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        if !self.waiting.is_empty() {
            self.close();
            self.give_times(pages, sums);
        }
    }

    fn give_times(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        let ticks = self.to - self.from;
        if !self.inner.is_empty() {
            self.take_inner();
        }
        self.past = 0;
        let waiting = std::mem::take(&mut self.waiting);
        let run = self.ran - self.since;
        for &one in &waiting {
            // Stretches of more instructions than a number of 32 bits holds are none that a processor leaves without a
            // packet.
            let at = (one.at - self.since).min(u32::MAX.into());
            self.set(one, self.from + share(ticks, at, run), pages, sums);
        }
        self.waiting = waiting;
        self.waiting.clear();
    }

    /// Begins a part of a stream.
    pub fn join(&mut self, tsc: u64) {
        self.last = tsc;
        self.begin_at(tsc);
    }

    /// The time of the last begin or end becomes `tsc`, which is not before it; returns what passed.
    pub fn catch_up(&mut self, tsc: u64) -> u64 {
        tsc - std::mem::replace(&mut self.last, tsc)
    }

    /// The time that is known last. What waits gets its time.
    pub fn stop(&mut self, pages: &mut Pages, sums: &mut [Sums]) -> u64 {
        self.close();
        self.give_all(pages, sums);
        self.to
    }

    /// The end of the stream; another one may begin.
    pub fn finish(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        self.close();
        self.settle(self.to, pages, sums);
        *self = Clock { waiting: std::mem::take(&mut self.waiting), ..Clock::default() };
    }
}

/// The call was of a stretch before.
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

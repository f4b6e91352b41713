//! Times between two packets.

mod waiting;

use crate::functions::Sums;
use crate::pages::Pages;
pub use waiting::{Change, BEGIN, INNER};
use waiting::{Stretch, Waiting};

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
    /// All bits when a time is known.
    known: u32,
    waiting: Waiting,
    /// More began and ended within one stretch than may wait.
    pub was_cut: bool,
}

/// In place of a time.
const OPEN: u64 = u64::MAX;

impl Clock {
    /// Whether no time is known yet.
    #[inline(always)]
    pub fn is_unknown(&self) -> bool {
        self.known == 0
    }

    /// Whether any time was told in this stream.
    pub fn is_timed(&self) -> bool {
        self.to != 0
    }

    /// The last time that is not behind what runs now, TSC ticks; 0 when unknown.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Whose own time passes from now on where a call of `function` begins: nobody's while no time is known.
    #[inline(always)]
    pub fn timed(&self, function: u32) -> u32 {
        function | !self.known
    }

    /// Where a begin or an end is to be put that takes place now. `None` when there is no room.
    #[inline(always)]
    pub fn place(&mut self) -> Option<&mut Change> {
        self.waiting.place()
    }

    /// What follows is over at `tsc`. Whether times have to be given before more follows.
    #[inline(always)]
    #[must_use]
    pub fn advance(&mut self, tsc: u64) -> bool {
        if self.is_special() {
            return self.advance_rarely(tsc);
        }
        tsc != self.to && self.settle(tsc)
    }

    /// The end of this stretch is not known yet, or no time at all.
    #[inline(always)]
    fn is_special(&self) -> bool {
        self.to.wrapping_add(1) <= 1
    }

    #[cold]
    #[inline(never)]
    fn advance_rarely(&mut self, tsc: u64) -> bool {
        if self.to == OPEN {
            self.to = tsc;
            return false;
        }
        // Before the first time there is nothing to divide.
        let is_due = self.settle(tsc);
        (self.from, self.known) = (tsc, known(tsc));
        is_due
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
        self.known = known(tsc);
    }

    /// No instruction runs between the time known last and `tsc`. Whether times have to be given before more follows.
    #[must_use]
    pub fn skip(&mut self, tsc: u64) -> bool {
        if (self.to, tsc) == (0, 0) {
            return false;
        }
        self.close();
        let is_due = self.settle(tsc);
        (self.from, self.known) = (tsc, self.known | known(tsc));
        is_due
    }

    /// The call in `row` begins; up to now `before` was running.
    pub fn begins(&mut self, row: u32, before: u32, pages: &mut Pages, sums: &mut [Sums]) {
        self.ends(row, before, BEGIN, pages, sums);
    }

    /// The call in `row` ends; `ended` is its function, or `INNER`.
    pub fn ends(&mut self, row: u32, before: u32, ended: u32, pages: &mut Pages, sums: &mut [Sums]) {
        let ran = self.ran;
        match self.place() {
            Some(change) => change.is(ran, row, before, ended),
            None => {
                self.give_times(pages, sums);
                if !self.waiting.make_room(Change { at: ran, row, before, ended }) {
                    self.cut(pages, sums);
                }
            }
        }
    }

    /// Half of the time that is left is that of what waits.
    fn cut(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        let to = self.to;
        self.to = if to == OPEN { self.from } else { self.from + (to - self.from) / 2 };
        self.was_cut = true;
        self.give_all(pages, sums);
        (self.from, self.to, self.since) = (self.to, to, self.ran);
    }

    /// Gives all times that are known.
    pub fn give_times(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        if self.from == self.to {
            return self.give_all(pages, sums);
        }
        self.waiting.give_times(pages, sums);
    }

    /// Rows whose begin or end is not known yet.
    pub fn waiting_rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.rows().filter(|_| self.from != self.to)
    }

    pub fn move_rows(&mut self, place: impl Fn(u32) -> u32) {
        self.waiting.move_rows(place);
    }

    /// What ends from now on is of another gapless stretch.
    pub fn leave_stretch(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        self.give_times(pages, sums);
        self.waiting.leave_stretch();
    }

    /// The function's calls of this gapless stretch turn out to be inside another one. All times that are known were given.
    pub fn are_inner(&mut self, function: u32) {
        self.waiting.are_inner(function);
    }

    fn stretch(&self) -> Stretch {
        Stretch { from: self.from, to: self.to, since: self.since, ran: self.ran }
    }

    #[inline(always)]
    #[must_use]
    fn settle(&mut self, tsc: u64) -> bool {
        let stretch = self.stretch();
        (self.from, self.to, self.since) = (self.to, tsc.max(self.to), self.ran);
        self.waiting.settle(stretch)
    }

    /// No time was told since the last PSB: none passed.
    fn close(&mut self) {
        if self.to == OPEN {
            self.to = self.from;
        }
    }

    fn give_all(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        self.close();
        let _ = self.waiting.settle(self.stretch());
        self.waiting.give_times(pages, sums);
    }

    /// Begins a part of a stream.
    pub fn join(&mut self, tsc: u64) {
        self.waiting.last = tsc;
        self.begin_at(tsc);
    }

    /// The time of the last begin or end becomes `tsc`, which is not before it; returns what passed. All times were given.
    pub fn catch_up(&mut self, tsc: u64) -> u64 {
        tsc - std::mem::replace(&mut self.waiting.last, tsc)
    }

    /// The time that is known last. What waits gets its time.
    pub fn stop(&mut self, pages: &mut Pages, sums: &mut [Sums]) -> u64 {
        self.give_all(pages, sums);
        self.to
    }

    /// The end of the stream; another one may begin.
    pub fn finish(&mut self, pages: &mut Pages, sums: &mut [Sums]) {
        self.give_all(pages, sums);
        self.waiting.reset();
        (self.from, self.to, self.ran, self.since) = (0, 0, 0, 0);
        (self.known, self.was_cut) = (0, false);
    }
}

fn known(tsc: u64) -> u32 {
    if tsc == 0 {
        0
    } else {
        u32::MAX
    }
}

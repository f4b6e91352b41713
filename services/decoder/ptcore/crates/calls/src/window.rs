//! Calls that were not handed out yet.

use crate::found::Found;
use crate::pages::{Pages, ROWS};
use crate::records::{Records, NO_PARENT};

/// No row.
pub const NOBODY: u32 = u32::MAX;
/// With a level in its low bits: a caller that began in a part of the stream before.
const OUTER: u32 = 1 << 31;
/// A stretch leaves so many numbers free for callers that are found late. One in which more are found is ended.
pub const MOST_FOUND: u64 = 1 << 20;

/// What is known when a call begins.
#[derive(Clone, Copy)]
pub struct Opening {
    pub function: u32,
    pub call_address: u64,
    pub target: u64,
    pub flags: u8,
    pub parent: u32,
    pub depth: u32,
}

/// Calls in the order in which they became known, by row. Rows change when calls are handed out; numbers do not.
#[derive(Default)]
pub struct Window {
    pub pages: Pages,
    pub rows: u32,
    /// Rows that there were at most when calls were handed out.
    used: usize,
    /// Rows that there is room for, and how far it may be filled without a look at how many calls are open.
    room: u32,
    limit: u32,
    /// Number and caller's number of the first rows, which were known when calls were handed out last.
    old: Vec<(u64, u64)>,
    /// From which row on numbers count from which one on.
    runs: Vec<(u32, u64)>,
    /// The first number of the stretch, and how many of its callers were found late.
    first: u64,
    late_of_stretch: u64,
    /// Callers that were found since: row and number, and the row at which their stretch begins.
    late: Vec<(u32, u64, u32)>,
    stretch: u32,
    /// Calls of the stretch were handed out.
    torn: bool,
    found: Vec<Found>,
    /// Of all rows, while they are handed out; what is left is memory to use again.
    numbers: Vec<u64>,
}

impl Window {
    /// Whether the next row can be opened without further ado.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.rows < self.limit
    }

    /// So many rows may be opened now, as far as there is room.
    pub fn allow(&mut self, rows: usize) {
        self.limit = self.room.min(self.rows.saturating_add(u32::try_from(rows).unwrap_or(u32::MAX)));
    }

    pub fn has_room(&self) -> bool {
        self.rows < self.room
    }

    #[cold]
    #[inline(never)]
    pub fn grow(&mut self, most: usize) {
        self.room += ROWS.min(most).max(1) as u32;
        self.pages.grow(self.room as usize);
    }

    /// Makes room for so many rows more.
    pub fn make_room_for(&mut self, rows: usize) {
        while ((self.room - self.rows) as usize) < rows {
            self.grow(ROWS);
        }
    }

    /// Rows that stayed when calls were handed out last.
    pub fn stayed(&self) -> usize {
        self.old.len()
    }

    /// Rows that became known since calls were handed out last.
    pub fn new_rows(&self) -> usize {
        self.rows as usize - self.stayed()
    }

    /// The next row; there must be room. What is not given is anything until it is known; times are 0 up to the first one of the
    /// stream.
    #[inline(always)]
    pub fn open(&mut self, call: &Opening, addresses: bool) -> u32 {
        let row = self.rows;
        self.rows += 1;
        let (page, at) = self.pages.at(row);
        page.function[at] = call.function;
        if addresses {
            page.call_address[at] = call.call_address;
            page.target[at] = call.target;
        }
        page.parent[at] = call.parent;
        page.depth[at] = call.depth;
        page.flags[at] = call.flags;
        row
    }

    /// Begins a gapless stretch.
    pub fn begin(&mut self) {
        let next = self.next();
        if self.runs.last().is_some_and(|&(from, _)| from == self.rows) {
            self.runs.pop();
        }
        self.first = next + MOST_FOUND;
        self.runs.push((self.rows, self.first));
        (self.late_of_stretch, self.torn, self.stretch) = (0, false, self.rows);
    }

    /// Whether no further caller can be found in this stretch.
    pub fn is_full(&self) -> bool {
        self.may_find() == 0
    }

    /// How many further callers can be found in this stretch.
    pub fn may_find(&self) -> u64 {
        MOST_FOUND - 1 - self.late_of_stretch
    }

    /// The call in the last row began before all of its stretch, and is the caller of `roots`. It takes none of the numbers
    /// that follow: they are the same wherever it is found.
    pub fn came_late(&mut self, row: u32, roots: &[u32]) {
        let next = self.linear(row);
        self.runs.push((row + 1, next));
        self.late_of_stretch += 1;
        let caller = self.first - self.late_of_stretch;
        // What was handed out cannot be changed any more: who takes it has to, and does so for the whole stretch.
        if self.torn {
            self.found.push(Found { caller, last: next - 1 });
        } else {
            for &root in roots {
                let (page, at) = self.pages.at(root);
                page.parent[at] = row;
            }
        }
        self.late.push((row, caller, if self.torn { row } else { self.stretch }));
    }

    /// In place of the row of the caller that began in a part of the stream before, so many levels further out than the
    /// call that was the innermost one then.
    pub fn outer(level: u32) -> u32 {
        OUTER | level
    }

    /// The row is what is known here of such a call. Its number counts back from the first one, like those of callers that
    /// are found late, and it takes none of those that follow.
    pub fn is_outer(&mut self, row: u32, level: u32) {
        let next = self.linear(row);
        self.runs.push((row + 1, next));
        self.late.push((row, self.first - 1 - u64::from(level), row));
    }

    /// The first number of the stretch.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number and caller's number of a row that stayed when calls were handed out last.
    pub fn kept_call(&self, row: u32) -> (u64, u64) {
        self.old[row as usize]
    }

    /// Calls of a part that was decoded by itself have taken the numbers up to `next`.
    pub fn go_on_at(&mut self, next: u64) {
        self.runs.clear();
        self.runs.push((self.rows, next));
    }

    /// Adds a call that began in such a part, where all rows are calls that stayed. `go_on_at` has to follow.
    pub fn adopt(&mut self, number: u64, caller: u64, opening: &Opening, start_tsc: u64) -> u32 {
        self.make_room_for(1);
        let row = self.open(opening, true);
        self.begin_at(row, start_tsc);
        self.old.push((number, caller));
        self.limit = 0;
        row
    }

    /// The call in the row began at `tsc`.
    pub fn begin_at(&mut self, row: u32, tsc: u64) {
        let (page, at) = self.pages.at(row);
        page.start_tsc[at] = tsc;
    }

    /// Numbers of the calls that stayed when calls were handed out last.
    pub fn kept(&self) -> Vec<u64> {
        self.old.iter().map(|&(number, _)| number).collect()
    }

    /// The number that the next row would have.
    pub fn next(&self) -> u64 {
        self.linear(self.rows)
    }

    fn linear(&self, row: u32) -> u64 {
        self.runs.last().map_or(0, |&(from, number)| number + u64::from(row - from))
    }

    /// Adds all rows but those of `kept`, which are in order, to `records`: the row at a place there is that place from now
    /// on. What is left of the columns stays as it is, to be written over.
    pub fn hand_out(&mut self, kept: &[u32], records: &mut Records, found: &mut Vec<Found>, addresses: bool) {
        self.place_late();
        let rows = self.rows as usize;
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.clear();
        numbers.reserve(rows);
        numbers.extend(self.old.iter().map(|&(number, _)| number));
        for (index, &(from, number)) in self.runs.iter().enumerate() {
            let end = self.runs.get(index + 1).map_or(self.rows, |&(end, _)| end);
            numbers.extend(number..number + u64::from(end - from));
        }
        for &(row, number, _) in &self.late {
            numbers[row as usize] = number;
        }
        let next = self.next();
        let first = self.first;
        let around = |parent: u32| if parent == NOBODY { NO_PARENT } else { first - 1 - u64::from(parent ^ OUTER) };
        let caller = |parent: u32| numbers.get(parent as usize).copied().unwrap_or_else(|| around(parent));
        // The callers of the first rows are known by their numbers only.
        let is_old = |row: usize| row < self.old.len();
        let mut from = 0;
        for &end in kept.iter().chain([&self.rows]) {
            let range = from..end as usize;
            from = range.end + 1;
            records.call.extend_from_slice(&numbers[range.clone()]);
            let new = range.start.max(self.old.len())..range.end;
            records.parent.extend(range.clone().take_while(|&row| is_old(row)).map(|row| self.old[row].1));
            for (page, rows) in self.pages.parts(new) {
                records.parent.extend(page.parent[rows].iter().map(|&parent| caller(parent)));
            }
            self.pages.add_to(&mut records.columns, range, addresses);
        }
        let stays = |&row: &u32| {
            let (page, at) = self.pages.look_at(row);
            let caller = if is_old(row as usize) { self.old[row as usize].1 } else { caller(page.parent[at]) };
            (numbers[row as usize], caller)
        };
        let old = kept.iter().map(stays).collect();
        self.old = old;
        self.numbers = numbers;
        self.pages.bring_forward(kept);
        self.used = self.used.max(rows);
        (self.rows, self.limit) = (kept.len() as u32, 0);
        self.runs.clear();
        self.runs.push((self.rows, next));
        self.late.clear();
        (self.torn, self.stretch) = (true, 0);
        found.append(&mut self.found);
    }

    /// What ran in a stretch before a caller was found is below it.
    fn place_late(&mut self) {
        let whole = |late: &&(u32, u64, u32)| late.0 != late.2;
        let late: Vec<_> = self.late.iter().filter(whole).collect();
        for of_stretch in late.chunk_by(|one, other| one.2 == other.2) {
            let mut late = of_stretch.iter().rev().map(|late| late.0).peekable();
            let mut deeper = 0;
            for row in (of_stretch[0].2..=of_stretch[of_stretch.len() - 1].0).rev() {
                let (page, at) = self.pages.at(row);
                page.depth[at] += deeper;
                deeper += u32::from(late.next_if_eq(&row).is_some());
            }
        }
    }

    /// For another stream. `timed`: rows may have times.
    pub fn reset(&mut self, timed: bool) {
        let Window { mut pages, rows, used, room, numbers, .. } = std::mem::take(self);
        if timed {
            pages.forget_times(used.max(rows as usize));
        }
        *self = Window { pages, room, numbers, ..Window::default() };
    }

    pub fn memory(&self) -> usize {
        self.pages.memory() + self.numbers.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(window: &mut Window, tsc: u64) -> u32 {
        window.make_room_for(1);
        let row =
            window.open(&Opening { function: 0, call_address: 0, target: 0, flags: 0, parent: NOBODY, depth: 0 }, true);
        window.begin_at(row, tsc);
        let (page, at) = window.pages.at(row);
        page.end_tsc[at] = tsc;
        row
    }

    fn times(window: &mut Window, row: u32) -> (u64, u64) {
        let (page, at) = window.pages.at(row);
        (page.start_tsc[at], page.end_tsc[at])
    }

    #[test]
    fn rows_of_another_stream_have_no_times() {
        let mut window = Window::default();
        window.begin();
        let [_, kept, last] = [5, 6, 7].map(|tsc| open(&mut window, tsc));
        window.hand_out(&[kept], &mut Records::default(), &mut Vec::new(), true);
        window.reset(true);
        assert_eq!([0, kept, last].map(|row| times(&mut window, row)), [(0, 0); 3]);
    }
}

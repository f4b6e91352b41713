//! Gapless stretches, and the callers that are found late in them.

use super::frame::{Entry, NO_ADDRESS};
use super::Stack;
use crate::fragment::Fragment;
use crate::output::Output;
use crate::records::BEGIN_TRUNCATED;

impl<O: Output> Stack<O> {
    /// Begins a gapless stretch: at the latest time that what runs next is not before.
    pub fn begin(&mut self) {
        self.forget_roots();
        self.begin_tsc = self.clock.from();
    }

    pub(super) fn forget_roots(&mut self) {
        self.not_known_here();
        self.roots.clear();
        self.roots_total = 0;
        self.is_resumed = false;
        self.clock.leave_stretch(&mut self.window.pages, &mut self.functions.sums);
        self.window.begin();
        self.stretch = self.stretch.wrapping_add(1);
        if self.stretch == 0 {
            self.functions.sums.iter_mut().for_each(|sums| sums.stretch = 0);
            self.stretch = 1;
        }
    }

    /// The call that was running turns out to lie inside one that began before the stretch. All calls must be over.
    pub fn find_caller(&mut self, function: u32, target: u64) {
        if self.outer.is_some() {
            return self.find_outer(function, target);
        }
        if self.window.is_full() {
            self.forget_roots();
        }
        let entry = Entry { function, call_address: 0, target, returns_to: NO_ADDRESS, flags: BEGIN_TRUNCATED };
        if self.is_resumed {
            self.begin();
            return self.push(&entry);
        }
        let (row, _) = self.open(&entry, self.begin_tsc == 0);
        self.window.begin_at(row, self.begin_tsc);
        self.window.came_late(row, &self.roots);
        self.are_inside(function);
    }

    /// Finds the callers that a part which fits comes by although they are not open here, before it does: all that is open is
    /// inside them. Calls must have been handed out, and are afterwards. `numbers`: of the functions of the part.
    pub(super) fn find_callers(&mut self, part: &Fragment, numbers: &[u32]) {
        let levels = &part.outer.levels;
        let Some(outermost) = self.frames.first() else { return };
        self.alone_from = outermost.began;
        let inner = std::mem::take(&mut self.frames);
        let mut found = Vec::new();
        self.window.make_room_for(levels.len() - inner.len());
        for (inside, level) in levels.iter().zip(&levels[1..]).skip(inner.len() - 1) {
            self.find_caller(numbers[level.function as usize], inside.returned_to.unwrap_or(NO_ADDRESS));
            self.alone_from = self.frames.first().map_or(self.alone_from, |frame| frame.began);
            found.append(&mut self.frames);
        }
        self.landings.are_deeper_by(found.len());
        self.frames = found.into_iter().rev().chain(inner).collect();
        self.hand_out(false);
    }

    /// What ran in the stretch up to now is inside the call of the function that was just opened.
    pub(super) fn are_inside(&mut self, function: u32) {
        self.roots.clear();
        if let Some(frame) = self.frames.last_mut() {
            frame.below = std::mem::take(&mut self.roots_total);
            frame.began -= frame.below;
        }
        self.give_times();
        let sums = &mut self.functions.sums[function as usize];
        if sums.stretch == self.stretch {
            (sums.total_instructions, sums.total_ticks) = sums.before;
            self.clock.are_inner(function);
        }
    }
}

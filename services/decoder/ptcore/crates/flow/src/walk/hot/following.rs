//! Along leads by the paths that are known.

use super::leads::Timed;
use super::Sums;
use crate::code::CodeCache;
use crate::code_block::Way;
use crate::cold_path::cold_path;
use crate::lead::{Key, Lead, Mixed};
use crate::paths::{Stop, Table};
use crate::returns::{Open, ReturnStack};
use crate::tally::Tally;
use crate::view::View;
use crate::{Path, Sink};

/// What does not change on the way, and the stacks that do.
pub struct Place<'p, S> {
    pub code: &'p CodeCache,
    pub returns: &'p mut ReturnStack,
    pub sink: &'p mut S,
    pub view: View,
    pub epoch: u32,
}

/// Where the way has led.
struct Course {
    block: Mixed,
    tally: Tally,
    paths: u32,
}

impl<S: Sink> Place<'_, S> {
    /// Follows leads from block `at` on; returns how many, and what is left of the next one, which needs more than a path
    /// that is known.
    #[inline(never)]
    pub fn follow(&mut self, leads: &[Timed], at: &mut u32, sums: &mut Sums) -> (usize, Option<Lead>) {
        let mut course = Course { block: Mixed::of(*at), tally: sums.tally, paths: sums.paths };
        let table = self.code.paths.table();
        let mut ahead = leads.iter();
        let left = 'leads: loop {
            let Some(&Timed { mut lead, time }) = ahead.next() else { break None };
            // Asked here and behind a path, because the first hardly ever holds: asked in one place, edges take longer (round 30).
            if lead == Lead::NONE {
                cold_path();
                continue;
            }
            loop {
                let Some(left) = self.step(table, &mut course, lead, time) else { break 'leads Some(lead) };
                // As most paths do it.
                if left == 0 {
                    break;
                }
                lead = lead.behind(left);
                if lead == Lead::NONE {
                    break;
                }
            }
            if course.paths > Sums::MOST {
                (sums.tally, sums.paths) = (course.tally, course.paths);
                sums.fold();
                (course.tally, course.paths) = (sums.tally, sums.paths);
            }
        };
        *at = course.block.block();
        (sums.tally, sums.paths) = (course.tally, course.paths);
        (leads.len() - ahead.len() - usize::from(left.is_some()), left)
    }

    /// Goes along the path. `None` when there is none, or more to it.
    #[inline(always)]
    fn step(&mut self, table: Table<'_>, course: &mut Course, lead: Lead, time: u64) -> Option<u8> {
        let code = self.code;
        let entry = table.find(Key::new(course.block, lead))?;
        if entry.view != self.view {
            cold_path();
            return None;
        }
        let (mut next, mut returns_to) = (entry.end, None);
        if entry.stop != Stop::Used {
            cold_path();
            if entry.stop == Stop::Other {
                cold_path();
                return None;
            }
            let Some(Open::Block(call)) = self.returns.peek() else { return None };
            let call = code.block(call);
            (next, returns_to) = (Mixed::of(call.linked(Way::Next, self.view)?), Some(call.end));
            self.returns.back_along(entry);
        } else {
            self.returns.along(entry, &code.paths);
        }
        course.tally.add(entry.tally);
        course.paths += 1;
        self.sink.path(&Path::new(code, entry, self.epoch, returns_to), time);
        course.block = next;
        Some(entry.left)
    }
}

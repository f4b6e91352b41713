//! The end of a part of a stream that was decoded by itself.

use super::Stack;
use crate::arrival::Arrival;
use crate::fragment::{Collected, Fragment, Knew, OpenCall};
use crate::functions::{FunctionKey, Sums};
use crate::window::NOBODY;
use pt_image::Role;

impl Stack<Collected> {
    /// What is known of the part; another one may begin. `None` where something depends on what lies around it.
    pub fn end_part(&mut self) -> Option<Fragment> {
        let (first, start_tsc) = (self.window.first(), self.begin_tsc);
        let end_tsc = self.clock.stop(&mut self.window.pages, &mut self.functions.sums);
        if let Some(frame) = self.frames.last() {
            let passed = self.clock.catch_up(end_tsc);
            if let Some(sums) = self.functions.sums.get_mut(frame.timed as usize) {
                sums.self_ticks += passed;
            }
        }
        let was_cut = self.clock.was_cut;
        self.hand_out(true);
        let next = self.window.next();
        let mut open: Vec<_> = (0..self.frames.len()).map(|index| self.open_call(index)).collect();
        let named = self.named.len();
        let functions = self.all_functions();
        let outer = self.outer.take();
        let replaced = open.first().is_some_and(|call| call.number >= first);
        for call in &mut open {
            call.function = self.told[call.function as usize];
        }
        let mut outer = outer.filter(|outer| !outer.failed && !was_cut && !open.is_empty());
        if let Some(outer) = &mut outer {
            outer.not_open = outer.not_open.iter().map(|&(level, one)| (level, self.told[one as usize])).collect();
        }
        for level in outer.iter_mut().flat_map(|outer| &mut outer.levels) {
            level.function = self.told[level.function as usize];
        }
        let fragment = outer.map(|outer| Fragment {
            records: Default::default(),
            losses: Vec::new(),
            functions,
            named,
            outer: *outer,
            replaced,
            open,
            roots_total: self.roots_total,
            interruptions: std::mem::take(&mut self.interruptions),
            landings: std::mem::take(&mut self.landings),
            locals: std::mem::take(&mut self.locals),
            first,
            next,
            start_tsc,
            end_tsc,
            settled: false,
            arrival: Arrival::Begin,
            last: 0,
            end: 0,
            passed: (0, 0),
            epoch: self.epoch,
            news: std::mem::take(&mut self.functions.news),
            knew: Knew::default(),
        });
        self.forget_part();
        let next = Collected { without_addresses: self.output.without_addresses, ..Collected::default() };
        let Collected { records, losses, too_many, .. } = std::mem::replace(&mut self.output, next);
        fragment.filter(|_| !too_many).map(|fragment| Fragment { records, losses, ..fragment })
    }

    fn open_call(&self, index: usize) -> OpenCall {
        let frame = &self.frames[index];
        let (page, at) = self.window.pages.look_at(frame.row);
        let until = self.frames.get(index + 1).map_or(self.clock.ran, |inner| inner.began);
        let (number, caller) = self.window.kept_call(frame.row);
        OpenCall {
            number,
            caller,
            depth: page.depth[at],
            start_tsc: page.start_tsc[at],
            function: frame.function,
            call_address: page.call_address[at],
            target: page.target[at],
            flags: page.flags[at],
            timed: frame.timed != NOBODY,
            asynchronous: frame.is_asynchronous(),
            returns_to: frame.returns_to,
            own: until - frame.began - frame.below,
            below: frame.below,
        }
    }

    /// All functions that something is known of, and their numbers: those of calls that are over are told already.
    fn all_functions(&mut self) -> Vec<(FunctionKey, Role, Sums)> {
        let levels = self.outer.iter().flat_map(|outer| &outer.levels).map(|level| level.function);
        let not_open = self.outer.iter().flat_map(|outer| &outer.not_open).map(|&(_, function)| function);
        let concerned: Vec<_> = self.frames.iter().map(|frame| frame.function).chain(levels).chain(not_open).collect();
        let counted = (0..self.functions.sums.len() as u32).filter(|&number| {
            let sums = &self.functions.sums[number as usize];
            (sums.calls, sums.self_instructions, sums.self_ticks) != (0, 0, 0)
        });
        self.told.resize(self.functions.sums.len(), NOBODY);
        for function in concerned.into_iter().chain(counted) {
            let number = &mut self.told[function as usize];
            if *number == NOBODY {
                *number = self.named.len() as u32;
                self.named.push(function);
            }
        }
        let known = |&number: &u32| {
            let sums = self.functions.sums[number as usize];
            (self.functions.key(number), sums.role, sums)
        };
        self.named.iter().map(known).collect()
    }

    /// Calls that are open are those of somebody else.
    fn forget_part(&mut self) {
        self.frames.clear();
        self.interruptions.clear();
        self.suspended = None;
        self.window.reset(self.clock.is_timed());
        self.finish();
        (self.base, self.roots_total) = (0, 0);
    }
}

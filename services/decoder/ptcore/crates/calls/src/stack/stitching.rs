//! Parts of a stream that were decoded by themselves, put behind one another.

use super::frame::{Frame, INTERRUPTED, NO_ADDRESS};
use super::handing_out::told_as;
use super::placing::{LevelEnd, Placing};
use super::remembered::Landing;
use super::{Local, Stack};
use crate::fragment::{Fragment, OpenCall};
use crate::output::Output;
use crate::records::Records;
use crate::window::{Opening, NOBODY};

/// Calls of parts are handed on, instead of being copied behind those of the part before, where they are this share of what
/// the output takes at once.
const SHARE: usize = 8;

impl<O: Output> Stack<O> {
    /// Takes over the calls of a part that fits. `numbers`: of its functions. Returns columns that may be used again.
    pub fn absorb(&mut self, mut part: Fragment, numbers: &[u32]) -> Records {
        self.hand_out(false);
        if self.gathered.records.len() >= self.output.rows() / SHARE {
            self.deliver();
        }
        if part.outer.levels.len() > self.frames.len() {
            self.find_callers(&part, numbers);
        }
        self.catch_up(part.start_tsc);
        let around: Vec<u64> = self.frames.iter().map(|frame| self.window.kept_call(frame.row).0).collect();
        let placing = Placing { next: self.window.next(), around: &around, first: part.first };
        let ends = placing.place(&mut part);
        let told = self.told_of(&numbers[..part.named]);
        part.records.columns.function.iter_mut().for_each(|function| *function = told[*function as usize]);
        let gathered = &mut self.gathered.records;
        if gathered.is_empty() {
            std::mem::swap(gathered, &mut part.records);
        } else {
            gathered.append(&mut part.records);
        }
        self.losses.append(&mut part.losses);
        let returns_to = self.end_levels(&part, &ends);
        self.clock.ran += part.ran();
        self.add_sums(&part, numbers);
        self.adopt(&part, &placing, returns_to, numbers);
        self.window.go_on_at(placing.next + (part.next - part.first));
        self.epoch = part.epoch;
        self.clock.join(part.end_tsc);
        std::mem::take(&mut part.records)
    }

    /// What passed up to `tsc` is the innermost call's.
    fn catch_up(&mut self, tsc: u64) {
        let passed = self.clock.catch_up(tsc);
        let Some(frame) = self.frames.last() else { return };
        if let Some(sums) = self.functions.sums.get_mut(frame.timed as usize) {
            sums.self_ticks += passed;
        }
    }

    /// Ends the calls around the part that end in it, and counts what the last one that is left did in it. Returns where
    /// the last that ended returns to.
    fn end_levels(&mut self, part: &Fragment, ends: &[LevelEnd]) -> u64 {
        let over = ends.len() - usize::from(!part.replaced);
        // What ended calls did before the part is nothing that the part knows of.
        let (mut before, mut returns_to) = (0, NO_ADDRESS);
        for end in &ends[..over] {
            let Some(frame) = self.frames.pop() else { break };
            returns_to = frame.returns_to;
            let known = self.clock.ran - frame.began;
            let own = known - frame.below - before;
            let (page, at) = self.window.pages.at(frame.row);
            page.instructions[at] = own + end.own;
            page.instructions_total[at] = known + end.total;
            page.end_tsc[at] = end.end_tsc;
            page.flags[at] |= end.flags;
            let start = page.start_tsc[at];
            before = known;
            let sums = &mut self.functions.sums[frame.function as usize];
            sums.open -= 1;
            sums.self_instructions += own;
            if sums.open == 0 {
                sums.remember(self.stretch);
                sums.total_instructions += before;
                sums.total_ticks += if start == 0 { 0 } else { part.start_tsc.saturating_sub(start) };
            }
        }
        let inside = before + part.roots_total;
        match (self.frames.last_mut(), part.open.first()) {
            (Some(frame), Some(open)) if !part.replaced => {
                frame.below += open.below + before;
            }
            (Some(frame), _) => frame.below += inside,
            (None, _) => self.roots_total += inside,
        }
        self.hand_out(false);
        self.forget_below();
        returns_to
    }

    fn add_sums(&mut self, part: &Fragment, numbers: &[u32]) {
        for (&number, (_, _, of_part)) in numbers.iter().zip(&part.functions) {
            let sums = &mut self.functions.sums[number as usize];
            sums.calls += of_part.calls;
            sums.self_instructions += of_part.self_instructions;
            sums.self_ticks += of_part.self_ticks;
            // All calls of a function that is open around the part are inside that one.
            if sums.open == 0 && (of_part.total_instructions, of_part.total_ticks) != (0, 0) {
                sums.remember(self.stretch);
                sums.total_instructions += of_part.total_instructions;
                sums.total_ticks += of_part.total_ticks;
            }
        }
    }

    /// Takes over the calls that are open at the end of the part.
    fn adopt(&mut self, part: &Fragment, placing: &Placing<'_>, returns_to: u64, numbers: &[u32]) {
        let depth = self.frames.len();
        let open: u64 = part.open.iter().skip(usize::from(!part.replaced)).map(OpenCall::ran).sum();
        let mut began = self.clock.ran - open;
        for (index, call) in part.open.iter().enumerate().skip(usize::from(!part.replaced)) {
            let function = numbers[call.function as usize];
            let (number, caller, depth) = placing.place_open(call);
            let (call_address, target, flags) = (call.call_address, call.target, call.flags);
            let opening = Opening { function, call_address, target, flags, parent: NOBODY, depth };
            let row = self.window.adopt(number, caller, &opening, call.start_tsc);
            let sums = &mut self.functions.sums[function as usize];
            sums.open += 1;
            self.frames.push(Frame {
                row,
                function,
                timed: if call.timed { function } else { NOBODY },
                marks: Frame::marks_of(sums.role) | if call.asynchronous { INTERRUPTED } else { 0 },
                returns_to: if index == 0 { returns_to } else { call.returns_to },
                began,
                below: call.below,
            });
            began += call.ran();
        }
        // The outermost call of the part is the first one in its own count.
        let below = depth - usize::from(!part.replaced);
        self.interruptions.extend(&part.interruptions);
        self.locals.extend(part.locals.iter().map(|local| Local { depth: local.depth + below, ..*local }));
        for landing in part.landings.iter() {
            self.landings.remember(Landing { depth: landing.depth + below, ..*landing });
        }
        let held = self.landings.iter().map(|landing| landing.depth);
        let held: Vec<_> = held.chain(self.locals.iter().map(|local| local.depth)).collect();
        held.into_iter().for_each(|depth| self.hold(depth));
    }

    /// The numbers by which those who take the calls know functions.
    fn told_of(&mut self, numbers: &[u32]) -> Vec<u32> {
        self.told.resize(self.functions.sums.len(), NOBODY);
        numbers.iter().map(|&number| told_as(number, &mut self.told, &mut self.named)).collect()
    }
}

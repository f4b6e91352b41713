//! Parts of a stream that are decoded by themselves, and put behind one another.

use super::Calls;
use crate::arrival::Arrival;
use crate::blocks::BlockCount;
use crate::edges::Edge;
use crate::fragment::{Collected, Fragment};
use crate::functions::{FunctionKey, News};
use crate::output::Output;
use crate::uncounted::Uncounted;
use pt_image::{Role, Symbols};
use std::collections::HashSet;

impl<S: Symbols> Calls<S, Collected> {
    /// Follows parts of streams by themselves.
    pub fn of_parts(symbols: S) -> Self {
        Calls::handing_out(symbols, Collected::default())
    }

    /// Begins a part, which the flow has to join. `log`: what those who put the parts together know of code that nothing
    /// divides; `judged` when they have seen all parts that were ended here.
    pub fn begin_part(&mut self, log: &[News], judged: bool) {
        self.alone = true;
        let new = log.get(self.knew.log..).unwrap_or_default();
        self.knew.besides.retain(|own| !own.is_in(new));
        if judged && !self.knew.besides.is_empty() || self.knew.log > log.len() {
            self.knew.besides.clear();
            self.know_only(log);
        } else {
            self.learn(new);
        }
        self.knew.log = log.len();
        self.stack.functions.news.clear();
    }

    /// Ends a part. `None` when its calls depend on those around it in a way that cannot be told from here.
    pub fn end_part(&mut self) -> Option<Fragment> {
        let (settled, arrival, end, passed) = (self.settled, self.arrival, self.end, self.passed);
        let knew = self.knew.clone();
        self.knew.besides.extend(&self.stack.functions.news);
        if self.plans.is_full() {
            self.plans.gather(&mut self.edges);
            self.forget_plans(self.plans.generation);
        }
        let fragment = self.stack.end_part();
        (self.arrival, self.left, self.overflowing) = (Arrival::Begin, None, false);
        (self.stack.epoch, self.end, self.tsc) = (0, 0, 0);
        (self.passed, self.settled) = ((0, 0), false);
        fragment.map(|fragment| Fragment { settled, arrival, end, passed, knew, ..fragment })
    }

    /// Takes away what was counted of the flow that it is told.
    pub(crate) fn uncounted(&mut self) -> Uncounted<'_> {
        Uncounted { edges: &mut self.edges, blocks: &mut self.blocks }
    }

    /// How often each block of all parts ran, and in which function it is by what is known of code that nothing divides.
    pub fn end_parts(&mut self, log: &[News]) -> Vec<(BlockCount, FunctionKey)> {
        self.begin_part(log, true);
        self.blocks()
    }

    /// How often each branch of all parts went where, in order; counts begin anew.
    pub fn take_edges(&mut self) -> Vec<(Edge, u64)> {
        self.plans.gather(&mut self.edges);
        self.edges.take()
    }
}

impl<S: Symbols, O: Output> Calls<S, O> {
    /// What became known of code that nothing divides, in order.
    pub fn news(&self) -> &[News] {
        &self.stack.functions.news
    }

    /// Takes over a part behind the PSB that was told last; false when it is not as it would be if it were decoded here.
    pub fn absorb(&mut self, part: Fragment) -> bool {
        if !self.settled || !self.stack.fits(&part) || self.knows_otherwise(&part) {
            return false;
        }
        self.learn(&part.news);
        let functions = &mut self.stack.functions;
        let numbers = part.functions.iter().map(|&(key, role, _)| functions.number(key, role));
        let Some(numbers) = numbers.collect::<Option<Vec<_>>>() else { return false };
        (self.arrival, self.end, self.passed) = (part.arrival, part.end, part.passed);
        (self.tsc, self.settled) = (part.end_tsc, part.settled);
        self.stack.absorb(part, &numbers);
        true
    }

    /// Whether code that nothing divides, and that the part ran, is divided otherwise than it was there.
    fn knows_otherwise(&self, part: &Fragment) -> bool {
        let Some(new) = self.news().get(part.knew.log..) else { return true };
        let besides = &part.knew.besides;
        let here = new.iter().filter(|one| !one.is_in(besides));
        let mut differing = here.chain(besides.iter().filter(|one| !one.is_in(new))).peekable();
        if differing.peek().is_none() {
            return false;
        }
        let undivided = part.functions.iter().filter(|(key, ..)| key.function.is_none());
        let ran: HashSet<_> = undivided.map(|(key, ..)| (key.space, key.address)).collect();
        differing.any(|one| {
            one.role == Role::Stub
                || ran.contains(&(one.space, one.start))
                || one.divided.is_some_and(|divided| ran.contains(&(one.space, divided)))
        })
    }
}

//! In which function a block is.

use super::Calls;
use crate::arrival::Arrival;
use crate::extents::Extent;
use crate::fragment::Knew;
use crate::functions::{Entered, News};
use crate::known::Known;
use crate::output::Output;
use pt_flow::Block;
use pt_image::{Place, Symbols};

impl<S: Symbols, O: Output> Calls<S, O> {
    /// The function at `address`; what is known about blocks of a function that turns out to be two is forgotten.
    pub(super) fn look_up(&mut self, address: u64, called: bool) -> (Entered, Place) {
        let place = self.symbols.place(self.stack.epoch, address);
        let entered = self.stack.functions.at(&place, address, called);
        self.forget_divided();
        (entered, place)
    }

    /// What is known of blocks that are in another function now is forgotten.
    fn forget_divided(&mut self) {
        if let Some((divided, from)) = self.stack.functions.changed.take() {
            self.members.take(divided, from, |id| self.cached.forget(id));
            self.extents.cut(divided, from);
        }
    }

    /// Takes over what became known elsewhere of code that nothing divides.
    pub(super) fn learn(&mut self, news: &[News]) {
        for one in news {
            if self.stack.functions.learn(one).is_some() {
                self.forget_divided();
            }
        }
    }

    /// Knows of code that nothing divides what `news` say, and nothing else.
    pub(super) fn know_only(&mut self, news: &[News]) {
        self.stack.functions.forget();
        self.members.take_all(|id| self.cached.forget(id));
        self.extents.clear();
        self.learn(news);
    }

    /// Code that no symbol names is divided by the calls of the next stream alone, as if that were the first: what a stream
    /// leads to depends on nothing else.
    pub fn divide_anew(&mut self) {
        if self.stack.functions.is_any_found() {
            self.knew = Knew::default();
            self.know_only(&[]);
        }
    }

    /// The function at an address that nobody called, mostly the one that runs or is returned to; whether a symbol names it.
    fn look_around(&mut self, address: u64) -> (Entered, bool) {
        let likely = if self.arrival == Arrival::Return { self.stack.outer_function() } else { self.stack.function() };
        let extent = likely.and_then(|function| self.extents.around(function, self.stack.epoch, address));
        if let (Some(function), Some(extent)) = (likely, extent) {
            return (Entered { function, entry: false }, extent.is_named);
        }
        let (entered, place) = self.look_up(address, false);
        self.look_further(entered.function, &place, address);
        (entered, place.function.is_some())
    }

    /// Knows the rest of the function at `address` from now on.
    fn look_further(&mut self, function: u32, place: &Place, address: u64) {
        let addresses = self.stack.functions.body(function, place, address);
        self.extents.put(function, Extent { epoch: self.stack.epoch, addresses, is_named: place.function.is_some() });
    }

    #[cold]
    #[inline(never)]
    fn get_to_know(&mut self, id: u32, start: u64) -> Known {
        let called = self.arrival == Arrival::Call;
        let (entered, divided) = if called {
            let (entered, place) = self.look_up(start, true);
            self.look_further(entered.function, &place, start);
            (entered, place.function.is_some())
        } else {
            self.look_around(start)
        };
        let named = if called || divided { entered.function } else { u32::MAX };
        let stub = self.stack.functions.role(entered.function).is_stub();
        let end = self.extents.end(entered.function, self.stack.epoch).filter(|_| !stub);
        let within = end.and_then(|end| u16::try_from(end.saturating_sub(start)).ok()).unwrap_or(u16::MAX);
        let known = Known { function: entered.function, called: named, entry: entered.entry, stub, within };
        if id != u32::MAX {
            self.cached.know(id, known);
            if !divided {
                self.members.put(entered.function, id, start);
            }
        }
        known
    }

    #[inline(always)]
    pub(super) fn known(&mut self, id: u32, start: u64) -> Known {
        match self.cached.known(id) {
            Some(&known) => known,
            None => self.get_to_know(id, start),
        }
    }

    /// Where the block goes on into a function that a symbol names, behind the one that `from` is in.
    pub(super) fn next_function(&self, block: &Block<'_>, from: u64) -> Option<u64> {
        let mut place = self.symbols.place(self.stack.epoch, from);
        while place.end <= block.last {
            let (end, before) = (place.end, (place.space, place.function));
            place = self.symbols.place(self.stack.epoch, end);
            if (place.space, place.function) != before {
                let is_function = place.function.is_some() && place.entry && !place.role.is_stub();
                return Some(end).filter(|_| is_function && block.addresses().any(|at| at == end));
            }
        }
        None
    }

    /// The function that begins at `address`, which a symbol names.
    pub(super) fn fall_into(&mut self, address: u64) -> Entered {
        let (entered, place) = self.look_up(address, false);
        self.look_further(entered.function, &place, address);
        entered
    }

    /// Runs a block that goes on into the functions behind the one that it begins in, as if it jumped there.
    #[cold]
    #[inline(never)]
    pub(super) fn run_across(&mut self, block: &Block<'_>) {
        let (mut ran, mut last) = (0, block.start);
        let mut border = self.next_function(block, block.start);
        if let (None, Some(known)) = (border, self.cached.known_mut(block.id)) {
            known.within = u16::try_from(block.end.wrapping_sub(block.start)).unwrap_or(u16::MAX);
        }
        for address in block.addresses() {
            if Some(address) == border {
                self.stack.run(std::mem::take(&mut ran));
                (self.last, self.end) = (last, address);
                let entered = self.fall_into(address);
                self.jump(entered, address);
                border = self.next_function(block, address);
            }
            (ran, last) = (ran + 1, address);
        }
        self.stack.run(ran);
    }
}

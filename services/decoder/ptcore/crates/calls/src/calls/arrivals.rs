//! What each arrival at another function means for the stack.

use super::Calls;
use crate::arrival::{Arrival, Left, Way};
use crate::functions::Entered;
use crate::known::Known;
use crate::output::Output;
use crate::records::{ASYNCHRONOUS, BEGIN_TRUNCATED};
use crate::stack::{Entry, Interruption, NO_ADDRESS};
use pt_flow::is_kernel;
use pt_image::{Role, Symbols};

impl<S: Symbols, O: Output> Calls<S, O> {
    /// The stack's innermost call becomes the one that runs the block at `address`, of which `known` is what is known.
    #[inline(always)]
    pub(super) fn arrive(&mut self, address: u64, id: u32, known: Known) {
        let entered = Entered { function: known.function, entry: known.entry };
        match self.arrival {
            Arrival::Jump => self.jump(entered, address),
            Arrival::IndirectJump => {
                // Where nothing divides code, an entry that nobody called yet looks like the middle of what lies before it.
                let within = known.called != u32::MAX && !entered.entry;
                if self.stack.switches() {
                    self.switch(entered, address);
                } else if self.may_jump_back(entered) && self.stack.jumps_back_to(address) {
                    self.stack.pop(0);
                } else if !within || self.stack.role() == Role::LongJump || !self.lands(entered.function, address) {
                    self.jump(entered, address);
                }
            }
            Arrival::Call => {
                let entered = match known.called {
                    u32::MAX => self.enter(address, id),
                    function => Entered { function, ..entered },
                };
                self.call(entered, address);
            }
            Arrival::CallBehind => self.call_behind(entered, address),
            Arrival::Return => self.give_back(entered, address),
            Arrival::Begin => {
                self.stack.begin();
                self.root(entered, address);
            }
            Arrival::Far => self.transfer(known, id, address),
            Arrival::Interruption => {
                let entered = self.enter(address, id);
                self.interrupt_to(entered, address);
            }
            Arrival::Elsewhere => {
                let entered = self.enter(address, id);
                self.go_on_elsewhere(entered, address);
            }
        }
    }

    /// What a call of `address` enters.
    #[cold]
    #[inline(never)]
    pub(super) fn enter(&mut self, address: u64, id: u32) -> Entered {
        let (entered, _) = self.look_up(address, true);
        if let Some(known) = self.cached.known_mut(id) {
            (known.called, known.entry) = (entered.function, entered.entry);
        }
        entered
    }

    /// Nothing of what ran before is known to go on.
    pub(super) fn begin_anew(&mut self, entered: Entered, target: u64) {
        self.stack.end();
        self.stack.begin();
        self.root(entered, target);
    }

    fn root(&mut self, entered: Entered, target: u64) {
        self.stack.push(&Entry { flags: BEGIN_TRUNCATED, ..plain(entered, 0, target) });
    }

    fn call(&mut self, entered: Entered, target: u64) {
        if !entered.entry && self.stack.function() == Some(entered.function) {
            return self.stack.call_locally(self.end);
        }
        self.stack.call(entered.function, self.last, target, self.end);
    }

    /// Whether a jump to what may stand behind a call leaves the function. Within one that calls itself it may be to a case of
    /// its own that stands there.
    fn may_jump_back(&self, entered: Entered) -> bool {
        !entered.entry && self.stack.function() != Some(entered.function)
    }

    #[cold]
    #[inline(never)]
    fn call_behind(&mut self, entered: Entered, target: u64) {
        let function = self.stack.function();
        if self.begins_another(function, entered) {
            self.call(entered, target);
        } else if function != Some(entered.function) {
            self.jump(entered, target);
        }
    }

    /// Whether another function than this one, which the image knows, is entered.
    pub(super) fn begins_another(&self, function: Option<u32>, entered: Entered) -> bool {
        function != Some(entered.function) && self.stack.functions.is_divided_at(entered)
    }

    /// Whether `function` runs on into another one, which stands right behind a call that returned.
    pub(super) fn runs_on(&self, function: u32, entered: Entered) -> bool {
        self.begins_another(Some(function), entered) && !self.stack.functions.role(entered.function).is_stub()
    }

    /// What called goes on at `target`, where another function may begin that it runs on into.
    #[cold]
    #[inline(never)]
    pub(super) fn run_on(&mut self, entered: Entered, target: u64) {
        if self.stack.function().is_some_and(|function| self.runs_on(function, entered)) {
            self.stack.go_over(entered.function, target, target);
        }
    }

    pub(super) fn jump(&mut self, entered: Entered, target: u64) {
        if self.stack.role() == Role::LongJump && self.long_jump(entered, target) {
            return;
        }
        if self.stack.function() == Some(entered.function) {
            return;
        }
        self.stack.go_over(entered.function, self.end, target);
    }

    /// Whether an indirect jump into the middle of a function leads to a call of it that is open, as that of an unwinder does,
    /// and that of a `longjmp` which no symbol names.
    fn lands(&mut self, function: u32, target: u64) -> bool {
        if self.stack.land(function, self.last, target) {
            return self.stack.function() == Some(function);
        }
        self.unwinds_to(function, target)
    }

    /// What goes on has calls of its own, which are not known.
    #[cold]
    fn switch(&mut self, entered: Entered, target: u64) {
        if self.stack.function() != Some(entered.function) {
            self.begin_anew(entered, target);
        }
    }

    /// True when the jump left the function that jumps far.
    fn long_jump(&mut self, entered: Entered, target: u64) -> bool {
        let landed = self.stack.land(entered.function, self.last, target);
        if landed && self.stack.function() == Some(entered.function) {
            return true;
        }
        if entered.entry || self.stack.function() == Some(entered.function) {
            return false;
        }
        self.unwind_to(entered, target);
        true
    }

    /// Whether a call of the function is open in which what was thrown may go on at `target`.
    #[cold]
    #[inline(never)]
    pub(super) fn unwinds_to(&mut self, function: u32, target: u64) -> bool {
        let (symbols, epoch) = (&self.symbols, self.stack.epoch);
        self.stack.unwind_to(function, || symbols.caught_at(epoch, target))
    }

    /// To the innermost call of the function, else to a new beginning.
    pub(super) fn unwind_to(&mut self, entered: Entered, target: u64) {
        if !self.unwinds_to(entered.function, target) {
            self.begin_anew(entered, target);
        }
    }

    fn give_back(&mut self, entered: Entered, target: u64) {
        if self.stack.return_locally(target) {
            return;
        }
        if self.stack.returns_elsewhere() {
            return self.switch(entered, target);
        }
        // What is not traced may have gone over into it: then it returns to what called that.
        let goes_on = |interruption: &mut Interruption| interruption.resumes == target;
        if self.stack.returns_to(target) {
            self.stack.pop(0);
        } else if self.stack.interruption().is_some_and(goes_on) {
            return self.stack.pop(0);
        } else if !self.stack.return_to(target) {
            return self.return_unexpectedly(entered, target);
        }
        if entered.entry {
            self.run_on(entered, target);
        }
    }

    /// No call that is open returns to `target`.
    fn return_unexpectedly(&mut self, entered: Entered, target: u64) {
        if let Some(interruption) = self.stack.interruption().filter(|interruption| !interruption.returning) {
            interruption.returning = true;
            self.stack.does_not_return(target);
            return self.jump(entered, target);
        }
        // No call returns to where a function begins: its address was pushed.
        if entered.entry {
            self.stack.does_not_return(target);
            return match self.stack.leave_locally() {
                Some(returns_to) => self.stack.call(entered.function, self.last, target, returns_to),
                None => self.jump(entered, target),
            };
        }
        if self.stack.depth() == 1 {
            self.stack.pop(0);
            return self.stack.find_caller(entered.function, target);
        }
        self.stack.does_not_return(target);
        // The unwinder of C++ exceptions returns into the call that catches.
        self.unwind_to(entered, target);
    }

    fn go_on_elsewhere(&mut self, entered: Entered, target: u64) {
        let left = self.interrupted;
        if !entered.entry && left.stops_kernel(target) {
            self.stack.suspend();
            return self.root(entered, target);
        }
        if !is_kernel(target) {
            self.stack.leave_suspended();
        }
        if self.symbols.restarts_at(self.stack.epoch, target) {
            return self.jump(entered, target);
        }
        if !entered.entry {
            // The end of an interruption of which the begin was not recorded.
            self.unwind_to(entered, target);
        } else if self.is_start(entered) {
            self.begin_anew(entered, target);
        } else if left.way == Way::Far && is_kernel(left.at) && is_kernel(target) {
            self.enter_again(entered, target);
        } else {
            self.interrupt_by(entered, left, target);
        }
    }

    /// Whether another program begins there in place of what ran.
    pub(super) fn is_start(&self, entered: Entered) -> bool {
        entered.entry && self.stack.functions.role(entered.function) == Role::Start
    }

    /// A call begins that interrupts what runs.
    pub(super) fn interrupt_by(&mut self, entered: Entered, left: Left, target: u64) {
        let interruption = Interruption { resumes: left.resumes, repeats: left.at, returning: false };
        let entry = Entry { flags: ASYNCHRONOUS, ..plain(entered, left.at, target) };
        self.stack.push_interruption(&entry, interruption);
    }

    /// It was left in front of the first instruction of a function, for instance.
    pub(super) fn arrive_where_left(&mut self, left: Left) {
        let (entered, _) = self.look_up(left.at, self.arrival == Arrival::Call);
        let (function, entry) = (entered.function, entered.entry);
        if !self.arrival.is_jump() || self.stack.function() != Some(function) {
            self.arrive(left.at, u32::MAX, Known { function, called: function, entry, ..Known::NOTHING });
        }
    }

    /// The innermost call led out of what is traced. True where it is over, as tracing goes on at `ip` with another call, or with what
    /// called or was interrupted by this one; that is what was left then.
    #[cold]
    pub(super) fn end_what_led_out(&mut self, ip: u64) -> bool {
        let jumped = self.left.is_some_and(|left| left.way == Way::Jump);
        let left = match self.stack.interruption() {
            Some(&mut Interruption { resumes, repeats, .. }) => Some((repeats, resumes)),
            None => self.stack.caller_goes_on_at().filter(|_| jumped).map(|at| (at, at)),
        };
        let goes_on = left.is_some_and(|(_, resumes)| resumes == ip);
        if left.is_none() && self.stack.depth() != 1 || !goes_on && !self.look_up(ip, false).0.entry {
            return false;
        }
        self.stack.pop(0);
        self.left = left.map(|(at, resumes)| Left { at, resumes, way: Way::Between });
        self.arrival = Arrival::Jump;
        true
    }

    /// What ran goes on at `to`, or else arrives there so.
    pub(super) fn leave(&mut self, left: Left, to: u64, arrival: Arrival) {
        let returned = self.arrival == Arrival::Return && left.at == left.resumes;
        if returned && arrival == Arrival::Elsewhere && self.stack.returns_to(to) {
            // It returned to a breakpoint that is in the place of what called it (Linux, kernel/events/uprobes.c, uretprobes).
            return;
        }
        // What a far branch left is in the function that runs.
        if !self.arrival.is_jump() || left.at == left.resumes {
            self.arrive_where_left(left);
        }
        self.interrupted = left;
        // An interrupt may lead to what another one interrupted: a handler in front of its first instruction.
        let goes_on = arrival == Arrival::Elsewhere && !left.stops_kernel(to) && self.stack.resume(to);
        self.arrival = if goes_on { Arrival::Jump } else { arrival };
    }
}

pub(super) fn plain(entered: Entered, call_address: u64, target: u64) -> Entry {
    Entry { function: entered.function, call_address, target, returns_to: NO_ADDRESS, flags: 0 }
}

//! What ran near a switch of threads within the kernel, until it is known whose it is.
//!
//! A record says when threads changed, and few packets have times: without another address space (PIP) an epoch begins at the
//! nearest clock packet, some hundred instructions away. Execution goes over at the beginning of one function, `__switch_to_asm`
//! (Linux, arch/x86/entry/entry_64.S), which the one thread calls and which returns to where the other one had called it.

use super::{Ahead, Threads};
use crate::Sinks;
use pt_flow::{is_kernel, Block, Path, Sink};

/// More blocks do not wait: between two MTC packets, a microsecond mostly, a kernel runs fewer.
const MOST: usize = 1 << 12;

#[derive(Default)]
pub struct NearSwitch {
    /// The function's address, where it is known ([`pt_flow::Config::thread_switch`]).
    pub switch: Option<u64>,
    /// It was called, and it is not known yet to whom it went.
    passed: bool,
    /// Epochs of threads to which it will go.
    pub next: Vec<u32>,
    held: Vec<Held>,
    /// By number: whether a path comes by it.
    known: Vec<Option<bool>>,
    generation: u64,
}

/// A block that waits, and what was told in front of it.
struct Held {
    /// Without its lengths.
    block: Block<'static>,
    lengths: Box<[u8]>,
    tsc: u64,
    ahead: Vec<Ahead>,
    /// It did not run yet: a PSB stands in front of it.
    is_next: bool,
}

impl NearSwitch {
    /// Whether something waits.
    #[inline(always)]
    pub fn waits(&self) -> bool {
        self.passed || !self.next.is_empty()
    }

    /// Whether it is to be found out whose the block is that begins there.
    #[inline(always)]
    pub fn is_at(&self, start: u64) -> bool {
        self.switch.is_some_and(|switch| start == switch || self.waits())
    }

    /// The same of a path's blocks.
    #[inline(always)]
    pub fn is_on(&mut self, path: &Path<'_>) -> bool {
        let Some(switch) = self.switch else { return false };
        let known = self.known.get(path.id as usize).copied().flatten();
        self.waits() || known.unwrap_or_else(|| self.learn(path, switch))
    }

    #[cold]
    fn learn(&mut self, path: &Path<'_>, switch: u64) -> bool {
        let place = path.id as usize;
        if self.known.len() <= place {
            self.known.resize((place + 1).next_power_of_two(), None);
        }
        *self.known[place].insert(path.blocks().any(|block| block.start == switch))
    }

    pub fn paths(&mut self, generation: u64) {
        if self.generation != generation {
            (self.generation, self.known) = (generation, Vec::new());
        }
    }
}

impl<T: Sinks> Threads<'_, T> {
    /// The epoch follows the other one.
    pub fn will_go_to(&mut self, before: u32, epoch: u32) {
        let thread = |epoch: u32| self.views.get(epoch as usize).map(|view| (view.pid, view.tid, view.stay));
        if self.near.switch.is_some() && self.traced && thread(before) != thread(epoch) {
            self.near.next.push(epoch);
        }
    }

    /// A block near a switch, or the next one in front of which a PSB stands.
    #[cold]
    pub fn take(&mut self, block: &Block<'_>, tsc: u64, is_next: bool) {
        let passes = Some(block.start) == self.near.switch && !is_next;
        if let Some(enabled) = self.enabled_in() {
            self.enter(enabled);
        }
        self.give_to_next();
        if passes && !self.near.next.is_empty() {
            self.give(Some(self.epoch));
            let next = self.near.next.remove(0);
            self.reach(next, tsc, || block.start);
        } else if passes {
            self.give_up();
            self.near.passed = true;
        } else if !is_kernel(block.start) || self.near.held.len() >= MOST {
            self.give_up();
        }
        if self.near.waits() {
            let (ahead, lengths) = (std::mem::take(&mut self.ahead), block.lengths.into());
            self.near.held.push(Held { block: Block { lengths: &[], ..*block }, lengths, tsc, ahead, is_next });
        } else {
            self.tell(block.epoch, block, tsc, is_next);
        }
    }

    /// What ran since the switch is of the thread whose epoch came behind it.
    pub fn give_to_next(&mut self) {
        if self.near.passed && !self.near.next.is_empty() {
            let next = self.near.next.remove(0);
            self.give(Some(next));
        }
    }

    /// All that waits is of the thread that runs in the epoch; of whoever its own epochs say where that is not known.
    fn give(&mut self, epoch: Option<u32>) {
        self.near.passed = false;
        let coming = std::mem::take(&mut self.ahead);
        for Held { block, lengths, tsc, ahead, is_next } in std::mem::take(&mut self.near.held) {
            self.ahead = ahead;
            self.tell(epoch.unwrap_or(block.epoch), &Block { lengths: &lengths, ..block }, tsc, is_next);
        }
        self.ahead = coming;
    }

    pub fn give_up(&mut self) {
        if self.near.waits() {
            self.near.next.clear();
            self.give(None);
        }
    }

    /// To the thread that runs in the epoch.
    fn tell(&mut self, epoch: u32, block: &Block<'_>, tsc: u64, is_next: bool) {
        self.reach(epoch, tsc, || block.start);
        match self.sink() {
            Some(sink) if is_next => sink.psb(block, tsc),
            Some(sink) => sink.block(block, tsc),
            None => {}
        }
    }
}

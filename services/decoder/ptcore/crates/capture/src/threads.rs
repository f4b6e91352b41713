//! What a core ran, divided by thread.

mod near_switch;

use crate::{Sinks, ThreadSinks, View};
use near_switch::NearSwitch;
use pt_flow::{Block, CondBranches, DisableKind, InTurns, Loss, Notice, Path, Sink};
use std::collections::BTreeMap;

/// Gives every thread (by process and tid) a sink of its own; the thread of a block is that of its epoch's view.
///
/// An enable, interrupt or notice goes to the thread of the block that follows it; an enable that no block follows to who had
/// the core then.
pub struct Threads<'v, T> {
    views: &'v [View],
    core: u32,
    sinks: T,
    /// The place of the thread that runs, where it has one.
    place: Option<usize>,
    epoch: u32,
    pid: u32,
    tid: u32,
    stay: u32,
    /// The epoch of what begins now.
    coming: u32,
    /// How many epochs began, those that began since what was told last, and whether what stands in them is lost.
    epochs: usize,
    begun: Vec<u32>,
    lost: bool,
    /// Tracing goes on; it did when an epoch began, so what comes next may yet be of the thread that runs.
    traced: bool,
    open: bool,
    ahead: Vec<Ahead>,
    near: NearSwitch,
}

enum Ahead {
    Enabled { ip: u64, resumed: bool, tsc: u64, epoch: u32 },
    Interrupt { from: u64, to: u64, tsc: u64 },
    Notice(Notice, u64),
}

impl<'v> Threads<'v, ()> {
    /// The threads of one stream. `make` makes the sink of a thread when it first runs.
    pub fn new<S: Sink, F: FnMut(&View) -> S>(
        views: &'v [View],
        make: F,
    ) -> Threads<'v, ThreadSinks<'v, S, impl FnMut(&View, u32) -> S + use<'v, S, F>>> {
        Threads::of_core(views, 0, make)
    }

    /// The same where the stream is that of a core.
    pub fn of_core<S: Sink, F: FnMut(&View) -> S>(
        views: &'v [View],
        core: u32,
        mut make: F,
    ) -> Threads<'v, ThreadSinks<'v, S, impl FnMut(&View, u32) -> S + use<'v, S, F>>> {
        let sinks = ThreadSinks::of_one_stream(move |view: &View, _| make(view));
        Threads { sinks, ..Threads::on_core(views, core) }
    }
}

impl<S: Sink, F: FnMut(&View, u32) -> S> Threads<'_, ThreadSinks<'_, S, F>> {
    /// The sinks by process and tid.
    pub fn finish(mut self) -> BTreeMap<(u32, u32), S> {
        self.deliver();
        self.sinks.finish().map(|((pid, tid, _), sink)| ((pid, tid), sink)).collect()
    }
}

impl<'v, T: Sinks> Threads<'v, T> {
    /// The threads of one of several cores, which have their sinks in common.
    pub fn on_core(views: &'v [View], core: u32) -> Self {
        let (pid, tid, stay) = views.first().map_or((0, 0, 0), |view| (view.pid, view.tid, view.stay));
        Threads {
            views,
            core,
            sinks: T::default(),
            place: None,
            epoch: 0,
            pid,
            tid,
            stay,
            coming: 0,
            epochs: 0,
            begun: Vec::new(),
            lost: false,
            traced: false,
            open: false,
            ahead: Vec::new(),
            near: NearSwitch::default(),
        }
    }

    /// [`pt_flow::Config::thread_switch`].
    pub fn switching_at(mut self, switch: Option<u64>) -> Self {
        self.near.switch = switch;
        self
    }

    #[inline]
    fn sink(&mut self) -> Option<&mut T::Sink> {
        let place = match self.place {
            Some(place) => place,
            None => self.find()?,
        };
        Some(self.sinks.at(place))
    }

    /// The place of the thread that runs.
    #[cold]
    fn find(&mut self) -> Option<usize> {
        self.place = self.sinks.find(&self.view(self.epoch), self.core);
        self.place
    }

    fn view(&self, epoch: u32) -> View {
        let unknown = View { pid: self.pid, tid: self.tid, image: 0, epoch: 0, kernel: 0, stay: 0 };
        self.views.get(epoch as usize).copied().unwrap_or(unknown)
    }

    fn enter(&mut self, epoch: u32) {
        self.epoch = epoch;
        let who = self.views.get(epoch as usize).map_or((0, 0, 0), |view| (view.pid, view.tid, view.stay));
        if who != (self.pid, self.tid, self.stay) {
            (self.pid, self.tid, self.stay) = who;
            self.place = None;
        }
    }

    /// What comes next is of the thread that runs in the epoch. `ip`: where it goes on.
    #[inline]
    fn reach(&mut self, epoch: u32, tsc: u64, ip: impl FnOnce() -> u64) {
        if epoch != self.epoch {
            self.enter(epoch);
            self.begun.clear();
            self.open = false;
            if self.place.is_none() && self.enabled_in().is_none() {
                let interrupted = self.ahead.iter().find_map(|ahead| match ahead {
                    Ahead::Interrupt { from, .. } => Some(*from),
                    _ => None,
                });
                if let Some(sink) = self.sink() {
                    sink.switched(interrupted.unwrap_or_else(ip), tsc);
                }
            }
        }
        if !self.ahead.is_empty() {
            self.hand_on();
        }
    }

    /// The epoch in which tracing began since the last block.
    fn enabled_in(&self) -> Option<u32> {
        self.ahead.iter().rev().find_map(|ahead| match ahead {
            Ahead::Enabled { epoch, .. } => Some(*epoch),
            _ => None,
        })
    }

    /// No block followed.
    fn deliver(&mut self) {
        self.give_up();
        if let Some(epoch) = self.enabled_in() {
            self.enter(epoch);
        }
        self.hand_on();
    }

    /// Of what stands in these epochs, and in those that begin before anything is told again, something is lost.
    fn lose(&mut self, begun: Vec<u32>) {
        self.lost = true;
        for epoch in begun {
            self.lose_in(epoch);
        }
    }

    fn lose_in(&mut self, epoch: u32) {
        self.sinks.lose(&self.view(epoch), self.core);
        // The thread that runs may have given its sink to others meanwhile.
        self.place = None;
    }

    fn hand_on(&mut self) {
        self.lost = false;
        self.begun.clear();
        self.open = false;
        let told = std::mem::take(&mut self.ahead);
        if told.is_empty() {
            return;
        }
        let Some(sink) = self.sink() else { return };
        for ahead in told {
            match ahead {
                Ahead::Enabled { ip, resumed, tsc, .. } => sink.enabled(ip, resumed, tsc),
                Ahead::Interrupt { from, to, tsc } => sink.interrupt(from, to, tsc),
                Ahead::Notice(notice, tsc) => sink.notice(&notice, tsc),
            }
        }
    }
}

impl<T: Sinks> Sink for Threads<'_, T> {
    const DIVIDED: bool = T::Sink::DIVIDED;

    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        if self.near.is_at(block.start) {
            return self.take(block, tsc, false);
        }
        self.reach(block.epoch, tsc, || block.start);
        if let Some(sink) = self.sink() {
            sink.block(block, tsc);
        }
    }

    fn run(&mut self, block: &Block<'_>, tsc: u64) {
        if self.near.is_at(block.start) {
            return self.take(block, tsc, false);
        }
        self.reach(block.epoch, tsc, || block.start);
        if let Some(sink) = self.sink() {
            sink.run(block, tsc);
        }
    }

    fn cond_branches(&mut self, branches: &mut CondBranches<'_>, tsc: u64) {
        // A call leads to the switch: only the first one can begin there.
        if self.near.is_at(branches.next_start()) {
            while let Some(branch) = branches.next() {
                self.take(&branches.block(branch), tsc, false);
            }
            return;
        }
        self.reach(branches.epoch(), tsc, || branches.next_start());
        if let Some(sink) = self.sink() {
            sink.cond_branches(branches, tsc);
        }
    }

    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        if self.near.is_on(path) {
            return path.blocks().for_each(|block| self.take(&block, tsc, false));
        }
        self.reach(path.epoch(), tsc, || path.blocks().next().map_or(0, |block| block.start));
        if let Some(sink) = self.sink() {
            sink.path(path, tsc);
        }
    }

    fn paths(&mut self, generation: u64) {
        self.near.paths(generation);
        // The others are told when they run.
        self.sinks.paths(generation);
        if let Some(place) = self.place {
            self.sinks.at(place).paths(generation);
        }
    }

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        if self.near.waits() {
            return self.take(next, tsc, true);
        }
        self.reach(next.epoch, tsc, || next.start);
        if let Some(sink) = self.sink() {
            sink.psb(next, tsc);
        }
    }

    fn epoch(&mut self, epoch: u32) {
        // Whoever came before has had its turn.
        self.give_to_next();
        let before = std::mem::replace(&mut self.coming, epoch);
        self.epochs += 1;
        self.open |= self.traced;
        if self.lost {
            self.lose_in(epoch);
        } else {
            self.will_go_to(before, epoch);
            self.begun.push(epoch);
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.traced = true;
        self.ahead.push(Ahead::Enabled { ip, resumed, tsc, epoch: self.coming });
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.deliver();
        (self.traced, self.open) = (false, false);
        if let Some(sink) = self.sink() {
            sink.disabled(kind, at, target, tsc);
        }
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.ahead.push(Ahead::Interrupt { from, to, tsc });
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        self.ahead.push(Ahead::Notice(*notice, tsc));
    }

    fn loss(&mut self, loss: &Loss) {
        self.give_up();
        let begun = std::mem::take(&mut self.begun);
        self.deliver();
        self.enter(loss.epoch);
        (self.traced, self.open) = (false, false);
        if let Some(sink) = self.sink() {
            sink.loss(loss);
        }
        if loss.is_of_program() {
            self.lose(begun);
        }
    }

    fn loss_ends(&mut self) {
        self.lost = false;
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.give_up();
        let begun = std::mem::take(&mut self.begun);
        self.deliver();
        if !std::mem::take(&mut self.traced) {
            // Who ran before has left the core.
            self.enter(self.coming);
        }
        self.open = false;
        if let Some(sink) = self.sink() {
            sink.overflow(offset, from, tsc);
        }
        self.lose(begun);
    }
}

impl<T: Sinks> InTurns for Threads<'_, T> {
    type Common = T;

    fn exchange(&mut self, common: &mut T) {
        std::mem::swap(&mut self.sinks, common);
        // The thread may have been elsewhere meanwhile.
        self.place = None;
    }

    fn begins(&mut self, epoch: u32) {
        self.coming = epoch;
        self.enter(epoch);
    }

    fn pauses(&mut self) {
        self.place = None;
        let (views, runs) = (self.views, self.open.then(|| self.enabled_in().unwrap_or(self.epoch)));
        let untold = self.begun.iter().chain(&self.near.next).copied().chain(runs);
        let untold = untold.filter_map(|epoch| views.get(epoch as usize).copied());
        self.sinks.pauses(self.core, self.epochs, untold);
    }

    fn over(&mut self) {
        self.deliver();
        // Nothing says whether anything ran in those that began last.
        let begun = std::mem::take(&mut self.begun);
        self.lose(begun);
        self.pauses();
    }
}

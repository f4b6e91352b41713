//! What a core ran, divided by thread.

use crate::{ThreadSinks, View};
use pt_flow::{Block, CondBranches, DisableKind, InTurns, Loss, Notice, Path, Sink};
use std::collections::BTreeMap;

/// Gives every thread (by tid) a sink of its own; the thread of a block is that of its epoch's view.
///
/// An enable, interrupt or notice goes to the thread of the block that follows it; an enable that no block follows to who had
/// the core then.
pub struct Threads<'v, S, F> {
    views: &'v [View],
    core: u32,
    sinks: ThreadSinks<'v, S, F>,
    /// The place of the thread that runs, where it has one.
    place: Option<usize>,
    epoch: u32,
    tid: u32,
    stay: u32,
    /// The epoch of what begins now.
    coming: u32,
    /// The epochs that began since what was told last; whether what stands in them is lost.
    begun: Vec<u32>,
    lost: bool,
    ahead: Vec<Ahead>,
}

enum Ahead {
    Enabled { ip: u64, resumed: bool, tsc: u64, epoch: u32 },
    Interrupt { from: u64, to: u64, tsc: u64 },
    Notice(Notice, u64),
}

impl<'v, S: Sink> Threads<'v, S, ()> {
    /// The threads of one stream. `make` makes the sink of a thread when it first runs.
    pub fn new<F: FnMut(&View) -> S>(
        views: &'v [View],
        mut make: F,
    ) -> Threads<'v, S, impl FnMut(&View, u32) -> S + use<'v, S, F>> {
        Threads { sinks: ThreadSinks::of_one_stream(move |view: &View, _| make(view)), ..Threads::on_core(views, 0) }
    }
}

impl<'v, S: Sink, F: FnMut(&View, u32) -> S> Threads<'v, S, F> {
    /// The threads of one of several cores, which have their sinks in common.
    pub fn on_core(views: &'v [View], core: u32) -> Self {
        let (tid, stay) = views.first().map_or((0, 0), |view| (view.tid, view.stay));
        Threads {
            views,
            core,
            sinks: ThreadSinks::default(),
            place: None,
            epoch: 0,
            tid,
            stay,
            coming: 0,
            begun: Vec::new(),
            lost: false,
            ahead: Vec::new(),
        }
    }

    /// The sinks by tid.
    pub fn finish(mut self) -> BTreeMap<u32, S> {
        self.deliver();
        self.sinks.finish().map(|((tid, _), sink)| (tid, sink)).collect()
    }

    #[inline]
    fn sink(&mut self) -> &mut S {
        let place = self.place.unwrap_or_else(|| self.find());
        self.sinks.at(place)
    }

    /// The place of the thread that runs.
    #[cold]
    fn find(&mut self) -> usize {
        let place = self.sinks.find(&self.view(self.epoch), self.core);
        self.place = Some(place);
        place
    }

    fn view(&self, epoch: u32) -> View {
        let unknown = View { pid: 0, tid: self.tid, image: 0, epoch: 0, kernel: 0, stay: 0 };
        self.views.get(epoch as usize).copied().unwrap_or(unknown)
    }

    fn enter(&mut self, epoch: u32) {
        self.epoch = epoch;
        let (tid, stay) = self.views.get(epoch as usize).map_or((0, 0), |view| (view.tid, view.stay));
        if (tid, stay) != (self.tid, self.stay) {
            (self.tid, self.stay, self.place) = (tid, stay, None);
        }
    }

    /// What comes next is of the thread that runs in the epoch. `ip`: where it goes on.
    #[inline]
    fn reach(&mut self, epoch: u32, tsc: u64, ip: impl FnOnce() -> u64) {
        if epoch != self.epoch {
            self.enter(epoch);
            self.begun.clear();
            if self.place.is_none() && self.enabled_in().is_none() {
                let interrupted = self.ahead.iter().find_map(|ahead| match ahead {
                    Ahead::Interrupt { from, .. } => Some(*from),
                    _ => None,
                });
                self.sink().switched(interrupted.unwrap_or_else(ip), tsc);
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
        if let Some(epoch) = self.enabled_in() {
            self.enter(epoch);
        }
        self.hand_on();
    }

    /// Of what stands in these epochs, and in those that begin before anything is told again, something is lost.
    fn lose(&mut self, begun: Vec<u32>) {
        self.lost = true;
        for epoch in begun {
            self.sinks.lose(&self.view(epoch), self.core);
        }
    }

    fn hand_on(&mut self) {
        self.lost = false;
        self.begun.clear();
        for ahead in std::mem::take(&mut self.ahead) {
            match ahead {
                Ahead::Enabled { ip, resumed, tsc, .. } => self.sink().enabled(ip, resumed, tsc),
                Ahead::Interrupt { from, to, tsc } => self.sink().interrupt(from, to, tsc),
                Ahead::Notice(notice, tsc) => self.sink().notice(&notice, tsc),
            }
        }
    }
}

impl<S: Sink, F: FnMut(&View, u32) -> S> Sink for Threads<'_, S, F> {
    const DIVIDED: bool = S::DIVIDED;

    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.reach(block.epoch, tsc, || block.start);
        self.sink().block(block, tsc);
    }

    fn run(&mut self, block: &Block<'_>, tsc: u64) {
        self.reach(block.epoch, tsc, || block.start);
        self.sink().run(block, tsc);
    }

    fn cond_branches(&mut self, branches: &mut CondBranches<'_>, tsc: u64) {
        self.reach(branches.epoch(), tsc, || branches.next_start());
        self.sink().cond_branches(branches, tsc);
    }

    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        self.reach(path.epoch(), tsc, || path.blocks().next().map_or(0, |block| block.start));
        self.sink().path(path, tsc);
    }

    fn paths(&mut self, generation: u64) {
        // The others are told when they run.
        self.sinks.generation = generation;
        if let Some(place) = self.place {
            self.sinks.at(place).paths(generation);
        }
    }

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        self.reach(next.epoch, tsc, || next.start);
        self.sink().psb(next, tsc);
    }

    fn epoch(&mut self, epoch: u32) {
        self.coming = epoch;
        if self.lost {
            self.sinks.lose(&self.view(epoch), self.core);
        } else {
            self.begun.push(epoch);
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.ahead.push(Ahead::Enabled { ip, resumed, tsc, epoch: self.coming });
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.deliver();
        self.sink().disabled(kind, at, target, tsc);
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.ahead.push(Ahead::Interrupt { from, to, tsc });
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        self.ahead.push(Ahead::Notice(*notice, tsc));
    }

    fn loss(&mut self, loss: &Loss) {
        let begun = std::mem::take(&mut self.begun);
        self.deliver();
        self.enter(loss.epoch);
        self.sink().loss(loss);
        if loss.is_of_program() {
            self.lose(begun);
        }
    }

    fn loss_ends(&mut self) {
        self.lost = false;
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        let begun = std::mem::take(&mut self.begun);
        self.deliver();
        self.sink().overflow(offset, from, tsc);
        self.lose(begun);
    }
}

impl<'v, S: Sink, F: FnMut(&View, u32) -> S> InTurns for Threads<'v, S, F> {
    type Common = ThreadSinks<'v, S, F>;

    fn exchange(&mut self, common: &mut Self::Common) {
        std::mem::swap(&mut self.sinks, common);
        // The thread may have been elsewhere meanwhile.
        self.place = None;
    }

    fn over(&mut self) {
        self.deliver();
        // Nothing says whether anything ran in those that began last.
        let begun = std::mem::take(&mut self.begun);
        self.lose(begun);
    }
}

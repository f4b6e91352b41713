//! What a core ran, divided by thread.

use crate::View;
use pt_flow::{Block, CondBranches, DisableKind, Loss, Notice, Path, Sink};
use std::collections::BTreeMap;

/// Gives every thread (by tid) a sink of its own; the thread of a block is that of its epoch's view.
///
/// An enable, interrupt or notice goes to the thread of the block that follows it; an enable that no block follows to who had
/// the core then.
pub struct Threads<'v, S, F> {
    views: &'v [View],
    make: F,
    /// Each with the stay that it was told of last.
    sinks: Vec<(S, u32)>,
    /// Places in `sinks` by tid.
    places: BTreeMap<u32, usize>,
    /// The place of the thread that runs, where it has one.
    place: Option<usize>,
    epoch: u32,
    tid: u32,
    stay: u32,
    /// The epoch of what begins now.
    coming: u32,
    generation: u64,
    ahead: Vec<Ahead>,
}

enum Ahead {
    Enabled { ip: u64, resumed: bool, tsc: u64, epoch: u32 },
    Interrupt { from: u64, to: u64, tsc: u64 },
    Notice(Notice, u64),
}

impl<'v, S: Sink, F: FnMut(&View) -> S> Threads<'v, S, F> {
    /// `make` makes the sink of a thread when it first runs.
    pub fn new(views: &'v [View], make: F) -> Self {
        let (tid, stay) = views.first().map_or((0, 0), |view| (view.tid, view.stay));
        let (sinks, places, ahead) = (Vec::new(), BTreeMap::new(), Vec::new());
        Threads { views, make, sinks, places, place: None, epoch: 0, tid, stay, coming: 0, generation: 0, ahead }
    }

    /// The sinks by tid.
    pub fn finish(mut self) -> BTreeMap<u32, S> {
        self.deliver();
        let mut sinks: Vec<_> = self.sinks.into_iter().map(Some).collect();
        self.places.into_iter().filter_map(|(tid, place)| Some((tid, sinks[place].take()?.0))).collect()
    }

    #[inline]
    fn sink(&mut self) -> &mut S {
        let place = self.place.unwrap_or_else(|| self.find());
        &mut self.sinks[place].0
    }

    /// The place of the thread that runs.
    #[cold]
    fn find(&mut self) -> usize {
        let (views, sinks, make, now) = (self.views, &mut self.sinks, &mut self.make, self.stay);
        let unknown = View { pid: 0, tid: self.tid, image: 0, epoch: 0, kernel: 0, stay: 0 };
        let place = *self.places.entry(self.tid).or_insert_with(|| {
            sinks.push((make(views.get(self.epoch as usize).unwrap_or(&unknown)), now));
            sinks.len() - 1
        });
        self.place = Some(place);
        let (sink, stay) = &mut sinks[place];
        sink.paths(self.generation);
        if std::mem::replace(stay, now) != now {
            sink.moved();
        }
        place
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

    fn hand_on(&mut self) {
        for ahead in std::mem::take(&mut self.ahead) {
            match ahead {
                Ahead::Enabled { ip, resumed, tsc, .. } => self.sink().enabled(ip, resumed, tsc),
                Ahead::Interrupt { from, to, tsc } => self.sink().interrupt(from, to, tsc),
                Ahead::Notice(notice, tsc) => self.sink().notice(&notice, tsc),
            }
        }
    }
}

impl<S: Sink, F: FnMut(&View) -> S> Sink for Threads<'_, S, F> {
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
        self.generation = generation;
        // The others are told when they run.
        if let Some(place) = self.place {
            self.sinks[place].0.paths(generation);
        }
    }

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        self.reach(next.epoch, tsc, || next.start);
        self.sink().psb(next, tsc);
    }

    fn epoch(&mut self, epoch: u32) {
        self.coming = epoch;
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
        self.deliver();
        self.enter(loss.epoch);
        self.sink().loss(loss);
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.deliver();
        self.sink().overflow(offset, from, tsc);
    }
}

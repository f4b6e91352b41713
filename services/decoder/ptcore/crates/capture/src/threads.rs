//! What a core ran, divided by thread.

use crate::View;
use pt_flow::{Block, DisableKind, Loss, Notice, Sink};
use std::collections::BTreeMap;

/// Gives every thread (by tid) a sink of its own; the thread of a block is that of its epoch's view.
///
/// An enable, interrupt or notice goes to the thread of the block that follows it.
pub struct Threads<'v, S, F> {
    views: &'v [View],
    make: F,
    sinks: BTreeMap<u32, S>,
    epoch: u32,
    tid: u32,
    ahead: Vec<Ahead>,
}

enum Ahead {
    Enabled { ip: u64, resumed: bool, tsc: u64 },
    Interrupt { from: u64, to: u64, tsc: u64 },
    Notice(Notice, u64),
}

impl<'v, S: Sink, F: FnMut(&View) -> S> Threads<'v, S, F> {
    /// `make` makes the sink of a thread when it first runs.
    pub fn new(views: &'v [View], make: F) -> Self {
        let tid = views.first().map_or(0, |view| view.tid);
        Threads { views, make, sinks: BTreeMap::new(), epoch: 0, tid, ahead: Vec::new() }
    }

    /// The sinks by tid.
    pub fn finish(mut self) -> BTreeMap<u32, S> {
        self.deliver();
        self.sinks
    }

    fn sink(&mut self) -> &mut S {
        let (views, epoch, make) = (self.views, self.epoch, &mut self.make);
        let unknown = View { pid: 0, tid: self.tid, image: 0, epoch: 0, kernel: 0 };
        self.sinks.entry(self.tid).or_insert_with(|| make(views.get(epoch as usize).unwrap_or(&unknown)))
    }

    fn enter(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.tid = self.views.get(epoch as usize).map_or(0, |view| view.tid);
    }

    /// What comes next is of the thread that runs the block.
    fn reach(&mut self, block: &Block<'_>) {
        if block.epoch != self.epoch {
            self.enter(block.epoch);
        }
        if !self.ahead.is_empty() {
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        for ahead in std::mem::take(&mut self.ahead) {
            match ahead {
                Ahead::Enabled { ip, resumed, tsc } => self.sink().enabled(ip, resumed, tsc),
                Ahead::Interrupt { from, to, tsc } => self.sink().interrupt(from, to, tsc),
                Ahead::Notice(notice, tsc) => self.sink().notice(&notice, tsc),
            }
        }
    }
}

impl<S: Sink, F: FnMut(&View) -> S> Sink for Threads<'_, S, F> {
    const DIVIDED: bool = S::DIVIDED;

    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.reach(block);
        self.sink().block(block, tsc);
    }

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        self.reach(next);
        self.sink().psb(next, tsc);
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.ahead.push(Ahead::Enabled { ip, resumed, tsc });
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

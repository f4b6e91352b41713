//! What a sink was told, counted; times where packets hold none.

use pt_flow::{Block, BlockKind, CondBranches, DisableKind, Loss, Notice, Path, Sink, Statistics, Travels};
use std::collections::BTreeMap;

/// The share of a sink in the statistics of a stream, or of those of several cores.
pub struct Counted<S> {
    pub sink: S,
    counts: Statistics,
    timeless: bool,
    core: u32,
    /// Of the cores where the thread is not now.
    elsewhere: BTreeMap<u32, Statistics>,
}

impl<S> Counted<S> {
    /// `timeless`: the packets hold no times. Instructions are counted instead, one a tick, from 1 on, as 0 is unknown.
    pub fn new(sink: S, timeless: bool) -> Self {
        Counted { sink, counts: Statistics::default(), timeless, core: 0, elsewhere: BTreeMap::new() }
    }

    /// The sink, and by core what it was told there.
    pub fn finish(mut self) -> (S, BTreeMap<u32, Statistics>) {
        self.elsewhere.insert(self.core, self.counts);
        (self.sink, self.elsewhere)
    }

    #[inline]
    fn count(&mut self, block: &Block<'_>) {
        self.counts.instructions += u64::from(block.instructions);
        match block.kind {
            BlockKind::CondTaken | BlockKind::CondNotTaken => self.counts.conditional_branches += 1,
            BlockKind::Return => self.counts.returns += 1,
            BlockKind::Call | BlockKind::IndirectCall => self.counts.calls += 1,
            _ => {}
        }
    }

    #[inline]
    fn time(&self, tsc: u64) -> u64 {
        if self.timeless {
            self.counts.instructions + 1
        } else {
            tsc
        }
    }
}

impl<S: Sink> Sink for Counted<S> {
    const DIVIDED: bool = S::DIVIDED;

    #[inline]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.count(block);
        self.sink.block(block, self.time(tsc));
    }

    #[inline]
    fn run(&mut self, block: &Block<'_>, tsc: u64) {
        self.count(block);
        self.sink.run(block, self.time(tsc));
    }

    fn cond_branches(&mut self, branches: &mut CondBranches<'_>, tsc: u64) {
        if self.timeless {
            while let Some(branch) = branches.next() {
                self.run(&branches.block(branch), tsc);
            }
            return;
        }
        let (instructions, left) = (branches.instructions(), branches.left());
        self.sink.cond_branches(branches, tsc);
        self.counts.instructions += branches.instructions() - instructions;
        self.counts.conditional_branches += u64::from(left - branches.left());
    }

    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        if self.timeless {
            return path.blocks().for_each(|block| self.block(&block, tsc));
        }
        // Which returns were compressed only paths know.
        self.counts += Statistics { compressed_returns: 0, ..path.statistics() };
        self.sink.path(path, tsc);
    }

    fn paths(&mut self, generation: u64) {
        self.sink.paths(generation);
    }

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        self.sink.psb(next, self.time(tsc));
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.sink.enabled(ip, resumed, self.time(tsc));
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.sink.disabled(kind, at, target, self.time(tsc));
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.sink.interrupt(from, to, self.time(tsc));
    }

    fn switched(&mut self, ip: u64, tsc: u64) {
        self.sink.switched(ip, self.time(tsc));
    }

    fn moved(&mut self) {
        self.sink.moved();
    }

    fn on_core(&mut self, core: u32) {
        let before = std::mem::replace(&mut self.core, core);
        if before != core {
            let counts = self.elsewhere.remove(&core).unwrap_or_default();
            let counted = std::mem::replace(&mut self.counts, counts);
            // It may be told before anything is.
            if counted != Statistics::default() {
                self.elsewhere.insert(before, counted);
            }
        }
        self.sink.on_core(core);
    }

    fn loss(&mut self, loss: &Loss) {
        self.counts.errors += 1;
        self.counts.lost_bytes += loss.size as u64;
        self.sink.loss(&Loss { tsc0: self.time(loss.tsc0), tsc1: self.time(loss.tsc1), ..*loss });
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.counts.ovf += 1;
        self.sink.overflow(offset, from, self.time(tsc));
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        self.sink.notice(notice, self.time(tsc));
    }
}

impl<S: Travels> Travels for Counted<S> {
    type Learned = S::Learned;

    fn exchange(&mut self, learned: &mut S::Learned) {
        self.sink.exchange(learned);
    }
}

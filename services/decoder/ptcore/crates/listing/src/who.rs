//! Which thread a core ran.

use pt_capture::View;
use pt_flow::{Block, CondBranches, DisableKind, Loss, Notice, Path, Sink};

/// The threads of a stream, by the epochs of its blocks.
#[derive(Clone, Copy)]
pub struct Who<'v>(pub &'v [View]);

impl Who<'_> {
    /// Process and thread; zeros where nobody knows.
    pub fn at(&self, epoch: u32) -> (u32, u32) {
        self.0.get(epoch as usize).map_or((0, 0), |view| (view.pid, view.tid))
    }
}

/// A sink that may be nobody's: for the threads that nobody asked for.
pub struct Only<S>(pub Option<S>);

impl<S: Sink> Sink for Only<S> {
    const DIVIDED: bool = S::DIVIDED;

    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.psb(next, tsc);
        }
    }

    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.block(block, tsc);
        }
    }

    fn run(&mut self, block: &Block<'_>, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.run(block, tsc);
        }
    }

    fn cond_branches(&mut self, branches: &mut CondBranches<'_>, tsc: u64) {
        match &mut self.0 {
            Some(sink) => sink.cond_branches(branches, tsc),
            None => branches.for_each(drop),
        }
    }

    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.path(path, tsc);
        }
    }

    fn paths(&mut self, generation: u64) {
        if let Some(sink) = &mut self.0 {
            sink.paths(generation);
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.enabled(ip, resumed, tsc);
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.disabled(kind, at, target, tsc);
        }
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.interrupt(from, to, tsc);
        }
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.notice(notice, tsc);
        }
    }

    fn switched(&mut self, ip: u64, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.switched(ip, tsc);
        }
    }

    fn on_core(&mut self, core: u32) {
        if let Some(sink) = &mut self.0 {
            sink.on_core(core);
        }
    }

    fn moved(&mut self) {
        if let Some(sink) = &mut self.0 {
            sink.moved();
        }
    }

    fn loss(&mut self, loss: &Loss) {
        if let Some(sink) = &mut self.0 {
            sink.loss(loss);
        }
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        if let Some(sink) = &mut self.0 {
            sink.overflow(offset, from, tsc);
        }
    }
}

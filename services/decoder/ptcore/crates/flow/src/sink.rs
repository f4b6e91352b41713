//! What the flow layer tells.

use crate::block::Block;
use crate::cond_branches::CondBranches;
use crate::path::Path;
use crate::{Loss, Notice};

/// Why the trace stops for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisableKind {
    /// By the last instruction told: a system call, or a branch out of what is traced.
    Synchronous,
    /// Between two instructions: a signal, an interrupt, the end of a recording.
    Asynchronous,
}

/// Takes the flow in the order of execution. `tsc` is the best known time, 0 before the first TSC packet, and never
/// goes back within a stream.
pub trait Sink {
    /// Whether it looks at times: without, cycles and clock ticks are passed over, and what is told as a time is anything
    /// that does not go back.
    const TIMED: bool = true;

    /// Whether it is told of PSBs: the block that one stands in is divided there, and [`psb`](Sink::psb) is told between.
    const DIVIDED: bool = false;

    fn block(&mut self, block: &Block<'_>, tsc: u64);

    /// A block ran whose branch went to its own target where it is a direct one.
    #[inline]
    fn run(&mut self, block: &Block<'_>, tsc: u64) {
        self.block(block, tsc);
    }

    /// Conditional branches ran one behind the other: all that are told.
    #[inline]
    fn cond_branches(&mut self, branches: &mut CondBranches<'_>, tsc: u64) {
        while let Some(branch) = branches.next() {
            self.run(&branches.block(branch), tsc);
        }
    }

    /// The blocks of a path ran. Sinks that can do better than to take its blocks one by one count it by its number.
    #[inline]
    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        for block in path.blocks() {
            self.block(&block, tsc);
        }
    }

    /// Which paths come from now on: those of another generation that were told before do not come again, and their
    /// numbers mean others.
    fn paths(&mut self, generation: u64) {
        let _ = generation;
    }

    /// What begins from now on does so in this epoch.
    fn epoch(&mut self, epoch: u32) {
        let _ = epoch;
    }

    /// Tracing begins or goes on at `ip`. `resumed` when it stopped at this very address before.
    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64);

    /// Tracing stops at `at`: the instruction that did it (synchronous) or the next one to run (asynchronous).
    /// `target` is where execution went when the packet says so.
    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64);

    /// Execution went from before the instruction at `from` to `to` without a branch.
    fn interrupt(&mut self, from: u64, to: u64, tsc: u64);

    /// Bytes that could not be decoded. Told when decoding goes on behind them or at the end of the stream; the next
    /// call is `enabled` if any. The flow before is complete up to the loss.
    fn loss(&mut self, loss: &Loss);

    /// The last loss ends here: it is in no epoch that begins from now on.
    fn loss_ends(&mut self) {}

    /// The processor lost packets at `offset`; the flow ended somewhere behind `from`. An `enabled` follows when
    /// execution is traced again.
    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64);

    /// The flow comes by a PSB, in front of `next`, of which it is not known yet how it will be left.
    fn psb(&mut self, next: &Block<'_>, tsc: u64) {
        let _ = (next, tsc);
    }

    /// A part of a stream begins at a PSB, in front of `next`; the flow of the part before is taken to lead there.
    fn joined(&mut self, next: &Block<'_>, tsc: u64) {
        let _ = (next, tsc);
    }

    /// The thread goes on at `ip`; another one ran before, without an end of tracing in between.
    fn switched(&mut self, ip: u64, tsc: u64) {
        let _ = (ip, tsc);
    }

    /// What comes now the thread ran after it had been on other cores, of which other streams tell.
    fn moved(&mut self) {}

    /// What comes now the thread ran on this core.
    fn on_core(&mut self, core: u32) {
        let _ = core;
    }

    /// Something else that the stream says about this place of the flow.
    fn notice(&mut self, _notice: &Notice, _tsc: u64) {}
}

/// A sink to which several flows tell, one behind the other.
pub trait Travels: Sink {
    /// What it learns of the blocks and paths of one flow, by their numbers: it stays with the flow.
    type Learned: Default;

    /// Takes what it has learned of the flow that tells from now on, or gives it back.
    fn exchange(&mut self, learned: &mut Self::Learned);
}

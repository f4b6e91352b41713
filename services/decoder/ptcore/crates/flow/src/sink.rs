//! What the flow layer tells.

use crate::code::CodeCache;
use crate::path::Entry;
use crate::{Loss, Notice};

/// How a block was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum BlockKind {
    /// Ran into the next block: the block was long, its section ended, or a far transfer follows no trace.
    Linear,
    CondTaken,
    CondNotTaken,
    Jump,
    IndirectJump,
    Call,
    IndirectCall,
    Return,
    /// System call, software interrupt, far jump, far call, far return.
    Far,
    /// Left between two instructions by an interrupt or a disable; `last` is the last instruction that ran.
    Interrupted,
}

/// Instructions that ran one after another without a branch before the last of them.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Dense number of the cached block this one is (a prefix of): one number, one content and start, for the life of
    /// the `Flow`. Sinks may count in arrays by it. `u32::MAX` for a block that is not kept.
    pub id: u32,
    /// Address of the first instruction.
    pub start: u64,
    /// Address of the last instruction.
    pub last: u64,
    /// Address behind the last instruction (a call's return address).
    pub end: u64,
    pub instructions: u32,
    pub kind: BlockKind,
    /// The code image it was found in.
    pub epoch: u32,
    /// Where execution went; 0 when tracing was disabled without saying.
    pub target: u64,
    /// Bytes of every instruction, in order; sums to `end - start`.
    pub lengths: &'a [u8],
}

impl Block<'_> {
    /// Addresses of the instructions, in order.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.lengths.iter().scan(self.start, |next, &length| {
            let address = *next;
            *next += u64::from(length);
            Some(address)
        })
    }
}

/// Blocks that run one after another whenever branches go one way.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    /// Dense: one number, one list of blocks within a generation (see [`Sink::paths`]).
    pub id: u32,
    /// Of all its blocks.
    pub instructions: u32,
    /// Where it went when its last block is the return from a call before it. Everything else about a path is the same
    /// whenever it runs.
    pub returns_to: Option<u64>,
    pub(crate) code: &'a CodeCache,
    pub(crate) entry: &'a Entry,
    pub(crate) epoch: u32,
}

impl Path<'_> {
    /// The code image it was found in.
    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

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

    fn block(&mut self, block: &Block<'_>, tsc: u64);

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

    /// The processor lost packets at `offset`; the flow ended somewhere behind `from`. An `enabled` follows when
    /// execution is traced again.
    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64);

    /// Something else that the stream says about this place of the flow.
    fn notice(&mut self, _notice: &Notice, _tsc: u64) {}
}

//! From blocks to calls.

mod arrivals;
mod far_transfers;
mod functions;
mod learned;
mod plans;
mod psb;
mod ran;
mod sink;
mod stitching;

use crate::arrival::{Arrival, Left};
use crate::blocks::{BlockCount, Blocks};
use crate::cached::CachedBlocks;
use crate::edges::{Edge, Edges};
use crate::extents::Extents;
use crate::fragment::Knew;
use crate::functions::FunctionKey;
use crate::members::Members;
use crate::numbered::Numbered;
use crate::output::{Kept, Output};
use crate::plan::Plans;
use crate::records::Records;
use crate::stack::Stack;
use crate::trace::{Totals, Trace};
use pt_image::Symbols;

pub use learned::Learned;

/// Follows the flow of one thread with a stack of calls; after `finish` that of another one through the same `Flow`.
pub struct Calls<S, O = Kept> {
    symbols: S,
    stack: Stack<O>,
    edges: Edges,
    blocks: Blocks,
    cached: CachedBlocks,
    /// By cached block: where it starts in its space's own addresses; `u64::MAX`: not asked yet.
    starts: Numbered<u64>,
    members: Members,
    extents: Extents,
    plans: Plans,
    arrival: Arrival,
    left: Option<Left>,
    /// The last loss is an overflow of which the end is not known yet.
    overflowing: bool,
    /// What was left by an interruption that is arriving.
    interrupted: Left,
    /// Of the last block: its last instruction, and where it ends.
    last: u64,
    end: u64,
    /// The last instruction of a stub that was passed through, and where it ends.
    passed: (u64, u64),
    tsc: u64,
    core: u32,
    /// A part of a stream is decoded by itself.
    alone: bool,
    /// The last PSB was come by with nothing left open but calls.
    settled: bool,
    knew: Knew,
}

impl<S: Symbols> Calls<S> {
    /// Keeps everything up to the end.
    pub fn new(symbols: S) -> Self {
        Calls::handing_out(symbols, Kept::default())
    }

    /// Ends the calls that are open with the last known time.
    pub fn finish(&mut self) -> Trace {
        let Totals { functions, edges, .. } = self.end_stream();
        let Kept { mut records, losses } = std::mem::take(&mut self.stack.output);
        records.number();
        Trace { records, functions, edges, losses }
    }
}

impl<S: Symbols, O: Output> Calls<S, O> {
    /// Calls go to `output` when they are over.
    pub fn handing_out(symbols: S, output: O) -> Self {
        Calls {
            symbols,
            stack: Stack::new(output),
            edges: Edges::default(),
            blocks: Blocks::default(),
            cached: CachedBlocks::default(),
            starts: Numbered::new(u64::MAX, 0),
            members: Members::default(),
            extents: Extents::default(),
            plans: Plans::of(0),
            arrival: Arrival::Begin,
            left: None,
            overflowing: false,
            interrupted: Left::default(),
            last: 0,
            end: 0,
            passed: (0, 0),
            tsc: 0,
            core: 0,
            alone: false,
            settled: false,
            knew: Knew::default(),
        }
    }

    /// How often each block ran since this was asked last, and in which function it is.
    pub fn blocks(&mut self) -> Vec<(BlockCount, FunctionKey)> {
        self.gather();
        self.plans.gather_blocks(&mut self.blocks);
        let ran = self.blocks.take();
        let mut placed = Vec::with_capacity(ran.len());
        for block in ran {
            let function = match self.cached.known(block.id) {
                Some(known) => known.function,
                None => {
                    self.stack.epoch = block.epoch;
                    self.look_up(block.start, false).0.function
                }
            };
            placed.push((block, self.stack.functions.key(function)));
        }
        placed
    }

    /// How often each branch went where since this was asked last, in order.
    pub fn take_edges(&mut self) -> Vec<(Edge, u64)> {
        self.gather();
        self.edges.take()
    }

    /// Where a block that ran starts, in the own addresses of its function's space.
    pub fn own_start(&mut self, block: &BlockCount) -> u64 {
        if let Some(&start) = self.starts.get(block.id).filter(|&&start| start != u64::MAX) {
            return start;
        }
        let start = block.start.wrapping_sub(self.symbols.place(block.epoch, block.start).bias);
        if block.id != u32::MAX {
            *self.starts.put(block.id) = start;
        }
        start
    }

    /// Ends the calls that are open with the last known time, and hands them out.
    pub fn end_stream(&mut self) -> Totals {
        self.arrive_at_last();
        self.gather();
        if self.plans.is_full() {
            self.plans.begin(self.plans.generation, &mut self.edges, &mut self.blocks);
        }
        let functions = self.stack.finish();
        (self.arrival, self.overflowing) = (Arrival::Begin, false);
        (self.stack.epoch, self.last, self.end, self.tsc) = (0, 0, 0, 0);
        (self.passed, self.alone, self.settled) = ((0, 0), false, false);
        let calls = functions.iter().map(|function| function.calls).sum();
        Totals { functions, edges: self.edges.take(), calls }
    }

    /// Counts of paths and of blocks that ran by themselves become counts of edges.
    fn gather(&mut self) {
        self.plans.gather(&mut self.edges);
        self.cached.gather(&mut self.blocks, &mut self.edges);
    }

    /// Takes columns that are not needed any more for the next stream or part: memory that was used before need not be given
    /// by the system again.
    pub fn recycle(&mut self, records: Records) {
        if self.stack.is_new() {
            self.stack.gathered.records = records;
            self.stack.gathered.clear(0);
        }
    }

    pub fn output(&mut self) -> &mut O {
        &mut self.stack.output
    }

    /// Bytes of what is kept from stream to stream.
    pub fn memory(&self) -> usize {
        self.cached.memory()
            + self.starts.memory()
            + self.members.memory()
            + self.extents.memory()
            + self.edges.memory()
            + self.blocks.memory()
            + self.plans.memory()
            + self.stack.window.memory()
            + self.stack.gathered.records.memory()
    }
}

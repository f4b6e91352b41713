//! Streams through the code of one memory.

use crate::access::Access;
use crate::code::CodeCache;
use crate::config::Config;
use crate::epochs_ahead::EpochsAhead;
use crate::part::{Ended, Part};
use crate::statistics::Statistics;
use crate::walk::{self, InTurn, InTurns, Turns, Walk};
use crate::{CodeMemory, Sink};

/// Decodes streams that ran through the code of one memory. Blocks are kept from stream to stream.
pub struct Flow<M> {
    memory: M,
    code: CodeCache,
}

impl<M: CodeMemory> Flow<M> {
    pub fn new(memory: M) -> Self {
        Flow { memory, code: CodeCache::new() }
    }

    /// Bytes that the blocks and paths take which are kept from stream to stream.
    pub fn memory(&self) -> usize {
        self.code.memory()
    }

    /// Where the first `count` instructions of the block with the number `id` stand; none of a block that is not kept.
    pub fn instructions(&self, id: u32, count: u32) -> impl Iterator<Item = u64> + '_ {
        let block = self.code.kept(id);
        let lengths = block.map_or(&[][..], |block| self.code.lengths(block));
        lengths.iter().take(count as usize).scan(block.map_or(0, |block| block.start), |next, &length| {
            let address = *next;
            *next = address.wrapping_add(length.into());
            Some(address)
        })
    }

    /// What the first `instructions` of the block with the number `id` (see [`Block::id`](crate::Block::id)) read and
    /// write; nothing of a block that is not kept.
    pub fn accesses(&mut self, epoch: u32, id: u32, instructions: u32) -> &[Access] {
        self.code.accesses(&self.memory, epoch, id, instructions)
    }

    /// Decodes the stream of one thread. `epochs` are pairs of a stream offset and the epoch of the code image from
    /// the packet at that offset on, by offset; epoch 0 before the first.
    ///
    /// Whatever cannot be decoded is told as a loss, and decoding goes on at the next PSB.
    pub fn decode<S: Sink>(
        &mut self,
        data: &[u8],
        config: &Config,
        epochs: &[(usize, u32)],
        sink: &mut S,
    ) -> Statistics {
        self.decode_part(data, config, epochs, &Part::default(), sink).statistics
    }

    /// The same of a stream in which packets are missing in front of some offsets, which are in order: the flow ends there. Epochs
    /// are found as the flow comes to them. One that is named again changes nothing: none is
    /// asked for behind an offset before the flow is there.
    pub fn decode_as_found<S: Sink>(
        &mut self,
        data: &[u8],
        config: &Config,
        missing: &[usize],
        epochs: &mut dyn Iterator<Item = (usize, u32)>,
        sink: &mut S,
    ) -> Statistics {
        self.walk(data, config, epochs, &Part { missing, ..Part::default() }, sink).statistics
    }

    /// Decodes a part of the stream, from one PSB up to another.
    pub fn decode_part<S: Sink>(
        &mut self,
        data: &[u8],
        config: &Config,
        epochs: &[(usize, u32)],
        part: &Part<'_>,
        sink: &mut S,
    ) -> Ended {
        self.walk(data, config, &mut epochs.iter().copied(), part, sink)
    }

    /// Decodes streams by turns, each up to where it begins another epoch.
    pub fn decode_in_turns<S: InTurns>(
        &mut self,
        config: &Config,
        streams: Vec<InTurn<'_, S>>,
        common: &mut S::Common,
        turns: &mut impl Turns,
    ) -> Vec<Statistics> {
        walk::decode_in_turns(&self.memory, &mut self.code, config, streams, common, turns)
    }

    fn walk<S: Sink>(
        &mut self,
        data: &[u8],
        config: &Config,
        epochs: &mut dyn Iterator<Item = (usize, u32)>,
        part: &Part<'_>,
        sink: &mut S,
    ) -> Ended {
        let epochs = EpochsAhead::new(epochs);
        Walk::new(&self.memory, &mut self.code, data, config, epochs, part, sink).part(&part.clock)
    }
}

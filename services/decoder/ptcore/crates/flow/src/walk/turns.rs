//! Several streams by one flow, each for a while.

use super::Walk;
use crate::code::CodeCache;
use crate::code_block::{unknown, CodeBlock};
use crate::epochs_ahead::EpochsAhead;
use crate::part::Part;
use crate::statistics::Statistics;
use crate::{CodeMemory, Config, Sink};
use std::mem::swap;

/// The sink of one of several streams, which have something in common.
pub trait InTurns: Sink {
    type Common;

    /// Takes what is common, or gives it back.
    fn exchange(&mut self, common: &mut Self::Common);

    /// The stream begins in this epoch.
    fn begins(&mut self, epoch: u32);

    /// The stream begins an epoch, in front of which it may stand for a while.
    fn pauses(&mut self);

    /// The stream is over.
    fn over(&mut self);
}

/// Which of several streams goes on.
pub trait Turns {
    /// The stream of this number stands in front of what runs in the epoch. `tsc`: the last known time there, 0 before it begins.
    fn stands(&mut self, number: usize, epoch: u32, tsc: u64);

    /// The stream is over.
    fn over(&mut self, number: usize);

    /// Which one goes on; `None` where none is left.
    fn next(&mut self) -> Option<usize>;
}

/// One of several streams. `epochs`: as [`Flow::decode_as_found`](crate::Flow::decode_as_found) wants them.
pub struct InTurn<'s, S> {
    pub data: &'s [u8],
    /// Offsets in front of which packets are missing, in order.
    pub missing: &'s [usize],
    pub epochs: &'s mut dyn Iterator<Item = (usize, u32)>,
    pub sink: &'s mut S,
}

/// A walk while others go on, which keep the block that is not kept where it keeps its own.
struct Paused<'w, 'd, M, S> {
    walk: Walk<'w, 'd, M, S>,
    scratch: (CodeBlock, u8),
}

/// Goes on with the streams by turns, each up to where it begins another epoch.
pub fn decode_in_turns<M: CodeMemory, S: InTurns>(
    memory: &M,
    code: &mut CodeCache,
    config: &Config,
    streams: Vec<InTurn<'_, S>>,
    common: &mut S::Common,
    turns: &mut impl Turns,
) -> Vec<Statistics> {
    let mut codes: Vec<_> = streams.iter().map(|_| CodeCache::default()).collect();
    let mut ended = vec![Statistics::default(); streams.len()];
    let mut paused = Vec::new();
    for (number, (InTurn { data, missing, epochs, sink }, code)) in streams.into_iter().zip(&mut codes).enumerate() {
        let part = Part { missing, ..Part::default() };
        let mut walk = Walk::new(memory, code, data, config, EpochsAhead::new(epochs), &part, sink);
        walk.in_turns = true;
        // Number 0 may be that of another stream.
        if let Some((_, epoch)) = walk.epochs.first() {
            walk.epoch = epoch;
            walk.view = walk.view.of_epoch(memory.same_code(epoch));
            walk.sink.begins(epoch);
        }
        turns.stands(number, walk.epoch, 0);
        paused.push(Paused { walk, scratch: (unknown(0), 0) });
    }
    while let Some(number) = turns.next() {
        let Paused { walk, scratch } = &mut paused[number];
        swap(walk.code, code);
        walk.sink.exchange(common);
        walk.code.put_scratch(*scratch);
        walk.sink.paths(walk.code.paths.generation);
        walk.stream();
        if walk.pauses {
            *scratch = walk.code.scratch();
            walk.sink.pauses();
            turns.stands(number, walk.epoch, walk.events.time.now());
        } else {
            walk.sink.over();
            ended[number] = walk.ended().statistics;
            turns.over(number);
        }
        walk.sink.exchange(common);
        swap(walk.code, code);
    }
    ended
}

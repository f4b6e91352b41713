//! Several streams by one flow, each for a while.

use super::Walk;
use crate::code::CodeCache;
use crate::code_block::{unknown, CodeBlock};
use crate::epochs_ahead::EpochsAhead;
use crate::part::Part;
use crate::statistics::Statistics;
use crate::{CodeMemory, Config, Sink};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem::swap;

/// The sink of one of several streams, which have something in common.
pub trait InTurns: Sink {
    type Common;

    /// Takes what is common, or gives it back.
    fn exchange(&mut self, common: &mut Self::Common);

    /// The stream is over.
    fn over(&mut self) {}
}

/// One of several streams. `epochs`: as [`Flow::decode_as_found`](crate::Flow::decode_as_found) wants them.
pub struct InTurn<'s, S> {
    pub data: &'s [u8],
    pub epochs: &'s mut dyn Iterator<Item = (usize, u32)>,
    pub sink: &'s mut S,
}

/// A walk while others go on, which keep the block that is not kept where it keeps its own.
struct Paused<'w, 'd, M, S> {
    walk: Walk<'w, 'd, M, S>,
    data: &'d [u8],
    scratch: (CodeBlock, u8),
}

/// Goes on with the streams by turns: whichever stands in front of the epoch that comes first by `order` goes on up to where
/// it begins another one. `over` is told the numbers of those that end.
pub fn decode_in_turns<M: CodeMemory, S: InTurns>(
    memory: &M,
    code: &mut CodeCache,
    config: &Config,
    streams: Vec<InTurn<'_, S>>,
    common: &mut S::Common,
    order: impl Fn(u32) -> u64,
    mut over: impl FnMut(usize),
) -> Vec<Statistics> {
    let part = Part::default();
    let mut codes: Vec<_> = streams.iter().map(|_| CodeCache::default()).collect();
    let mut ended = vec![Statistics::default(); streams.len()];
    let (mut paused, mut next) = (Vec::new(), BinaryHeap::new());
    for (number, (InTurn { data, epochs, sink }, code)) in streams.into_iter().zip(&mut codes).enumerate() {
        let mut walk = Walk::new(memory, code, data, config, EpochsAhead::new(epochs), &part, sink);
        walk.in_turns = true;
        next.push(Reverse((walk.epochs.first().map_or(0, |(_, epoch)| order(epoch)), number)));
        paused.push(Paused { walk, data, scratch: (unknown(0), 0) });
    }
    while let Some(Reverse((_, number))) = next.pop() {
        let Paused { walk, data, scratch } = &mut paused[number];
        swap(walk.code, code);
        walk.sink.exchange(common);
        walk.code.put_scratch(*scratch);
        walk.sink.paths(walk.code.paths.generation);
        walk.stream(data);
        if walk.pauses {
            *scratch = walk.code.scratch();
            next.push(Reverse((order(walk.epoch), number)));
        } else {
            walk.sink.over();
            ended[number] = walk.ended().statistics;
            over(number);
        }
        walk.sink.exchange(common);
        swap(walk.code, code);
    }
    ended
}

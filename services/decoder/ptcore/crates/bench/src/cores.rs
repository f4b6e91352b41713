//! The same stream as that of one core, and of two.

use crate::input::Input;
use crate::Taken;
use pt_calls::Calls;
use pt_capture::{decode_side_by_side, CoreStream, Memory, Stays, Switch, Threads, Travelled, View, Views};
use pt_flow::{Flow, Statistics, Travels};
use pt_image::Image;
use pt_packet::{Packet, Reader};

/// Bytes of the packets of a thread before another one has its turn on the core.
const TURN_BYTES: usize = 1 << 16;

/// The same as the stream of a core: every turn is looked up as another view, of which all have the same code. Who has them is
/// one thread, so that its calls are whole.
pub struct Core<'a> {
    input: &'a Input,
    images: [&'a Image; 1],
    views: Views,
    turns: Vec<(usize, u32)>,
}

impl<'a> Core<'a> {
    pub fn new(input: &'a Input) -> Self {
        let mut views = Views::default();
        let mut turns = Vec::new();
        // Its own epochs come first.
        let mut epochs = input.epochs.iter().peekable();
        let mut view = View { pid: 0, tid: 1, image: 0, epoch: 0, kernel: 0, stay: 0 };
        for (turn, offset) in (0..).zip((0..input.stream.len()).step_by(TURN_BYTES)) {
            view.kernel = turn;
            turns.push((offset, views.number(view)));
            while let Some(&(at, epoch)) = epochs.next_if(|&&(at, _)| at < offset + TURN_BYTES) {
                view.epoch = epoch;
                turns.push((at, views.number(view)));
            }
        }
        Core { input, images: [&input.image], views, turns }
    }

    pub fn memory(&self) -> Memory<'_, &'a Image> {
        Memory::of(&self.images, &self.views, None)
    }

    pub fn decode<'c>(&'c self, flow: &mut Flow<Memory<'c, &'a Image>>) -> (Statistics, u64) {
        let memory = self.memory();
        let mut threads = Threads::new(&self.views, |_| Calls::handing_out(memory, Taken::new(true)));
        let statistics = flow.decode(&self.input.stream, &self.input.config, &self.turns, &mut threads);
        (statistics, threads.finish().into_values().map(|mut calls| calls.end_stream().calls).sum())
    }
}

/// The same as the streams of two cores. Two threads run it; where tracing begins again, once a turn is over, each goes on on the other
/// core.
pub struct Cores<'a> {
    input: &'a Input,
    images: [&'a Image; 1],
    views: Views,
    streams: [CoreStream<'a, Vec<(usize, u32)>>; 2],
    stays: Stays,
}

impl<'a> Cores<'a> {
    pub fn new(input: &'a Input) -> Self {
        let (mut moves, mut next) = (Vec::new(), TURN_BYTES);
        let mut reader = Reader::new(&input.stream);
        let mut offset = 0;
        while let Ok(Some(packet)) = reader.read() {
            if matches!(packet, Packet::TipPge(_)) && offset >= next {
                moves.push(offset);
                next = offset + TURN_BYTES;
            }
            offset = reader.offset();
        }
        let stay_at = |offset: usize| moves.partition_point(|&at| at <= offset) as u32;
        let mut begins: Vec<_> =
            input.epochs.iter().map(|&(at, _)| at).chain(moves.iter().copied()).chain([0]).collect();
        begins.sort_unstable();
        begins.dedup();
        let mut views = Views::default();
        let streams = [0, 1].map(|core| {
            let view = |&offset: &usize| {
                let known = input.epochs.partition_point(|&(at, _)| at <= offset);
                let epoch = known.checked_sub(1).map_or(0, |known| input.epochs[known].1);
                let stay = stay_at(offset);
                let view = View { pid: 1, tid: 1 + (core + stay) % 2, image: 0, epoch, kernel: 0, stay };
                (offset, views.number(view))
            };
            let epochs = begins.iter().map(view).collect();
            CoreStream { core, data: &input.stream, missing: &[], epochs, is_whole: true }
        });
        let stays = (0..=moves.len() as u32).flat_map(|stay| [(0, stay), (1, stay)]).map(|(core, stay)| {
            (core, Switch { tsc: u64::from(stay) + 1, pid: 1, tid: 1 + (core + stay) % 2, enters: true })
        });
        let stays = Stays::of(stays);
        Cores { input, images: [&input.image], views, streams, stays }
    }

    pub fn flow(&self) -> Flow<Memory<'_, &'a Image>> {
        Flow::new(self.memory())
    }

    fn memory(&self) -> Memory<'_, &'a Image> {
        Memory::of(&self.images, &self.views, None)
    }

    /// How many calls there are.
    pub fn decode<'c>(&'c self, flows: &mut [Flow<Memory<'c, &'a Image>>]) -> u64 {
        let memory = self.memory();
        let make = |_: &View, _| Calls::handing_out(memory, Taken::new(true));
        let threads = decode_side_by_side(flows, &self.input.config, &self.streams, &self.views, &self.stays, make);
        let mut calls = 0;
        for Travelled { mut sink, learned } in threads.into_values() {
            for (_, mut learned) in learned {
                sink.exchange(&mut learned);
                sink.take_edges();
                sink.exchange(&mut learned);
            }
            calls += sink.end_stream().calls;
        }
        calls
    }
}

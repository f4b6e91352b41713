//! Streams of a capture through a flow.

use crate::attribute::AHEAD;
use crate::by_stay::ByStay;
use crate::by_time;
use crate::{Capture, Memory, Of, Stays, Stream, ThreadSinks, Threads, View};
use pt_flow::{CodeMemory, Config, Flow, InTurn, Sink};
use std::collections::BTreeSet;

/// Linux has no more (arch/x86/Kconfig, NR_CPUS); each takes some kilobytes.
const MOST_CORES: usize = 1 << 13;

/// The views of a stream as the flow comes to them.
struct Views<'c> {
    stream: &'c Stream,
    told: usize,
    found: Option<by_time::Views<'c>>,
    /// Of a stream that is cut off: the last one that was named, and the next one.
    last: (usize, u32),
    next: Option<(usize, u32)>,
    stop: fn() -> !,
}

impl<'c> Views<'c> {
    fn new(stream: &'c Stream, config: &Config, stop: fn() -> !) -> Self {
        let found = stream.by_time.as_ref().map(|by_time| by_time.views(&stream.data, config));
        Views { stream, told: 0, found, last: (0, 0), next: None, stop }
    }

    fn following(&mut self) -> Option<(usize, u32)> {
        let Some(found) = &mut self.found else {
            self.told += 1;
            return self.stream.epochs.get(self.told - 1).copied();
        };
        let next = found.next();
        // Where a turn is depends on what stands behind it.
        if self.stream.cut_from.is_some() && found.read_to() >= self.stream.data.len() / 4 * 3 {
            (self.stop)();
        }
        next
    }

    /// Names what still holds now and then, and stops whoever asks where the stream is not certain any more.
    fn certain(&mut self) -> (usize, u32) {
        self.next = self.next.or_else(|| self.following());
        let until = self.last.0.saturating_add(AHEAD);
        self.last = self.next.take_if(|&mut (at, _)| at <= until).unwrap_or((until, self.last.1));
        if self.last.0 > self.stream.certain() {
            (self.stop)();
        }
        self.last
    }

    /// The stream was decoded to its end. What is to be told of where its threads change.
    fn end(&self) -> Vec<String> {
        if self.stream.cut_from.is_some() {
            (self.stop)();
        }
        self.found.as_ref().map_or_else(Vec::new, |found| found.warnings(&self.stream.name))
    }
}

impl Iterator for Views<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        match self.stream.cut_from {
            Some(_) => Some(self.certain()),
            None => self.following(),
        }
    }
}

/// The stream of one of several cores, of which no packets are missing where it is whole.
pub struct CoreStream<'d, E> {
    pub core: u32,
    pub data: &'d [u8],
    /// Offsets in front of which packets are missing, in order.
    pub missing: &'d [usize],
    /// As [`Flow::decode_as_found`] wants them; they are numbers of views.
    pub epochs: E,
    pub is_whole: bool,
}

/// Decodes the streams of cores: what a thread ran is told in its order where `stays` tell which cores it was on. A thread has one
/// sink for all of them; `make` makes it and is told the core where it first ran. `over` is told the places of those that end.
pub fn decode_cores<'v, M, S, F, E>(
    flow: &mut Flow<M>,
    config: &Config,
    cores: Vec<CoreStream<'_, &mut E>>,
    views: &'v [View],
    stays: Option<&'v Stays>,
    make: F,
    over: impl FnMut(usize),
) -> ThreadSinks<'v, S, F>
where
    M: CodeMemory,
    S: Sink,
    F: FnMut(&View, u32) -> S,
    E: Iterator<Item = (usize, u32)>,
{
    let whole = cores.iter().filter(|one| one.is_whole).map(|one| one.core).collect();
    let mut sinks = match stays {
        Some(stays) => ThreadSinks::of_cores(stays, whole, make),
        None => ThreadSinks::of_one_stream(make),
    };
    let mut threads: Vec<_> =
        cores.iter().map(|one| Threads::on_core(views, one.core).switching_at(config.thread_switch)).collect();
    let streams = cores.into_iter().zip(&mut threads);
    let streams =
        streams.map(|(one, sink)| InTurn { data: one.data, missing: one.missing, epochs: one.epochs, sink }).collect();
    flow.decode_in_turns(config, streams, &mut sinks, &mut ByStay::new(views, stays, over));
    sinks
}

impl Capture {
    /// Decodes a stream, or as much of the beginning of one as is certain: then it ends by `stop`. What is to be told of
    /// where its threads change, if that was not told before.
    pub fn decode<S: Sink>(
        &self,
        number: usize,
        flow: &mut Flow<Memory<'_>>,
        sink: &mut S,
        stop: fn() -> !,
    ) -> Vec<String> {
        let stream = &self.streams[number];
        let mut views = Views::new(stream, &self.config, stop);
        flow.decode_as_found(&stream.data, &self.config, &stream.lost, &mut views, sink);
        views.end()
    }

    /// The same with the streams of cores: what a thread ran is told in its order, whichever cores it was on. A thread has one
    /// sink for all of them; `make` makes it and is told the core where it first ran.
    pub fn decode_cores<'c, S: Sink, F: FnMut(&View, u32) -> S>(
        &'c self,
        numbers: &[usize],
        flow: &mut Flow<Memory<'_>>,
        make: F,
        stop: fn() -> !,
    ) -> (ThreadSinks<'c, S, F>, Vec<String>) {
        let streams: Vec<_> = numbers.iter().map(|&number| &self.streams[number]).collect();
        let mut views: Vec<_> = streams.iter().map(|stream| Views::new(stream, &self.config, stop)).collect();
        let core = |(epochs, &number)| {
            let stream: &Stream = &self.streams[number];
            let is_whole = stream.lost.is_empty() && !stream.data.is_empty();
            CoreStream { core: self.core(number), data: &stream.data, missing: &stream.lost, epochs, is_whole }
        };
        let cores = views.iter_mut().zip(numbers).map(core).collect();
        let over = |place: usize| {
            // What the rest of it tells is missing from now on.
            if streams[place].cut_from.is_some() {
                stop();
            }
        };
        let sinks = decode_cores(flow, &self.config, cores, &self.views, self.stays.as_ref(), make, over);
        (sinks, views.iter().flat_map(Views::end).collect())
    }

    /// The streams of these numbers in groups: each by itself, but for cores, which tell of threads together where it is known
    /// which of them a thread was on.
    pub fn groups(&self, numbers: &[usize]) -> Vec<Vec<usize>> {
        let (cores, alone): (Vec<_>, Vec<_>) =
            numbers.iter().partition(|&&number| matches!(self.streams[number].of, Of::Core(_)));
        let distinct: BTreeSet<_> = cores.iter().map(|&number| self.core(number)).collect();
        if self.stays.is_none() || distinct.len() < cores.len() || !(1..=MOST_CORES).contains(&cores.len()) {
            return numbers.iter().map(|&number| vec![number]).collect();
        }
        std::iter::once(cores).chain(alone.into_iter().map(|number| vec![number])).collect()
    }

    fn core(&self, number: usize) -> u32 {
        match self.streams[number].of {
            Of::Core(core) => core,
            Of::Thread { .. } => 0,
        }
    }
}

//! One stream by several threads: it is divided at PSBs, which say all that the flow behind them needs.

use crate::flow::Flow;
use crate::part::{Clock, Ended, Part, Stopped};
use crate::places::{places, places_to_join, Workers};
use crate::shared_work::share;
use crate::statistics::Statistics;
use crate::{CodeMemory, Config, Sink};
use pt_packet::find_psb;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What [`Flow::decode`] wants to know of a stream.
#[derive(Clone, Copy)]
pub struct Stream<'s> {
    pub data: &'s [u8],
    pub config: &'s Config,
    pub epochs: &'s [(usize, u32)],
    /// As a [`Part`] has them.
    pub missing: &'s [usize],
}

/// Packets in front of a part that are read for the time alone: some PSBs.
const WARM_UP: usize = 1 << 14;

/// Decodes a stream with one sink for each thread. What `take` makes of the flow and the sink behind a part goes to `fold`,
/// in the order of the stream and as if the parts had been decoded one behind the other: a part that does not begin where
/// the flow of those before it led, or at another time, is done once more or left out. A sink that looks at times has to be
/// told of PSBs ([`Sink::DIVIDED`]): else no part fits.
pub fn decode_in_parts<'m, M, S, R>(
    memory: &'m M,
    stream: Stream<'_>,
    workers: Workers,
    make: impl Fn() -> S + Sync,
    take: impl Fn(&mut Flow<&'m M>, &mut S) -> R + Sync,
    fold: impl FnMut(R) + Send,
) -> Statistics
where
    M: CodeMemory + Sync,
    S: Sink,
    R: Send,
{
    let from = if S::TIMED {
        places_to_join(stream.data, stream.config, workers)
    } else {
        places(stream.data, workers, &[], |_| true)
    };
    let decode = |flow: &mut Flow<&'m M>, sink: &mut S, part: &Part<'_>| {
        let ended = flow.decode_part(stream.data, stream.config, stream.epochs, part, sink);
        (ended, take(flow, sink))
    };
    let next = AtomicUsize::new(0);
    let joined = Mutex::new(Joined::new(&from, stream.missing, S::TIMED, fold));
    let work = || {
        let (mut flow, mut sink) = (Flow::new(memory), make());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= from.len() {
                return;
            }
            let part = match number {
                0 => Part { stops: &from[1..], missing: stream.missing, ..Part::default() },
                _ if S::TIMED => part_by_itself(&stream, &from, number),
                _ => Part { clock: Clock::New, ..part_by_itself(&stream, &from, number) },
            };
            let done = decode(&mut flow, &mut sink, &part);
            // Another thread has panicked.
            let Ok(mut joined) = joined.lock() else { return };
            joined.add(number, done, |part| decode(&mut flow, &mut sink, part));
        }
    };
    share(0..workers.threads.clamp(1, from.len()), |_| work());
    joined.into_inner().unwrap_or_else(PoisonError::into_inner).statistics
}

/// A part as it is decoded without those before it, but for the packets that tell its time. `from`: where parts begin.
pub fn part_by_itself<'f>(stream: &Stream<'f>, from: &'f [usize], number: usize) -> Part<'f> {
    let before = find_psb(stream.data, from[number].saturating_sub(WARM_UP)).filter(|&psb| psb < from[number]);
    let clock = before.map_or(Clock::New, Clock::From);
    Part { from: from[number], joins: true, stops: &from[number + 1..], missing: stream.missing, clock }
}

/// Parts in the order of the stream.
struct Joined<'c, R, F> {
    from: &'c [usize],
    missing: &'c [usize],
    /// Times have to fit as well.
    timed: bool,
    fold: F,
    /// Done, but not those before them.
    ahead: BTreeMap<usize, (Ended, R)>,
    /// The next one that counts, and how the one before ended.
    next: usize,
    before: Option<Stopped>,
    statistics: Statistics,
}

impl<'c, R, F: FnMut(R)> Joined<'c, R, F> {
    fn new(from: &'c [usize], missing: &'c [usize], timed: bool, fold: F) -> Self {
        let (ahead, statistics) = (BTreeMap::new(), Statistics::default());
        Joined { from, missing, timed, fold, ahead, next: 0, before: None, statistics }
    }

    fn add(&mut self, number: usize, done: (Ended, R), mut again: impl FnMut(&Part<'_>) -> (Ended, R)) {
        self.ahead.insert(number, done);
        self.ahead.retain(|&number, _| number >= self.next);
        while let Some((mut ended, mut found)) = self.ahead.remove(&self.next) {
            if let Some(before) = self.before.take() {
                if !self.leads_to(&before, &mut ended) {
                    let stops = &self.from[self.next + 1..];
                    let (missing, clock) = (self.missing, Clock::Known(before.before));
                    let part = Part { from: self.from[self.next], joins: before.fits, stops, missing, clock };
                    (ended, found) = again(&part);
                }
            }
            self.statistics += ended.statistics;
            (self.fold)(found);
            let Some(stopped) = ended.stopped else {
                self.next = usize::MAX;
                return;
            };
            self.next = self.from.partition_point(|&from| from < stopped.psb);
            self.before = Some(stopped);
            self.ahead.retain(|&number, _| number >= self.next);
        }
    }

    /// Whether the part that was decoded by itself is what comes behind the one before.
    fn leads_to(&self, before: &Stopped, ended: &mut Ended) -> bool {
        if !self.timed {
            return true;
        }
        let Some(joined) = ended.joined.take() else { return false };
        if !before.fits || !before.behind.leads_to(&joined, &ended.time) {
            return false;
        }
        if let Some(stopped) = &mut ended.stopped {
            stopped.before.go_on_from(&before.behind, &joined);
            stopped.behind.go_on_from(&before.behind, &joined);
        }
        true
    }
}

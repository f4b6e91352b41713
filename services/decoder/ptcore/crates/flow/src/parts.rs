//! One stream by several threads: it is divided at PSBs, which say all that the flow behind them needs.

use crate::flow::Flow;
use crate::part::{Ended, Part};
use crate::statistics::Statistics;
use crate::{CodeMemory, Config, Sink};
use pt_packet::{find_psb, Packet, Reader, PSB};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What [`Flow::decode`] wants to know of a stream.
#[derive(Clone, Copy)]
pub struct Stream<'s> {
    pub data: &'s [u8],
    pub config: &'s Config,
    pub epochs: &'s [(usize, u32)],
}

/// How many threads decode parts of about so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    pub threads: usize,
    pub part_bytes: usize,
}

/// Decodes a stream with one sink for each thread. What `take` makes of the sink behind a part goes to `fold`, in the order
/// of the stream and as if the parts had been decoded one behind the other: a part that does not begin where the flow of
/// those before it led is done once more or left out.
pub fn decode_in_parts<M, S, R>(
    memory: &M,
    stream: Stream<'_>,
    workers: Workers,
    make: impl Fn() -> S + Sync,
    take: impl Fn(&mut S) -> R + Sync,
    fold: impl FnMut(R) + Send,
) -> Statistics
where
    M: CodeMemory + Sync,
    S: Sink,
    R: Send,
{
    let from = cuts(stream.data, workers.part_bytes.max(1));
    let decode = |flow: &mut Flow<&M>, sink: &mut S, number: usize, joins: bool| {
        let part = Part { from: from[number], joins, stops: &from[number + 1..], ..Part::default() };
        let ended = flow.decode_part(stream.data, stream.config, stream.epochs, &part, sink);
        (ended, take(sink))
    };
    let next = AtomicUsize::new(0);
    let joined = Mutex::new(Joined::new(&from, fold));
    thread::scope(|scope| {
        for _ in 0..workers.threads.clamp(1, from.len()) {
            scope.spawn(|| {
                let (mut flow, mut sink) = (Flow::new(memory), make());
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= from.len() {
                        return;
                    }
                    let done = decode(&mut flow, &mut sink, number, number != 0);
                    let mut joined = joined.lock().unwrap_or_else(PoisonError::into_inner);
                    joined.add(number, done, |number| decode(&mut flow, &mut sink, number, false));
                }
            });
        }
    });
    joined.into_inner().unwrap_or_else(PoisonError::into_inner).statistics
}

/// Parts in the order of the stream.
struct Joined<'c, R, F> {
    from: &'c [usize],
    fold: F,
    /// Done, but not those before them.
    ahead: BTreeMap<usize, (Ended, R)>,
    /// The next one that counts; whether the flow of the one before leads there.
    next: usize,
    fits: bool,
    statistics: Statistics,
}

impl<'c, R, F: FnMut(R)> Joined<'c, R, F> {
    fn new(from: &'c [usize], fold: F) -> Self {
        Joined { from, fold, ahead: BTreeMap::new(), next: 0, fits: true, statistics: Statistics::default() }
    }

    fn add(&mut self, number: usize, done: (Ended, R), mut again: impl FnMut(usize) -> (Ended, R)) {
        self.ahead.insert(number, done);
        self.ahead.retain(|&number, _| number >= self.next);
        while let Some((mut ended, mut found)) = self.ahead.remove(&self.next) {
            if ended.astray && !self.fits {
                (ended, found) = again(self.next);
            }
            self.statistics += ended.statistics;
            (self.fold)(found);
            let Some(stopped) = ended.stopped else {
                self.next = usize::MAX;
                return;
            };
            self.fits = stopped.fits;
            self.next = self.from.partition_point(|&from| from < stopped.psb);
            self.ahead.retain(|&number, _| number >= self.next);
        }
    }
}

/// Where to divide a stream so that parts can be put together which were decoded without a look at those before: 0, and PSBs
/// at least `size` bytes from each other that say where execution is and in which mode.
pub fn places_to_join(data: &[u8], config: &Config, size: usize) -> Vec<usize> {
    let mut places = vec![0];
    let mut at = size;
    while let Some(psb) = find_psb(data, at) {
        let joins = says_all(data, config, psb);
        places.extend(joins.then_some(psb));
        at = psb.saturating_add(if joins { size } else { PSB.len() });
    }
    places
}

/// Whether the PSB+ has an address and a mode.
fn says_all(data: &[u8], config: &Config, psb: usize) -> bool {
    let mut reader = Reader::with_errata(data, config.errata);
    reader.seek(psb + PSB.len());
    let (mut address, mut mode) = (false, false);
    while let Ok(Some(packet)) = reader.read() {
        match packet {
            Packet::Fup(_) => address = true,
            Packet::ModeExec { .. } => mode = true,
            Packet::Psbend => return address && mode,
            Packet::Psb | Packet::Ovf => return false,
            _ => {}
        }
    }
    false
}

/// 0 and the first PSB behind each multiple of `size`.
fn cuts(data: &[u8], size: usize) -> Vec<usize> {
    let mut cuts = vec![0];
    let mut at = size;
    while let Some(psb) = find_psb(data, at) {
        cuts.push(psb);
        at = psb.saturating_add(size);
    }
    cuts
}

//! The calls of one stream by several threads.
//!
//! Each thread follows parts of the stream by themselves; what they find is put together in the order of the stream. A part
//! that does not fit to the calls that are open in front of it is decoded once more, by whoever puts the parts together. So
//! the result is that of one thread.

use crate::calls::Calls;
use crate::fragment::{Collected, Fragment};
use crate::output::Output;
use crate::records::Records;
use pt_flow::{part_by_itself, places_to_join, Clock, CodeMemory, Ended, Flow, Part, Statistics, Stopped, Stream};
use pt_image::Symbols;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Parts of so many bytes are long for what is done once a part, and short enough for their calls to be kept until it is
/// their turn.
pub const PART_BYTES: usize = 1 << 19;
/// Parts for each thread that may be done before one that comes before them.
const AHEAD: usize = 2;
/// When so many parts in a row did not fit, those behind them are left to be decoded in their turn, which costs once what
/// was in vain costs three times; but each of so many is tried, since other code may run by then.
const MISFITS: usize = 4;
const TRIED: usize = 16;

/// One of several threads, with what it keeps from stream to stream.
pub struct Helper<M, S> {
    pub flow: Flow<M>,
    pub calls: Calls<S, Collected>,
    /// The number of the last part, and those that do not count.
    last: Option<usize>,
    surplus: Vec<usize>,
}

impl<M: CodeMemory, S: Symbols> Helper<M, S> {
    pub fn new(memory: M, symbols: S) -> Self {
        Helper { flow: Flow::new(memory), calls: Calls::of_parts(symbols), last: None, surplus: Vec::new() }
    }
}

/// A stream that several threads decoded.
#[derive(Clone, Copy, Debug)]
pub struct Divided {
    pub statistics: Statistics,
    /// Parts that were taken over, and those that were decoded once more. The others were left to their turn.
    pub parts: usize,
    pub again: usize,
}

/// Decodes a stream of which the calls go to `calls`; `helpers` say by how many threads, in parts of about so many bytes.
/// Edges and blocks are counted by `calls` and the helpers together.
pub fn decode_calls_in_parts<M, S, O>(
    flow: &mut Flow<M>,
    calls: &mut Calls<S, O>,
    helpers: &mut [Helper<M, S>],
    stream: Stream<'_>,
    part_bytes: usize,
) -> Divided
where
    M: CodeMemory + Send + Sync,
    S: Symbols + Send,
    O: Output + Send,
{
    let from = places_to_join(stream.data, stream.config, part_bytes.max(1));
    let whole = Whole {
        flow,
        calls,
        stream,
        from: &from,
        ahead: BTreeMap::new(),
        next: 0,
        taken: 0,
        before: None,
        statistics: Statistics::default(),
        parts: 0,
        again: 0,
        misfits: 0,
        surplus: Vec::new(),
        spare: Vec::new(),
        abandoned: false,
    };
    let work = Work { whole: Mutex::new(whole), moved: Condvar::new(), threads: helpers.len() };
    thread::scope(|scope| {
        let spawn = |(number, helper)| {
            let work = &work;
            scope.spawn(move || work.run(number, helper))
        };
        let threads: Vec<_> = helpers.iter_mut().enumerate().map(spawn).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        if let Some(Err(panicked)) = ended.into_iter().find(Result::is_err) {
            resume_unwind(panicked);
        }
    });
    let whole = work.whole.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Whole { statistics, parts, again, surplus, .. } = whole;
    for (helper, number) in surplus {
        helpers[helper].surplus.push(number);
    }
    thread::scope(|scope| {
        for helper in helpers.iter_mut().filter(|helper| !helper.surplus.is_empty()) {
            scope.spawn(|| helper.uncount(stream, &from));
        }
    });
    Divided { statistics, parts, again }
}

struct Work<'w, M, S, O> {
    whole: Mutex<Whole<'w, M, S, O>>,
    /// Parts were put together.
    moved: Condvar,
    threads: usize,
}

/// The stream up to where it is known, and parts behind that.
struct Whole<'w, M, S, O> {
    flow: &'w mut Flow<M>,
    calls: &'w mut Calls<S, O>,
    stream: Stream<'w>,
    from: &'w [usize],
    /// Done, but not those before them.
    ahead: BTreeMap<usize, Option<Done>>,
    /// The next one that counts, and the next one that nobody has begun.
    next: usize,
    taken: usize,
    /// How the last one ended.
    before: Option<Stopped>,
    statistics: Statistics,
    parts: usize,
    again: usize,
    /// Parts that did not fit since one did.
    misfits: usize,
    /// Helpers, and parts of which their counts do not count.
    surplus: Vec<(usize, usize)>,
    /// Columns without rows, for parts to come.
    spare: Vec<Records>,
    /// A thread ended before its time.
    abandoned: bool,
}

/// A part that was decoded by itself.
struct Done {
    helper: usize,
    ended: Ended,
    fragment: Option<Fragment>,
}

/// Wakes those who wait for a thread that panics.
struct Abandons<'w, 'a, M, S, O>(&'w Work<'a, M, S, O>);

impl<M, S, O> Drop for Abandons<'_, '_, M, S, O> {
    fn drop(&mut self) {
        if thread::panicking() {
            if let Ok(mut whole) = self.0.whole.lock() {
                whole.abandoned = true;
            }
            self.0.moved.notify_all();
        }
    }
}

impl<'w, M, S, O> Work<'w, M, S, O>
where
    M: CodeMemory,
    S: Symbols,
    O: Output,
{
    fn run(&self, number: usize, helper: &mut Helper<M, S>) {
        let _guard = Abandons(self);
        helper.last = None;
        helper.surplus.clear();
        while let Some((part, tried, stream, from)) = self.take(helper) {
            let done = tried.then(|| {
                let (ended, fragment) = helper.decode(stream, from, part);
                Done { helper: number, ended, fragment }
            });
            let Ok(mut whole) = self.whole.lock() else { return };
            whole.add(part, done);
            self.moved.notify_all();
        }
    }

    /// The next part, and whether it is tried by itself. `None` when there is none, or another thread has panicked.
    fn take(&self, helper: &mut Helper<M, S>) -> Option<(usize, bool, Stream<'w>, &'w [usize])> {
        let most = AHEAD * self.threads;
        let waits = |whole: &mut Whole<'w, M, S, O>| !whole.abandoned && whole.taken > whole.next.saturating_add(most);
        let mut whole = self.moved.wait_while(self.whole.lock().ok()?, waits).ok()?;
        // Parts that are passed over already need not be begun.
        let part = whole.taken.max(whole.next);
        if whole.abandoned || part >= whole.from.len() {
            return None;
        }
        whole.taken = part + 1;
        let tried = part != 0 && (whole.misfits < MISFITS || part % TRIED == 0);
        if tried {
            helper.calls.begin_part(whole.calls.news(), helper.last.is_none_or(|last| last < whole.next));
            helper.last = Some(part);
            helper.calls.recycle(whole.spare.pop().unwrap_or_default());
        }
        Some((part, tried, whole.stream, whole.from))
    }
}

impl<M: CodeMemory, S: Symbols, O: Output> Whole<'_, M, S, O> {
    /// A part is done, or left to do here.
    fn add(&mut self, number: usize, done: Option<Done>) {
        self.ahead.insert(number, done);
        loop {
            while let Some(passed) = self.ahead.first_entry().filter(|first| *first.key() < self.next) {
                let number = *passed.key();
                self.surplus.extend(passed.remove().map(|done| (done.helper, number)));
            }
            let Some(done) = self.ahead.remove(&self.next) else { return };
            let stopped = self.put(done);
            self.next = stopped.as_ref().map_or(usize::MAX, |one| self.from.partition_point(|&from| from < one.psb));
            self.before = stopped;
        }
    }

    /// Puts the next part behind those before it. How it ended.
    fn put(&mut self, done: Option<Done>) -> Option<Stopped> {
        if let (Some(Done { helper, ended, fragment }), Some(before)) = (done, &self.before) {
            let Ended { statistics, mut stopped, joined, time, .. } = ended;
            let joined = joined.filter(|joined| before.fits && before.behind.leads_to(joined, &time));
            if let (Some(fragment), Some(joined)) = (fragment, joined) {
                if let Some(columns) = self.calls.absorb(fragment) {
                    self.spare.push(columns);
                    self.statistics += statistics;
                    self.parts += 1;
                    self.misfits = 0;
                    if let Some(stopped) = &mut stopped {
                        stopped.before.go_on_from(&before.behind, &joined);
                        stopped.behind.go_on_from(&before.behind, &joined);
                    }
                    return stopped;
                }
            }
            self.again += 1;
            self.misfits += 1;
            self.surplus.push((helper, self.next));
        }
        let (joins, clock) = match self.before.take() {
            Some(before) => (before.fits, Clock::Known(before.before)),
            None => (false, Clock::New),
        };
        let part = Part { from: self.from[self.next], joins, stops: &self.from[self.next + 1..], clock };
        let ended = self.flow.decode_part(self.stream.data, self.stream.config, self.stream.epochs, &part, self.calls);
        self.statistics += ended.statistics;
        ended.stopped
    }
}

impl<M: CodeMemory, S: Symbols> Helper<M, S> {
    fn decode(&mut self, stream: Stream<'_>, from: &[usize], number: usize) -> (Ended, Option<Fragment>) {
        let part = part_by_itself(stream.data, from, number);
        let ended = self.flow.decode_part(stream.data, stream.config, stream.epochs, &part, &mut self.calls);
        (ended, self.calls.end_part())
    }

    /// Takes away the counts of parts that do not count.
    fn uncount(&mut self, stream: Stream<'_>, from: &[usize]) {
        for number in std::mem::take(&mut self.surplus) {
            let mut sink = self.calls.uncounted();
            self.flow.decode_part(
                stream.data,
                stream.config,
                stream.epochs,
                &part_by_itself(stream.data, from, number),
                &mut sink,
            );
        }
    }
}

//! The calls of one stream by several threads.
//!
//! Each thread follows parts of the stream by themselves; what they find is put together in the order of the stream. A part
//! that does not fit to the calls that are open in front of it is decoded once more, by whoever puts the parts together. So
//! the result is that of one thread.

use crate::calls::Calls;
use crate::fragment::{Collected, Fragment};
use crate::functions::News;
use crate::output::Output;
use crate::records::Records;
use pt_flow::{
    part_by_itself, share, Clock, CodeMemory, Ended, Flow, Part, Places, Statistics, Stopped, Stream, Workers,
};
use pt_image::Symbols;
use std::collections::BTreeMap;
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
    /// Columns without rows, for parts of the next stream.
    spare: Vec<Records>,
}

impl<M: CodeMemory, S: Symbols> Helper<M, S> {
    pub fn new(memory: M, symbols: S) -> Self {
        Helper {
            flow: Flow::new(memory),
            calls: Calls::of_parts(symbols),
            last: None,
            surplus: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Bytes of what is kept from stream to stream.
    pub fn memory(&self) -> usize {
        self.flow.memory() + self.calls.memory() + self.spare.iter().map(Records::memory).sum::<usize>()
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
    let workers = Workers { threads: helpers.len(), part_bytes };
    let places = Places::around_overflows(stream.data, stream.config, workers);
    let from = &places.from[..];
    let news = calls.news().to_vec();
    let without_addresses = !calls.output().takes_addresses();
    helpers.iter_mut().for_each(|helper| helper.calls.output().without_addresses = without_addresses);
    let whole = Whole { flow, calls, stream, from, before: None };
    let turn = Turn {
        whole: Some(whole),
        news,
        ahead: BTreeMap::new(),
        next: 0,
        taken: 0,
        misfits: 0,
        spare: helpers.iter_mut().flat_map(|helper| helper.spare.drain(..)).collect(),
        surplus: Vec::new(),
        divided: Divided { statistics: Statistics::default(), parts: 0, again: 0 },
        abandoned: false,
    };
    let work = Work { turn: Mutex::new(turn), moved: Condvar::new(), stream, places: &places, threads: helpers.len() };
    share(helpers.iter_mut().enumerate(), |(number, helper)| work.run(number, helper));
    let Turn { divided, surplus, spare, .. } = work.turn.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (helper, number) in surplus {
        helpers[helper].surplus.push(number);
    }
    if let Some(helper) = helpers.first_mut() {
        helper.spare = spare;
    }
    share(helpers.iter_mut().filter(|helper| !helper.surplus.is_empty()), |helper| helper.uncount(stream, from));
    divided
}

struct Work<'w, M, S, O> {
    turn: Mutex<Turn<'w, M, S, O>>,
    /// Parts were put together.
    moved: Condvar,
    stream: Stream<'w>,
    places: &'w Places,
    threads: usize,
}

/// How far the parts are. It is locked for moments only: whoever puts parts together takes what they are put to out of it.
struct Turn<'w, M, S, O> {
    whole: Option<Whole<'w, M, S, O>>,
    /// What is known there of code that nothing divides.
    news: Vec<News>,
    /// Done, but not put together.
    ahead: BTreeMap<usize, Option<Done>>,
    /// The next one that counts, and the next one that nobody has begun.
    next: usize,
    taken: usize,
    /// Parts that did not fit since one did.
    misfits: usize,
    /// Columns without rows, for parts to come.
    spare: Vec<Records>,
    /// Helpers, and parts of which their counts do not count.
    surplus: Vec<(usize, usize)>,
    divided: Divided,
    /// A thread ended before its time.
    abandoned: bool,
}

/// The stream up to where it is known.
struct Whole<'w, M, S, O> {
    flow: &'w mut Flow<M>,
    calls: &'w mut Calls<S, O>,
    stream: Stream<'w>,
    from: &'w [usize],
    /// How the last part ended.
    before: Option<Stopped>,
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
            if let Ok(mut turn) = self.0.turn.lock() {
                turn.abandoned = true;
            }
            self.0.moved.notify_all();
        }
    }
}

impl<M, S, O> Work<'_, M, S, O>
where
    M: CodeMemory,
    S: Symbols,
    O: Output,
{
    fn run(&self, number: usize, helper: &mut Helper<M, S>) {
        let _guard = Abandons(self);
        helper.last = None;
        helper.surplus.clear();
        while let Some((part, tried)) = self.take(helper) {
            let done = tried.then(|| {
                let (ended, fragment) = helper.decode(self.stream, &self.places.from, part);
                Done { helper: number, ended, fragment }
            });
            self.add(part, done);
        }
    }

    /// The next part, and whether it is tried by itself. `None` when there is none, or another thread has panicked.
    fn take(&self, helper: &mut Helper<M, S>) -> Option<(usize, bool)> {
        let most = AHEAD * self.threads;
        let waits = |turn: &mut Turn<'_, M, S, O>| !turn.abandoned && turn.taken > turn.next.saturating_add(most);
        let mut turn = self.moved.wait_while(self.turn.lock().ok()?, waits).ok()?;
        // Parts that are passed over already need not be begun.
        let part = turn.taken.max(turn.next);
        if turn.abandoned || part >= self.places.from.len() {
            return None;
        }
        turn.taken = part + 1;
        // An overflow ends all calls, also those around the part.
        let may_fit = part != 0 && !self.places.has_overflow(part);
        let tried = may_fit && (turn.misfits < MISFITS || part % TRIED == 0);
        if tried {
            helper.calls.begin_part(&turn.news, helper.last.is_none_or(|last| last < turn.next));
            helper.last = Some(part);
            helper.calls.recycle(turn.spare.pop().unwrap_or_default());
        }
        Some((part, tried))
    }

    /// A part is done, or left to its turn. Whose turn it is are put together, unless another thread is at it, which then
    /// finds this one.
    fn add(&self, number: usize, done: Option<Done>) {
        let Ok(mut turn) = self.turn.lock() else { return };
        turn.ahead.insert(number, done);
        while let Some((mut whole, done)) = turn.next_to_put() {
            let number = turn.next;
            drop(turn);
            let helper = done.as_ref().map(|done| done.helper);
            let (statistics, columns) = whole.put(number, done);
            let Ok(again) = self.turn.lock() else { return };
            turn = again;
            turn.divided.statistics += statistics;
            turn.go_on(helper, columns, whole);
            self.moved.notify_all();
        }
    }
}

impl<'w, M: CodeMemory, S: Symbols, O: Output> Turn<'w, M, S, O> {
    /// The next part, when it is done, and what it is put to.
    fn next_to_put(&mut self) -> Option<(Whole<'w, M, S, O>, Option<Done>)> {
        self.whole.as_ref()?;
        while let Some(passed) = self.ahead.first_entry().filter(|first| *first.key() < self.next) {
            let number = *passed.key();
            self.surplus.extend(passed.remove().map(|done| (done.helper, number)));
        }
        let done = self.ahead.remove(&self.next)?;
        Some((self.whole.take()?, done))
    }

    /// The next part, which `helper` decoded by itself, was put behind those before it. It fitted when its columns are left.
    fn go_on(&mut self, helper: Option<usize>, columns: Option<Records>, whole: Whole<'w, M, S, O>) {
        match (columns, helper) {
            (Some(columns), _) => {
                self.divided.parts += 1;
                self.misfits = 0;
                self.spare.push(columns);
            }
            (None, Some(helper)) => {
                self.divided.again += 1;
                self.misfits += 1;
                self.surplus.push((helper, self.next));
            }
            (None, None) => {}
        }
        self.news.extend(whole.calls.news().get(self.news.len()..).unwrap_or_default());
        self.next = whole.next();
        self.whole = Some(whole);
    }
}

impl<M: CodeMemory, S: Symbols, O: Output> Whole<'_, M, S, O> {
    /// The part that follows.
    fn next(&self) -> usize {
        self.before.as_ref().map_or(usize::MAX, |before| self.from.partition_point(|&from| from < before.psb))
    }

    /// Puts a part behind those before it; returns columns that it leaves when it fitted, else it was decoded here.
    fn put(&mut self, number: usize, done: Option<Done>) -> (Statistics, Option<Records>) {
        if let Some((statistics, columns)) = done.and_then(|done| self.take_over(done)) {
            return (statistics, Some(columns));
        }
        let (joins, clock) = match self.before.take() {
            Some(before) => (before.fits, Clock::Known(before.before)),
            None => (false, Clock::New),
        };
        let Stream { data, config, epochs, missing } = self.stream;
        let part = Part { from: self.from[number], joins, stops: &self.from[number + 1..], missing, clock };
        let ended = self.flow.decode_part(data, config, epochs, &part, self.calls);
        self.before = ended.stopped;
        (ended.statistics, None)
    }

    /// Takes over a part that was decoded by itself. `None` when it does not fit.
    fn take_over(&mut self, done: Done) -> Option<(Statistics, Records)> {
        let before = self.before.as_ref().filter(|before| before.fits)?;
        let Ended { statistics, mut stopped, joined, time, .. } = done.ended;
        let joined = joined.filter(|joined| before.behind.leads_to(joined, &time))?;
        let columns = self.calls.absorb(done.fragment?)?;
        if let Some(stopped) = &mut stopped {
            stopped.before.go_on_from(&before.behind, &joined);
            stopped.behind.go_on_from(&before.behind, &joined);
        }
        self.before = stopped;
        Some((statistics, columns))
    }
}

impl<M: CodeMemory, S: Symbols> Helper<M, S> {
    fn decode(&mut self, stream: Stream<'_>, from: &[usize], number: usize) -> (Ended, Option<Fragment>) {
        let part = part_by_itself(&stream, from, number);
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
                &part_by_itself(&stream, from, number),
                &mut sink,
            );
        }
    }
}

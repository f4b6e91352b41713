//! Streams of cores by several flows at once.
//!
//! A thread's sink goes from flow to flow as the thread went from core to core: a turn of a thread waits until all that it ran
//! before on other cores is told. What comes of that does not depend on how many flows there are.

mod group;
mod visits;

use crate::thread_sinks::{are_told, is_lost, Thread};
use crate::{CoreStream, Stays, Threads, View};
use group::{Group, GroupTurns};
use pt_flow::{share, CodeMemory, Config, Flow, InTurn, Travels};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use visits::Visits;

/// What the flows have in common.
struct SideBySide<'v, S, F> {
    stays: &'v Stays,
    visits: Visits,
    cores: Vec<u32>,
    /// The cores of which no packets are missing.
    whole: BTreeSet<u32>,
    state: Mutex<State<S, F>>,
    moved: Condvar,
}

struct State<S, F> {
    make: F,
    sinks: BTreeMap<Thread, Slot<S>>,
    /// Stays of which something is lost.
    lost: BTreeMap<Thread, BTreeSet<u32>>,
    streams: Vec<Standing>,
    /// By thread: so many of its visits are passed.
    passed: BTreeMap<u32, usize>,
    /// Flows that have streams left, and those of them that wait.
    flows: usize,
    waiting: usize,
    /// All flows waited for one another: records contradict each other, or a thread told nothing before it came back to a core that
    /// nobody else had meanwhile. This stream goes on before all others.
    forced: Option<usize>,
    abandoned: bool,
}

/// The sink of a thread, unless a flow tells it something, and the stay that it was told of last.
struct Slot<S> {
    sink: Option<Box<S>>,
    stay: u32,
}

/// Where a stream stands.
#[derive(Default)]
struct Standing {
    /// How many of its epochs have begun, and of which stays of threads nothing is known yet.
    begun: usize,
    untold: Vec<(u32, u32)>,
    tsc: u64,
    over: bool,
}

/// The sink of a thread, and what it learned of flows, by their places.
pub struct Travelled<S: Travels> {
    pub sink: S,
    pub learned: Vec<(usize, S::Learned)>,
}

/// Decodes the streams of distinct cores, each with its epochs, by these flows. A thread has one sink for all of them; `make` makes
/// it and is told the core where it first ran.
pub fn decode_side_by_side<M, S, F>(
    flows: &mut [Flow<M>],
    config: &Config,
    cores: &[CoreStream<'_, Vec<(usize, u32)>>],
    views: &[View],
    stays: &Stays,
    make: F,
) -> BTreeMap<Thread, Travelled<S>>
where
    M: CodeMemory + Send + Sync,
    S: Travels + Send,
    S::Learned: Send,
    F: FnMut(&View, u32) -> S + Send,
{
    let mut groups: Vec<_> = flows.iter().map(|_| (0, Vec::new())).collect();
    let mut largest_first: Vec<_> = (0..cores.len()).collect();
    largest_first.sort_by_key(|&stream| Reverse(cores[stream].data.len()));
    for stream in largest_first {
        if let Some((bytes, streams)) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            *bytes += cores[stream].data.len();
            streams.push(stream);
        }
    }
    groups.retain(|(_, streams)| !streams.is_empty());
    let common = SideBySide::new(views, stays, cores, groups.len(), make);
    let learned = share(flows.iter_mut().zip(groups), |(flow, (_, streams))| {
        let mut group = Group::of(&common);
        let mut epochs: Vec<_> = streams.iter().map(|&stream| cores[stream].epochs.iter().copied()).collect();
        let on_core = |core| Threads::on_core(views, core).switching_at(config.thread_switch);
        let mut threads: Vec<_> = streams.iter().map(|&stream| on_core(cores[stream].core)).collect();
        let parts = streams.iter().zip(&mut epochs).zip(&mut threads);
        let parts = parts.map(|((&stream, epochs), sink)| {
            let CoreStream { data, missing, .. } = cores[stream];
            InTurn { data, missing, epochs, sink }
        });
        let parts = parts.collect();
        let mut turns = GroupTurns { common: &common, streams };
        flow.decode_in_turns(config, parts, &mut group, &mut turns);
        group.learned()
    });
    let mut travelled = common.finish();
    for (flow, learned) in learned.into_iter().enumerate() {
        for (thread, learned) in learned {
            travelled.entry(thread).and_modify(|one| one.learned.push((flow, learned)));
        }
    }
    travelled
}

impl<'v, S, F: FnMut(&View, u32) -> S> SideBySide<'v, S, F> {
    fn new(
        views: &[View],
        stays: &'v Stays,
        cores: &[CoreStream<'_, Vec<(usize, u32)>>],
        flows: usize,
        make: F,
    ) -> Self {
        let visits = Visits::of(views, cores.iter().map(|one| &one.epochs[..]));
        let state = State {
            make,
            sinks: BTreeMap::new(),
            lost: BTreeMap::new(),
            streams: cores.iter().map(|_| Standing::default()).collect(),
            passed: BTreeMap::new(),
            flows,
            waiting: 0,
            forced: None,
            abandoned: false,
        };
        let whole = cores.iter().filter(|one| one.is_whole).map(|one| one.core).collect();
        let cores = cores.iter().map(|one| one.core).collect();
        SideBySide { stays, visits, cores, whole, state: Mutex::new(state), moved: Condvar::new() }
    }

    fn stream(&self, core: u32) -> Option<usize> {
        self.cores.iter().position(|&one| one == core)
    }

    /// Whether all that threads ran before what the stream stands in front of, and before what it has not told yet, is told.
    fn is_ready(&self, state: &mut State<S, F>, stream: usize) -> bool {
        let Standing { begun, untold, .. } = &state.streams[stream];
        let next: Vec<_> = untold.iter().copied().chain(self.visits.at(stream, *begun)).collect();
        next.into_iter().all(|visit| self.is_told_before(state, stream, visit))
    }

    /// Whether all that the thread ran before the stay is told, but for what the stream itself tells.
    fn is_told_before(&self, state: &mut State<S, F>, stream: usize, (tid, stay): (u32, u32)) -> bool {
        let visits = self.visits.of_thread(tid);
        let passed = state.passed.entry(tid).or_default();
        while visits.get(*passed).is_some_and(|visit| is_passed(&state.streams, tid, visit)) {
            *passed += 1;
        }
        let mut before = visits[*passed..].iter().take_while(|visit| (visit.stay, visit.stream) < (stay, stream));
        before.all(|visit| visit.stream == stream || is_passed(&state.streams, tid, visit))
    }

    /// Whether others tell of the thread from now on.
    fn has_left(&self, state: &State<S, F>, view: &View, stream: usize) -> bool {
        let visits = self.visits.of_thread(view.tid);
        let this = visits.binary_search_by_key(&(view.stay, stream), |visit| (visit.stay, visit.stream));
        this.is_ok_and(|this| this + 1 < visits.len() && is_passed(&state.streams, view.tid, &visits[this]))
    }

    /// The next stream of these to go on with; waits for other flows. `None` where none is left.
    fn next(&self, streams: &[usize]) -> Option<usize> {
        let mut state = self.lock();
        while !state.abandoned {
            let left = state.left(streams.iter().copied());
            if left.is_empty() {
                state.flows -= 1;
                self.force_if_all_wait(&mut state);
                return None;
            }
            let may_go_on = |&stream: &usize| match state.forced {
                Some(forced) => stream == forced,
                None => self.is_ready(&mut state, stream),
            };
            if let Some(stream) = left.into_iter().find(may_go_on) {
                return Some(stream);
            }
            state.waiting += 1;
            if !self.force_if_all_wait(&mut state) {
                state = self.wait(state);
            }
            state.waiting -= 1;
        }
        None
    }

    /// Where all flows wait and none would ever go on, one has to: then it is true.
    fn force_if_all_wait(&self, state: &mut State<S, F>) -> bool {
        if state.waiting < state.flows || state.forced.is_some() {
            return false;
        }
        let left = state.left(0..state.streams.len());
        if left.iter().any(|&stream| self.is_ready(state, stream)) {
            return false;
        }
        state.forced = left.first().copied();
        self.moved.notify_all();
        state.forced.is_some()
    }

    /// A turn of the stream is over.
    fn stands(&self, stream: usize, tsc: Option<u64>) {
        let mut state = self.lock();
        match tsc {
            Some(tsc) => state.streams[stream].tsc = tsc,
            None => state.streams[stream].over = true,
        }
        if state.forced == Some(stream) {
            state.forced = None;
        }
        self.moved.notify_all();
    }

    /// Whether all is told of a thread from one stay to another one.
    fn is_whole(&self, state: &State<S, F>, thread: Thread, from: u32, to: u32) -> bool {
        are_told(self.stays, &self.whole, thread, from, to) && !is_lost(state.lost.get(&thread), from, to)
    }
}

impl<S: Travels, F> SideBySide<'_, S, F> {
    fn finish(self) -> BTreeMap<Thread, Travelled<S>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let travelled = |slot: Slot<S>| Some(Travelled { sink: *slot.sink?, learned: Vec::new() });
        state.sinks.into_iter().filter_map(|(thread, slot)| Some((thread, travelled(slot)?))).collect()
    }
}

impl<S, F> SideBySide<'_, S, F> {
    fn lock(&self) -> MutexGuard<'_, State<S, F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State<S, F>>) -> MutexGuard<'s, State<S, F>> {
        self.moved.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// A flow ends before its time.
    fn abandon(&self) {
        self.lock().abandoned = true;
        self.moved.notify_all();
    }
}

impl<S, F> State<S, F> {
    /// Those of the streams that are not over, by how far they are.
    fn left(&self, streams: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut left: Vec<_> = streams.filter(|&stream| !self.streams[stream].over).collect();
        left.sort_by_key(|&stream| (self.streams[stream].tsc, stream));
        left
    }
}

fn is_passed(streams: &[Standing], tid: u32, visit: &visits::Visit) -> bool {
    let standing = &streams[visit.stream];
    let is_behind = standing.begun > visit.last + 1 && !standing.untold.contains(&(tid, visit.stay));
    standing.over || is_behind
}

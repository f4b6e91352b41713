//! The sinks of threads, and what was not told of a thread.

use crate::stays::Stays;
use crate::View;
use pt_flow::Sink;
use std::collections::{BTreeMap, BTreeSet};

/// Where the sinks of threads are, for a stream that tells of several.
pub trait Sinks: Default {
    type Sink: Sink;

    fn at(&mut self, place: usize) -> &mut Self::Sink;

    /// The place of the thread that runs in the view, which it may have come to from elsewhere. `None` where the core tells
    /// nothing more of it, because others go on.
    fn find(&mut self, view: &View, core: u32) -> Option<usize>;

    /// Something of what the thread of the view ran in it is lost.
    fn lose(&mut self, view: &View, core: u32);

    /// Which paths come now.
    fn paths(&mut self, generation: u64);

    /// The core begins an epoch, the last of so many; nothing is known yet of what ran in those of `untold`.
    fn pauses(&mut self, core: u32, begun: usize, untold: impl Iterator<Item = View>) {
        let _ = (core, begun, untold);
    }
}

/// Sinks by thread, of one stream or of those of several cores. The idle thread has one for each core.
pub struct ThreadSinks<'v, S, F> {
    make: Option<F>,
    /// Each with the stay that it was told of last.
    sinks: Vec<(S, u32)>,
    /// Places of sinks by thread.
    places: BTreeMap<Thread, usize>,
    /// Stays to come of which something is lost.
    lost: BTreeMap<Thread, BTreeSet<u32>>,
    generation: u64,
    /// The cores of which all is told.
    cores: Option<(&'v Stays, BTreeSet<u32>)>,
}

/// By process, tid and, of the idle thread, core.
pub type Thread = (u32, u32, u32);

/// None, and none are made.
impl<S, F> Default for ThreadSinks<'_, S, F> {
    fn default() -> Self {
        let (sinks, places, lost) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        ThreadSinks { make: None, sinks, places, lost, generation: 0, cores: None }
    }
}

impl<'v, S: Sink, F: FnMut(&View, u32) -> S> ThreadSinks<'v, S, F> {
    /// `make` makes the sink of a thread when it first runs.
    pub fn of_one_stream(make: F) -> Self {
        ThreadSinks { make: Some(make), ..ThreadSinks::default() }
    }

    /// Of several cores, which are decoded in the order of stays ([`Stays::since`]). `make` is told the core as well. `whole`:
    /// those of which no packets are missing.
    pub fn of_cores(stays: &'v Stays, whole: BTreeSet<u32>, make: F) -> Self {
        ThreadSinks { make: Some(make), cores: Some((stays, whole)), ..ThreadSinks::default() }
    }

    /// By process, tid and, of the idle thread, core.
    pub fn finish(self) -> impl Iterator<Item = (Thread, S)> {
        let mut sinks: Vec<_> = self.sinks.into_iter().map(Some).collect();
        self.places.into_iter().filter_map(move |(thread, place)| Some((thread, sinks[place].take()?.0)))
    }

    /// Whether all is told of a thread from one stay to another one.
    fn is_whole(&self, thread: Thread, from: u32, to: u32) -> bool {
        let is_told = self.cores.as_ref().is_some_and(|(stays, whole)| are_told(stays, whole, thread, from, to));
        is_told && !is_lost(self.lost.get(&thread), from, to)
    }
}

impl<S: Sink, F: FnMut(&View, u32) -> S> Sinks for ThreadSinks<'_, S, F> {
    type Sink = S;

    #[inline(always)]
    fn at(&mut self, place: usize) -> &mut S {
        &mut self.sinks[place].0
    }

    fn find(&mut self, view: &View, core: u32) -> Option<usize> {
        let thread = thread(view, core);
        let place = *self.places.entry(thread).or_insert_with(|| {
            let make = self.make.as_mut().expect("sinks that can be made");
            self.sinks.push((make(view, core), view.stay));
            self.sinks.len() - 1
        });
        let (sink, stay) = &mut self.sinks[place];
        sink.paths(self.generation);
        let before = std::mem::replace(stay, view.stay);
        if before != view.stay && !self.is_whole(thread, before, view.stay) {
            self.at(place).moved();
        }
        self.at(place).on_core(core);
        Some(place)
    }

    fn lose(&mut self, view: &View, core: u32) {
        let thread = thread(view, core);
        match self.places.get(&thread).map(|&place| &mut self.sinks[place]) {
            Some((sink, stay)) if *stay == view.stay => sink.moved(),
            _ => drop(self.lost.entry(thread).or_default().insert(view.stay)),
        }
    }

    fn paths(&mut self, generation: u64) {
        self.generation = generation;
    }
}

/// Whether the cores that the thread was on, from one stay to another one, are among those of which all is told.
pub fn are_told(stays: &Stays, whole: &BTreeSet<u32>, thread: Thread, from: u32, to: u32) -> bool {
    let passed = stays.of_thread(thread.1).get(from as usize..=to as usize);
    passed.is_some_and(|passed| passed.iter().all(|stay| whole.contains(&stay.core)))
}

/// Whether something is lost behind one stay up to another one. `lost`: stays of which it is.
pub fn is_lost(lost: Option<&BTreeSet<u32>>, from: u32, to: u32) -> bool {
    lost.is_some_and(|lost| from < to && lost.range(from + 1..=to).next().is_some())
}

pub fn thread(view: &View, core: u32) -> Thread {
    (view.pid, view.tid, if view.tid == 0 { core } else { 0 })
}

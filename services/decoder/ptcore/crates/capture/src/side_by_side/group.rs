//! What one of the flows tells.

use super::{SideBySide, Slot, State};
use crate::thread_sinks::{thread, Sinks, Thread};
use crate::View;
use pt_flow::{Travels, Turns};
use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::thread::panicking;

/// The sinks that a flow tells something, and what they learned of it.
pub struct Group<'s, 'v, S: Travels, F> {
    common: Option<&'s SideBySide<'v, S, F>>,
    held: Vec<(Thread, Box<S>)>,
    learned: BTreeMap<Thread, S::Learned>,
    generation: u64,
}

impl<S: Travels, F> Default for Group<'_, '_, S, F> {
    fn default() -> Self {
        Group { common: None, held: Vec::new(), learned: BTreeMap::new(), generation: 0 }
    }
}

impl<'s, 'v, S: Travels, F: FnMut(&View, u32) -> S> Group<'s, 'v, S, F> {
    pub fn of(common: &'s SideBySide<'v, S, F>) -> Self {
        Group { common: Some(common), ..Group::default() }
    }

    /// What sinks learned of the flow.
    pub fn learned(self) -> BTreeMap<Thread, S::Learned> {
        self.learned
    }

    /// Waits while another flow tells the thread something, as where records contradict each other; `None` where that flow
    /// ends before its time. Who waits has given back all that others may wait for.
    fn until_free(
        &mut self,
        common: &'s SideBySide<'v, S, F>,
        mut state: MutexGuard<'s, State<S, F>>,
        thread: Thread,
    ) -> Option<MutexGuard<'s, State<S, F>>> {
        let is_free = |state: &State<S, F>| state.sinks.get(&thread).is_none_or(|slot| slot.sink.is_some());
        if !is_free(&state) {
            drop(state);
            self.give_back();
            common.moved.notify_all();
            state = common.lock();
        }
        while !is_free(&state) {
            if state.abandoned {
                return None;
            }
            state = common.wait(state);
        }
        Some(state)
    }

    fn give_back(&mut self) {
        let Some(common) = self.common else { return };
        for (thread, mut sink) in self.held.drain(..) {
            sink.exchange(self.learned.entry(thread).or_default());
            if let Some(slot) = common.lock().sinks.get_mut(&thread) {
                slot.sink = Some(sink);
            }
        }
    }
}

impl<S: Travels, F: FnMut(&View, u32) -> S> Sinks for Group<'_, '_, S, F> {
    type Sink = S;

    #[inline(always)]
    fn at(&mut self, place: usize) -> &mut S {
        &mut self.held[place].1
    }

    fn find(&mut self, view: &View, core: u32) -> Option<usize> {
        let common = self.common?;
        let (thread, stream) = (thread(view, core), common.stream(core)?);
        let mut guard = common.lock();
        if common.has_left(&guard, view, stream) {
            return None;
        }
        let held = self.held.iter().position(|(held, _)| *held == thread);
        if held.is_none() {
            guard = self.until_free(common, guard, thread)?;
        }
        let state = &mut *guard;
        let slot = state.sinks.entry(thread).or_insert_with(|| {
            let sink = Some(Box::new((state.make)(view, core)));
            Slot { sink, stay: view.stay }
        });
        let (sink, before) = (slot.sink.take(), std::mem::replace(&mut slot.stay, view.stay));
        let goes_on = before == view.stay || common.is_whole(state, thread, before, view.stay);
        drop(guard);
        let place = match sink {
            Some(mut sink) => {
                sink.exchange(self.learned.entry(thread).or_default());
                sink.paths(self.generation);
                self.held.push((thread, sink));
                self.held.len() - 1
            }
            None => held?,
        };
        let sink = self.at(place);
        if !goes_on {
            sink.moved();
        }
        sink.on_core(core);
        Some(place)
    }

    fn lose(&mut self, view: &View, core: u32) {
        let Some(common) = self.common else { return };
        let thread = thread(view, core);
        let mut state = common.lock();
        if state.sinks.get(&thread).is_some_and(|slot| slot.stay == view.stay) {
            drop(state);
            if let Some(place) = self.find(view, core) {
                self.at(place).moved();
            }
        } else {
            state.lost.entry(thread).or_default().insert(view.stay);
        }
    }

    fn paths(&mut self, generation: u64) {
        self.generation = generation;
        self.held.iter_mut().for_each(|(_, sink)| sink.paths(generation));
    }

    fn pauses(&mut self, core: u32, begun: usize, untold: impl Iterator<Item = View>) {
        self.give_back();
        let Some((common, stream)) = self.common.and_then(|common| Some((common, common.stream(core)?))) else {
            return;
        };
        let standing = &mut common.lock().streams[stream];
        standing.begun = begun;
        standing.untold.clear();
        standing.untold.extend(untold.map(|view| (view.tid, view.stay)));
    }
}

/// Which of a flow's streams goes on, by their places in `streams`.
pub struct GroupTurns<'s, 'v, S, F> {
    pub common: &'s SideBySide<'v, S, F>,
    pub streams: Vec<usize>,
}

impl<S, F: FnMut(&View, u32) -> S> Turns for GroupTurns<'_, '_, S, F> {
    fn stands(&mut self, number: usize, _epoch: u32, tsc: u64) {
        self.common.stands(self.streams[number], Some(tsc));
    }

    fn over(&mut self, number: usize) {
        self.common.stands(self.streams[number], None);
    }

    fn next(&mut self) -> Option<usize> {
        let stream = self.common.next(&self.streams)?;
        self.streams.iter().position(|&one| one == stream)
    }
}

impl<S, F> Drop for GroupTurns<'_, '_, S, F> {
    /// Others do not wait for a flow that panics.
    fn drop(&mut self) {
        if panicking() {
            self.common.abandon();
        }
    }
}

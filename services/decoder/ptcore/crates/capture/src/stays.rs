//! The cores that threads were on, one behind the other: what a thread did on one is not in the stream of another.

use crate::capture::{Of, Stream, Switch, View};
use std::collections::HashMap;

/// By tid, in order.
#[derive(Clone, Debug, Default)]
pub struct Stays(HashMap<u32, Vec<Stay>>);

/// A thread is on one core until it is seen on another, or a thread of another process has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// When it was first seen there, TSC ticks.
    pub since: u64,
    pub core: u32,
    pub pid: u32,
}

impl Stays {
    /// From the switches of all cores, each with its core.
    pub fn of(switches: impl Iterator<Item = (u32, Switch)>) -> Self {
        let mut seen: Vec<_> = switches.filter(|(_, switch)| switch.tid != 0).collect();
        // Who leaves a core when another one is entered was there before.
        seen.sort_by_key(|(_, switch)| (switch.tsc, switch.enters));
        let mut stays = Stays::default();
        for (core, Switch { pid, tid, tsc, .. }) in seen {
            let of_thread = stays.0.entry(tid).or_default();
            if of_thread.last().is_none_or(|last| (last.core, last.pid) != (core, pid)) {
                of_thread.push(Stay { since: tsc, core, pid });
            }
        }
        stays
    }

    /// From those of all streams of cores.
    pub fn of_streams(streams: &[Stream]) -> Self {
        let cores = streams.iter().filter_map(|stream| match stream.of {
            Of::Core(core) => Some((core, stream)),
            Of::Thread { .. } => None,
        });
        Stays::of(
            cores.flat_map(|(core, stream)| {
                stream.begins.iter().chain(&stream.switches).map(move |&switch| (core, switch))
            }),
        )
    }

    /// How often the thread had come from another core by then, and its number from another process.
    pub fn before(&self, tid: u32, tsc: u64) -> u32 {
        self.of_thread(tid).partition_point(|stay| stay.since <= tsc).saturating_sub(1) as u32
    }

    /// Those of all threads that had the number, in order; none of the idle thread, which is everywhere.
    pub fn of_thread(&self, tid: u32) -> &[Stay] {
        self.0.get(&tid).map_or(&[], Vec::as_slice)
    }

    /// When the stay of a view began, TSC ticks; 0 where that is not known.
    ///
    /// Of what stands next on each core, all that a thread ran before has been told when that goes on whose stay began
    /// first: if any of it stood behind a turn of another one, that one had come to its core later.
    pub fn since(&self, view: &View) -> u64 {
        self.of_thread(view.tid).get(view.stay as usize).map_or(0, |stay| stay.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stay_lasts_until_the_thread_is_seen_on_another_core() {
        let seen = |tsc, core, tid, enters| (core, Switch { tsc, pid: 7, tid, enters });
        let stays = Stays::of(
            [
                seen(10, 0, 71, true),
                seen(20, 0, 71, false),
                // Again on the same core, where others ran meanwhile.
                seen(30, 0, 71, true),
                seen(40, 0, 71, false),
                seen(25, 0, 72, true),
                seen(40, 1, 71, true),
                seen(50, 1, 71, false),
                seen(60, 0, 71, true),
                // The idle thread is everywhere.
                seen(5, 0, 0, true),
                seen(6, 1, 0, true),
            ]
            .into_iter(),
        );
        assert_eq!([10, 30, 39, 40, 59, 60, u64::MAX].map(|tsc| stays.before(71, tsc)), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!([stays.before(72, 100), stays.before(0, 100)], [0, 0]);
        let told: Vec<_> = stays.of_thread(71).iter().map(|stay| (stay.since, stay.core)).collect();
        assert_eq!((told, stays.of_thread(0).len()), (vec![(10, 0), (40, 1), (60, 0)], 0));
    }

    #[test]
    fn a_number_that_another_process_takes_over_stays_anew() {
        let seen = |tsc, pid, enters| (0, Switch { tsc, pid, tid: 71, enters });
        let stays = Stays::of([seen(10, 7, true), seen(20, 7, false), seen(30, 9, true)].into_iter());
        assert_eq!([10, 29, 30].map(|tsc| stays.before(71, tsc)), [0, 0, 1]);
        assert_eq!(stays.of_thread(71).iter().map(|stay| stay.pid).collect::<Vec<_>>(), [7, 9]);
    }
}

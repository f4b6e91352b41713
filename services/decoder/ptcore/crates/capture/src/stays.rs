//! How often threads came from another core: what a thread did there is not in this one's stream.

use crate::capture::{Of, Stream, Switch};
use std::collections::HashMap;

/// By thread: when it was seen on another core than the one before, in TSC ticks.
#[derive(Clone, Debug, Default)]
pub struct Stays(HashMap<u32, Vec<u64>>);

impl Stays {
    /// From the switches of all cores, each with its core.
    pub fn of(switches: impl Iterator<Item = (u32, Switch)>) -> Self {
        let mut seen: Vec<_> = switches.filter(|(_, switch)| switch.tid != 0).collect();
        // Who leaves a core when another one is entered was there before.
        seen.sort_by_key(|(_, switch)| (switch.tsc, switch.enters));
        let (mut stays, mut cores) = (Stays::default(), HashMap::new());
        for (core, Switch { tid, tsc, .. }) in seen {
            if cores.insert(tid, core).is_some_and(|before| before != core) {
                stays.0.entry(tid).or_default().push(tsc);
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

    /// How often the thread had come from another core by then.
    pub fn before(&self, tid: u32, tsc: u64) -> u32 {
        self.0.get(&tid).map_or(0, |times| times.partition_point(|&time| time <= tsc)) as u32
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
    }
}

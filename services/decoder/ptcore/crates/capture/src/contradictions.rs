//! Records of switches that cannot all be true.

use crate::on_core::{Sign, Who};
use std::collections::BTreeMap;

/// How many records contradict others, and the first place.
#[derive(Default)]
pub struct Contradictions {
    count: usize,
    first: Option<Place>,
}

/// TSC ticks, core, and what is the matter.
type Place = (u64, u32, String);

/// While a thread was on a core, TSC ticks.
struct Visit {
    from: u64,
    until: u64,
    core: u32,
}

/// What is known of a core.
#[derive(Clone, Copy)]
enum Running {
    Unknown,
    Nobody,
    Thread { tid: u32, from: u64 },
}

impl Contradictions {
    /// `signs`: by core and, of each core, by time.
    pub fn of(signs: impl Iterator<Item = (u32, u64, Sign)>) -> Self {
        let mut found = Contradictions::default();
        let (mut cores, mut visits) = (BTreeMap::new(), BTreeMap::new());
        for (core, tsc, sign) in signs {
            let running = cores.entry(core).or_insert(Running::Unknown);
            if let Some(what) = contradicts(*running, sign) {
                found.add(tsc, core, what);
            }
            let next = behind(*running, tsc, sign);
            visit(&mut visits, *running, next, core, tsc);
            *running = next;
        }
        for (core, running) in cores {
            visit(&mut visits, running, Running::Nobody, core, u64::MAX);
        }
        for (tid, visits) in visits {
            found.at_once(tid, visits);
        }
        found
    }

    pub fn warning(&self) -> Option<String> {
        let (tsc, core, what) = self.first.as_ref()?;
        let count = self.count;
        let doubt = "what ran there may be told of another thread";
        Some(format!(
            "{count} records of switches contradict others, the first on core {core} at TSC {tsc}: {what}; {doubt}"
        ))
    }

    fn add(&mut self, tsc: u64, core: u32, what: String) {
        self.count += 1;
        if self.first.as_ref().is_none_or(|first| (tsc, core) < (first.0, first.1)) {
            self.first = Some((tsc, core, what));
        }
    }

    /// The visits of one thread that begin before one to another core is over.
    fn at_once(&mut self, tid: u32, mut visits: Vec<Visit>) {
        visits.sort_by_key(|visit| (visit.from, visit.until));
        let mut before: Option<Visit> = None;
        for visit in visits {
            if let Some(other) = before.as_ref().filter(|other| visit.from < other.until && visit.core != other.core) {
                let what = format!("thread {tid} comes, and is on core {} still", other.core);
                self.add(visit.from, visit.core, what);
            }
            if before.as_ref().is_none_or(|before| before.until <= visit.until) {
                before = Some(visit);
            }
        }
    }
}

fn contradicts(running: Running, sign: Sign) -> Option<String> {
    match (running, sign) {
        (Running::Thread { tid: there, .. }, Sign::Enters((_, tid))) if there != tid => {
            Some(format!("thread {tid} comes, and thread {there} has not left"))
        }
        (Running::Thread { tid: there, .. }, Sign::Leaves(Some((_, tid)))) if there != tid => {
            Some(format!("thread {tid} leaves, and thread {there} is there"))
        }
        (Running::Nobody, Sign::Leaves(Some((_, tid)))) => Some(format!("thread {tid} leaves, and had not come")),
        _ => None,
    }
}

/// Who runs then. Of who ends no record says when it leaves, and who is traced from now on may have come unseen.
fn behind(running: Running, tsc: u64, sign: Sign) -> Running {
    let comes = |(_, tid): Who| match running {
        Running::Thread { tid: there, .. } if there == tid => running,
        _ => Running::Thread { tid, from: tsc },
    };
    match sign {
        Sign::Enters(who) | Sign::Traced(who) | Sign::Execs(who) => comes(who),
        Sign::Leaves(_) => Running::Nobody,
        Sign::Exits(_) => Running::Unknown,
    }
}

/// A thread that is on the core no more was there until now. The idle thread is on all cores at once.
fn visit(visits: &mut BTreeMap<u32, Vec<Visit>>, before: Running, next: Running, core: u32, tsc: u64) {
    let Running::Thread { tid, from } = before else { return };
    let stays = matches!(next, Running::Thread { tid: there, .. } if there == tid);
    if tid != 0 && !stays {
        visits.entry(tid).or_default().push(Visit { from, until: tsc, core });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Sign::{Enters, Execs, Exits, Leaves, Traced};

    fn told(signs: &[(u32, u64, Sign)]) -> Option<String> {
        let mut signs = signs.to_vec();
        signs.sort_by_key(|&(core, tsc, _)| (core, tsc));
        Contradictions::of(signs.into_iter()).warning()
    }

    fn leaves(tid: u32) -> Sign {
        Leaves(Some((7, tid)))
    }

    fn enters(tid: u32) -> Sign {
        Enters((7, tid))
    }

    #[test]
    fn threads_that_take_turns_contradict_nobody() {
        let one_core = [(0, 5, leaves(70)), (0, 10, enters(71)), (0, 20, leaves(71)), (0, 20, enters(72))];
        let other_core = [(1, 20, enters(71)), (1, 20, leaves(71)), (1, 30, enters(71)), (2, 1, Enters((0, 0)))];
        assert_eq!(told(&[&one_core[..], &other_core, &[(3, 1, Enters((0, 0)))]].concat()), None);
    }

    #[test]
    fn who_ends_is_not_told_to_leave_and_who_is_traced_was_not_told_to_come() {
        let who = (7, 71);
        let ends = [(0, 10, enters(71)), (0, 20, Exits(who)), (0, 30, enters(72)), (0, 40, Leaves(None))];
        let begins = [(1, 10, Traced(who)), (1, 11, enters(71)), (1, 15, Execs((7, 7))), (1, 20, leaves(7))];
        assert_eq!((told(&ends), told(&begins)), (None, None));
        // It was traced anew: where it was meanwhile no record says.
        assert_eq!(told(&[(0, 10, enters(71)), (0, 20, Traced((7, 72))), (1, 20, enters(71))]), None);
    }

    #[test]
    fn what_cannot_be_is_counted_and_the_first_place_is_told() {
        let begins = |what: &str| format!("1 records of switches contradict others, the first on core {what}; ");
        for (signs, first) in [
            (
                vec![(0, 10, enters(71)), (0, 20, enters(72))],
                "0 at TSC 20: thread 72 comes, and thread 71 has not left",
            ),
            (vec![(0, 10, enters(71)), (0, 20, leaves(72))], "0 at TSC 20: thread 72 leaves, and thread 71 is there"),
            (vec![(0, 10, leaves(71)), (0, 20, leaves(71))], "0 at TSC 20: thread 71 leaves, and had not come"),
            (
                vec![(0, 10, enters(71)), (0, 30, leaves(71)), (1, 20, enters(71)), (1, 40, leaves(71))],
                "1 at TSC 20: thread 71 comes, and is on core 0 still",
            ),
        ] {
            let warning = told(&signs).expect(first);
            assert!(warning.starts_with(&begins(first)), "{warning}");
        }
        let many =
            told(&[(1, 5, leaves(1)), (1, 7, leaves(1)), (0, 5, leaves(1)), (0, 6, leaves(2)), (0, 8, leaves(2))]);
        assert!(many.is_some_and(
            |many| many.starts_with("3 records of switches contradict others, the first on core 0 at TSC 6")
        ));
    }
}

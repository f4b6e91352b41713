//! From who ran when to turns of views: what a core's switch records and the changes of address spaces mean for a stream.

use crate::attribute::Turn;
use crate::{Switch, KERNEL};

/// The address spaces and views that turns name.
pub trait Spaces {
    /// The number of the view of a thread at a time, in TSC ticks. Process 0 is nobody's, or the idle thread's.
    fn view(&mut self, pid: u32, tid: u32, tsc: u64) -> u32;

    /// From which TSC on which epoch of a process's image holds.
    fn epochs(&mut self, pid: u32) -> &[(u64, u32)];

    /// The pid where it has an address space of its own, else 0.
    fn space_of(&self, pid: u32) -> u32;
}

/// The turns of a core, and the view that holds at the beginning. `begins`: who runs then, where that is known;
/// `switches` by time.
pub fn runs(spaces: &mut impl Spaces, begins: Option<Switch>, switches: &[Switch]) -> (u32, Vec<Turn>) {
    let (mut turns, mut running) = (Vec::new(), None);
    let first = match (begins, switches.first()) {
        (Some(thread), _) => spaces.view(thread.pid, thread.tid, thread.tsc),
        (None, Some(switch)) if !switch.enters => {
            running = Some((switch.pid, switch.tid, 0));
            spaces.view(switch.pid, switch.tid, 0)
        }
        _ => spaces.view(0, 0, 0),
    };
    // Since when it is possible that another thread runs.
    let mut free = None;
    for switch in switches {
        let who = (switch.pid, switch.tid);
        let known = running.filter(|&(pid, tid, _)| (pid, tid) == who);
        if switch.enters || known.is_none() {
            let from = free.or(running.map(|(_, _, since)| since)).unwrap_or(switch.tsc);
            run(spaces, &mut turns, running, switch.tsc);
            let view = spaces.view(switch.pid, switch.tid, switch.tsc);
            turns.push(Turn { from: from.min(switch.tsc), to: switch.tsc, view, pid: spaces.space_of(switch.pid) });
            running = Some((switch.pid, switch.tid, switch.tsc));
        }
        if !switch.enters {
            run(spaces, &mut turns, running, switch.tsc);
            running = None;
        }
        free = (!switch.enters).then_some(switch.tsc);
    }
    run(spaces, &mut turns, running, u64::MAX);
    if let Some(tsc) = free {
        let view = spaces.view(0, 0, tsc);
        turns.push(Turn { from: tsc, to: tsc, view, pid: 0 });
    }
    turns.dedup_by(|next, turn| next.view == turn.view);
    (first, turns)
}

/// Changes of the address space while a thread runs.
fn run(spaces: &mut impl Spaces, turns: &mut Vec<Turn>, running: Option<(u32, u32, u64)>, until: u64) {
    if let Some((pid, tid, since)) = running {
        turns.append(&mut changes(spaces, pid, tid, since, until));
    }
}

/// Where another image holds for a thread, behind `since` and before `until`.
pub fn changes(spaces: &mut impl Spaces, pid: u32, tid: u32, since: u64, until: u64) -> Vec<Turn> {
    let mut times = within(spaces.epochs(pid), since, until);
    times.append(&mut within(spaces.epochs(KERNEL), since, until));
    times.sort_unstable();
    times.dedup();
    let turn = |tsc| Turn { from: tsc, to: tsc, view: spaces.view(pid, tid, tsc), pid: 0 };
    times.into_iter().map(turn).collect()
}

/// Times at which an epoch begins, behind `since` and before `until`.
fn within(epochs: &[(u64, u32)], since: u64, until: u64) -> Vec<u64> {
    let first = epochs.partition_point(|&(tsc, _)| tsc <= since);
    epochs[first..].iter().map(|&(tsc, _)| tsc).take_while(|&tsc| tsc < until).collect()
}

/// The epoch that holds at a time; 0 before the first.
pub fn epoch_at(epochs: &[(u64, u32)], tsc: u64) -> u32 {
    let newer = epochs.partition_point(|&(since, _)| since <= tsc);
    newer.checked_sub(1).map_or(0, |last| epochs[last].1)
}

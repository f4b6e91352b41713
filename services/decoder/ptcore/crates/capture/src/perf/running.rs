//! Who runs on the cores, from the records of a recording.

use super::attributes::SampleId;
use super::buffers::Buffers;
use super::pt_info::Switches;
use crate::contradictions::Contradictions;
use crate::ids::Impossible;
use crate::on_core::{OnCore, Sign, Who};
use crate::Switch;
use std::collections::{BTreeMap, BTreeSet};

/// -1: no core, or a thread that has ended.
const NONE: u32 = u32::MAX;

/// Gathers the records that say who ran where.
#[derive(Default)]
pub struct Running {
    /// Processes by tid.
    pub pids: BTreeMap<u32, u32>,
    pub buffers: Buffers,
    cores: BTreeMap<u32, OnCore>,
    /// Of which nothing says who ran there.
    untold: Vec<u32>,
    /// Of which only who ran as packets were handed out is known, and these were several threads.
    guessed: Vec<u32>,
    /// There are switch records.
    switched: bool,
    samples: Vec<Sample>,
    impossible: Impossible,
}

/// Of sched:sched_switch; tids.
struct Sample {
    core: Option<u32>,
    tsc: u64,
    leaves: u32,
    enters: u32,
}

impl Running {
    pub fn saw(&mut self, core: Option<u32>, tsc: u64, sign: Sign) {
        let (pid, tid) = sign.who().unwrap_or_default();
        let Some(core) = core.filter(|&core| ![core, pid, tid].contains(&NONE)) else { return };
        if self.impossible.allows(core, pid, tid) {
            self.cores.entry(core).or_default().saw(tsc, sign);
        }
    }

    /// A thread with its process, as a record on a core tells it. Whether there may be such.
    pub fn knows(&mut self, core: Option<u32>, (pid, tid): Who) -> bool {
        let may_be = self.impossible.allows(core.filter(|&core| core != NONE).unwrap_or(0), pid, tid);
        if may_be {
            self.pids.insert(tid, pid);
        }
        may_be
    }

    pub fn switched(&mut self, id: &SampleId, tsc: u64, out: bool) {
        let (Some(pid), Some(tid)) = (id.pid, id.tid) else { return };
        self.switched = true;
        let sign = Sign::of_switch((pid, tid), out);
        if sign.who().is_none_or(|who| self.knows(id.cpu, who)) {
            self.saw(id.cpu, tsc, sign);
        }
    }

    pub fn sampled(&mut self, core: Option<u32>, tsc: u64, leaves: u32, enters: u32) {
        self.samples.push(Sample { core, tsc, leaves, enters });
    }

    /// Behind the last record: tracepoints know no processes.
    pub fn all_told(&mut self) {
        for Sample { core, tsc, leaves, enters } in std::mem::take(&mut self.samples) {
            let [leaves, enters] = [leaves, enters].map(|tid| (self.pids.get(&tid).copied().unwrap_or(tid), tid));
            self.saw(core, tsc, Sign::Leaves(Some(leaves)));
            self.saw(core, tsc, Sign::Enters(enters));
        }
    }

    /// What is wrong with the records. `timed`: they have times, which say what came before what.
    pub fn warnings(&mut self, timed: bool) -> impl Iterator<Item = String> + use<> {
        let of_core = |(&core, signs): (&u32, &'_ mut OnCore)| {
            signs.signs().iter().map(|&(tsc, sign)| (core, tsc, sign)).collect::<Vec<_>>()
        };
        let signs: Vec<_> = self.cores.iter_mut().flat_map(of_core).collect();
        let contradictions = timed.then(|| Contradictions::of(signs.into_iter()));
        let contradictions = contradictions.and_then(|contradictions| contradictions.warning());
        [self.impossible.warning(), contradictions].into_iter().flatten()
    }

    /// Who ran on a core that has packets: as it began, and all switches. Without records of either, as of a thread that nobody
    /// else took the core from while a file of `perf record --switch-output` was written, who ran as packets were handed out.
    /// `decodable`: there is something in them.
    pub fn take(&mut self, core: u32, decodable: impl FnOnce() -> bool) -> (Option<Switch>, Vec<Switch>) {
        let told = self.cores.remove(&core).unwrap_or_default().switches();
        if told.0.is_some() || !told.1.is_empty() {
            return told;
        }
        let (begins, switches) = self.buffers.ran(core).switches();
        let threads: BTreeSet<_> = switches.iter().map(|switch| switch.tid).collect();
        match threads.len() {
            0 if !self.buffers.knows(core) && decodable() => self.untold.push(core),
            0 | 1 => {}
            _ => self.guessed.push(core),
        }
        (begins, switches)
    }

    /// Those of which records say something.
    pub fn cores(&self) -> Vec<u32> {
        self.cores.keys().copied().collect()
    }

    /// What is not known of the cores that were taken.
    pub fn unknown(&self) -> impl Iterator<Item = String> + use<'_> {
        let untold =
            "no record says who ran there: nobody knows whose packets these are; record without --no-switch-events";
        let guessed =
            "no record of a switch says who ran there: packets are taken for those of the thread that ran as the \
                       kernel handed them out; record without --no-switch-events";
        let all = [(&self.untold, untold), (&self.guessed, guessed)].into_iter().filter(|(cores, _)| !cores.is_empty());
        all.map(|(cores, what)| {
            let what_of = if cores.len() == 1 { "core" } else { "cores" };
            format!("{what_of} {}: {what}", first_of(cores, u32::to_string))
        })
    }

    /// Why it is not known who ran on the cores, and the way out. `format`: of the samples is known.
    pub fn doubt(&self, switches: Switches, format: bool) -> Option<String> {
        let threads = self.pids.keys().filter(|&&tid| tid != 0 && tid != u32::MAX).count();
        let (why, way_out) = match switches {
            Switches::Samples if !format => (
                "samples of sched:sched_switch tell who ran, but their format is not in the file",
                "end perf with SIGINT, or record under Linux 4.3 or later, which has switch records",
            ),
            Switches::Untold if threads > 1 && !self.switched => (
                "nothing was recorded of who ran",
                "record with times and without --no-switch-events, or given threads with --per-thread",
            ),
            _ => return None,
        };
        Some(format!("{why}: what a core ran is taken for that of the thread for which tracing began there; {way_out}"))
    }
}

/// Some of them in words, for people.
pub fn first_of<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    let first: Vec<_> = all.iter().take(8).map(text).collect();
    first.join(", ") + if all.len() > first.len() { ", ..." } else { "" }
}

#[cfg(test)]
mod tests;

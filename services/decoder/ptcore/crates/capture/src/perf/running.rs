//! Who runs on the cores, from the records of a recording.

use super::attributes::SampleId;
use super::pt_info::Switches;
use crate::contradictions::Contradictions;
use crate::ids::Impossible;
use crate::on_core::{OnCore, Sign, Who};
use std::collections::{BTreeMap, HashMap};

/// -1: no core, or a thread that has ended.
const NONE: u32 = u32::MAX;

/// Gathers the records that say who ran where.
#[derive(Default)]
pub struct Running {
    /// Processes by tid.
    pub pids: HashMap<u32, u32>,
    cores: BTreeMap<u32, OnCore>,
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

    pub fn take(&mut self, core: u32) -> OnCore {
        self.cores.remove(&core).unwrap_or_default()
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

#[cfg(test)]
mod tests;

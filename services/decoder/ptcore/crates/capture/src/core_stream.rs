//! The packets of a core on which nothing but user code of some processes was traced, divided by its switch records.

use crate::attribute::{place, Placed};
use crate::contradictions::Contradictions;
use crate::ids::Impossible;
use crate::on_core::Sign;
use crate::runs::{epoch_at, runs, Spaces};
use crate::stays::Stays;
use crate::{Switch, View, Views};
use pt_flow::Config;
use std::collections::HashMap;

/// `struct permille_switch`, and the records of session archives.
const RECORD: usize = 24;

/// From which TSC on which epoch holds, by process.
pub type Epochs = HashMap<u32, Vec<(u64, u32)>>;

/// A core's stream with who ran in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    /// From which offset on which view holds. Their image is 0: whoever has images knows which.
    pub turns: Vec<(usize, View)>,
    /// How many turns there were; for how many several places were as good, and for how many only clock packets tell.
    pub total: usize,
    pub ambiguous: usize,
    pub coarse: usize,
}

/// The switch records of all cores.
pub struct SwitchRecords {
    /// Each with its core.
    switches: Vec<(u32, Switch)>,
    stays: Stays,
    impossible: Impossible,
}

impl SwitchRecords {
    /// Bytes behind the last whole record are ignored, and records of what cannot be.
    pub fn read(records: &[u8]) -> Self {
        let word = |record: &[u8], at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[at + byte]));
        let read = |record: &[u8]| {
            let tsc = u64::from(word(record, 4)) << 32 | u64::from(word(record, 0));
            let (pid, tid, enters) = (word(record, 12), word(record, 16), word(record, 20) == 1);
            (word(record, 8), Switch { tsc, pid, tid, enters })
        };
        let mut impossible = Impossible::default();
        let may_be = |&(core, Switch { pid, tid, .. }): &(u32, Switch)| impossible.allows(core, pid, tid);
        let switches: Vec<_> = records.chunks_exact(RECORD).map(read).filter(may_be).collect();
        let stays = Stays::of(switches.iter().copied());
        SwitchRecords { switches, stays, impossible }
    }

    /// What is wrong with them.
    pub fn warnings(&self) -> impl Iterator<Item = String> + use<> {
        let sign = |&(core, Switch { tsc, pid, tid, enters }): &(u32, Switch)| match enters {
            true => (core, tsc, Sign::Enters((pid, tid))),
            false => (core, tsc, Sign::Leaves(Some((pid, tid)))),
        };
        let mut signs: Vec<_> = self.switches.iter().map(sign).collect();
        signs.sort_by_key(|&(core, tsc, _)| (core, tsc));
        let contradictions = Contradictions::of(signs.into_iter());
        [self.impossible.warning(), contradictions.warning()].into_iter().flatten()
    }

    /// The cores that threads were on.
    pub fn stays(self) -> Stays {
        self.stays
    }

    /// Those of one core, by time.
    pub fn of(&self, core: u32) -> Vec<Switch> {
        let mut own: Vec<_> = self.switches.iter().filter(|&&(of, _)| of == core).map(|&(_, switch)| switch).collect();
        own.sort_by_key(|switch| switch.tsc);
        own
    }
}

struct Processes<'e> {
    epochs: &'e Epochs,
    stays: &'e Stays,
    views: Views,
}

impl Spaces for Processes<'_> {
    fn view(&mut self, pid: u32, tid: u32, tsc: u64) -> u32 {
        let epoch = epoch_at(self.epochs(pid), tsc);
        self.views.number(View { pid, tid, image: 0, epoch, kernel: 0, stay: self.stays.before(tid, tsc) })
    }

    fn epochs(&mut self, pid: u32) -> &[(u64, u32)] {
        self.epochs.get(&pid).map_or(&[], Vec::as_slice)
    }

    fn space_of(&self, pid: u32) -> u32 {
        pid
    }
}

/// Divides the stream of a core among the threads that `records` tell of.
///
/// Nobody else is traced: what stands before the first thread's arrival is that thread's, what stands behind the last
/// one's departure that one's.
pub fn divide(data: &[u8], config: &Config, records: &SwitchRecords, core: u32, epochs: &Epochs) -> Divided {
    let mut processes = Processes { epochs, stays: &records.stays, views: Views::default() };
    let (mut first, mut turns) = runs(&mut processes, None, &records.of(core));
    let views = processes.views;
    turns.retain(|turn| views[turn.view as usize].tid != 0);
    if views[first as usize].tid == 0 && !turns.is_empty() {
        first = turns.remove(0).view;
    }
    let Placed { epochs, ambiguous, coarse, .. } = place(data, config, first, &turns);
    let turn = |(offset, view): (usize, u32)| (offset, views[view as usize]);
    Divided { turns: epochs.into_iter().map(turn).collect(), total: turns.len(), ambiguous, coarse }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(records: &[(u64, u32, u32, u32, u32)]) -> SwitchRecords {
        let record = |&(tsc, core, pid, tid, enters): &(u64, u32, u32, u32, u32)| {
            [&tsc.to_le_bytes()[..], &[core, pid, tid, enters].map(u32::to_le_bytes).concat()].concat()
        };
        SwitchRecords::read(&records.iter().flat_map(record).collect::<Vec<_>>())
    }

    #[test]
    fn records_of_what_no_system_has_are_told_and_left_out() {
        let odd = [(20, 0, 7, 1 << 31, 1), (30, 0, u32::MAX, 71, 0), (40, 1 << 31, 7, 71, 1)];
        let read = records(&[&[(10, 0, 7, 70, 1)], &odd[..], &[(50, 0, 7, 70, 0)]].concat());
        let told: Vec<_> = read.of(0).iter().map(|switch| (switch.tsc, switch.tid)).collect();
        assert_eq!((told, read.of(1 << 31)), (vec![(10, 70), (50, 70)], vec![]));
        let first = "the first: core 0, process 7, thread 2147483648";
        let expected = format!("3 records name what no system has, and are left out; {first}");
        assert_eq!(read.warnings().collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn records_that_contradict_each_other_are_told() {
        let read = records(&[(10, 0, 7, 70, 1), (20, 1, 7, 70, 1), (30, 1, 7, 70, 0), (40, 0, 7, 70, 0)]);
        let told: Vec<_> = read.warnings().collect();
        let first = "the first on core 1 at TSC 20: thread 70 comes, and is on core 0 still";
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with(&format!("1 records of switches contradict others, {first}")), "{told:?}");
    }
}

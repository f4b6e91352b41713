//! What AUX records say of the buffers of packets: who ran as the kernel handed out a part, and how much it handed out.

use super::attributes::SampleId;
use crate::ids::possible;
use crate::on_core::{OnCore, Sign, Who};
use crate::Of;
use std::collections::BTreeMap;

/// Gathers these records.
#[derive(Default)]
pub struct Buffers {
    by_core: BTreeMap<u32, Buffer>,
    by_thread: BTreeMap<u32, Buffer>,
}

/// That of a core, or of a thread.
#[derive(Default)]
struct Buffer {
    records: u64,
    /// Up to where it was handed out, as the kernel counts.
    end: u64,
    /// It is written around: its records do not say how much there is.
    around: bool,
    /// Who ran from when on, TSC ticks: each for the first time after another.
    ran: Vec<(u64, Who)>,
    /// When the last part ended, TSC ticks.
    since: u64,
}

impl Buffers {
    /// Takes a record of the part that was handed out up to `end`: in it the kernel names who runs at that time, at the latest as it leaves
    /// the core (perf_event_aux_event in kernel/events/core.c of Linux).
    pub fn handed_out(&mut self, id: &SampleId, tsc: u64, end: u64, around: bool) {
        let of_core = id.cpu.map(|core| self.by_core.entry(core).or_default());
        let of_thread = id.tid.map(|tid| self.by_thread.entry(tid).or_default());
        for buffer in [of_core, of_thread].into_iter().flatten() {
            buffer.handed_out(id, tsc, end, around);
        }
    }

    /// Whether the core's, or the thread's, is one of which so many bytes are there in all.
    pub fn is_of_core(&self, core: u32, size: u64) -> bool {
        self.by_core.get(&core).is_some_and(|buffer| buffer.has(size))
    }

    pub fn of_thread(&self, size: u64) -> Option<u32> {
        let mut all = self.by_thread.iter().filter(|(_, buffer)| buffer.has(size)).map(|(&tid, _)| tid);
        all.next().filter(|_| all.next().is_none())
    }

    /// Up to where the buffer was handed out, as the kernel counts, where its records say it.
    pub fn end(&self, of: Of) -> Option<u64> {
        self.of(of).filter(|buffer| !buffer.around).map(|buffer| buffer.end)
    }

    fn of(&self, of: Of) -> Option<&Buffer> {
        match of {
            Of::Core(core) => self.by_core.get(&core),
            Of::Thread { tid, .. } => self.by_thread.get(&tid),
        }
    }

    /// How many bytes more there may be in front of a place than the kernel counts, in a buffer of so many bytes.
    pub fn filled_up(&self, of: Of, size: u64) -> u64 {
        self.of(of).filter(|buffer| buffer.has(size)).map_or(0, |buffer| size - buffer.end)
    }

    /// Who ran on the core as far as these records tell: nothing where the idle thread alone did.
    pub fn ran(&self, core: u32) -> OnCore {
        let mut on_core = OnCore::default();
        for &(since, who) in self.by_core.get(&core).iter().flat_map(|buffer| &buffer.ran) {
            on_core.saw(since, Sign::Traced(who));
        }
        on_core
    }

    /// Whether any part was handed out on the core.
    pub fn knows(&self, core: u32) -> bool {
        self.by_core.contains_key(&core)
    }
}

impl Buffer {
    /// perf fills each part that it takes up to eight bytes, and takes no more parts than were handed out.
    fn has(&self, size: u64) -> bool {
        !self.around && (self.end..self.end.saturating_add(self.records * 8)).contains(&size)
    }

    fn handed_out(&mut self, id: &SampleId, tsc: u64, end: u64, around: bool) {
        self.records += 1;
        self.end = self.end.max(end);
        self.around |= around;
        let who = id
            .pid
            .zip(id.tid)
            .filter(|&(pid, tid)| tid != 0 && possible(pid.into()).and(possible(tid.into())).is_some());
        if let Some(who) = who.filter(|who| self.ran.last().is_none_or(|(_, last)| last != who)) {
            self.ran.push((self.since, who));
        }
        self.since = tsc;
    }
}

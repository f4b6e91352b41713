//! Who ran on a core, from LLDB's records of its switches: PERF_RECORD_SWITCH_CPU_WIDE with {pid, tid, time} as sample id
//! (perf_event_open(2)).
//!
//! Saving with `--compact`, LLDB leaves out the records of all processes but the bundle's, not their packets
//! (FilterProcessesFromContextSwitchTrace). Each record names the thread on the other side of the switch: where that is
//! not the one that the next record is of, nobody is known to run.

use crate::conversion::Conversion;
use crate::fields::{Fields, Short};
use crate::ids::Impossible;
use crate::on_core::{OnCore, Sign, Who, NOBODY};
use crate::perf::record::{kind, Record, HEAD};
use crate::CaptureError;
use std::path::Path;

#[derive(Default)]
pub struct Switches {
    /// What the records say, by time.
    pub signs: Vec<(u64, Sign)>,
    /// The same, with nobody where records were left out.
    pub on_core: OnCore,
    /// There are none of some who ran.
    pub incomplete: bool,
    lost: Lost,
}

/// Records that found no room.
#[derive(Default)]
struct Lost {
    count: u64,
    /// When the first ones were told of, TSC ticks.
    first: Option<u64>,
}

/// A record of a switch.
struct Switch {
    tsc: u64,
    sign: Sign,
    /// Who comes behind who leaves, or left in front of who comes.
    other: Sign,
}

impl Switches {
    pub fn read(
        path: &Path,
        data: &[u8],
        conversion: Conversion,
        core: u32,
        impossible: &mut Impossible,
    ) -> Result<Self, CaptureError> {
        let (mut told, mut lost) = (Vec::new(), Lost::default());
        let mut next = 0;
        let damaged = |at: usize| move |what: String| CaptureError::damaged(path, at, what);
        while let Some(record) = Record::at(data, next).map_err(damaged(next))? {
            let short = |short: Short| damaged(next)(short.to_string());
            match record.kind {
                kind::SWITCH_CPU_WIDE => {
                    let switch = Switch::of(&record, conversion).map_err(short)?;
                    if switch.sign.who().is_none_or(|(pid, tid)| impossible.allows(core, pid, tid)) {
                        told.push(switch);
                    }
                }
                kind::LOST | kind::LOST_SAMPLES => lost.take(&record, conversion).map_err(short)?,
                _ => {}
            }
            next += HEAD + record.body.len();
        }
        told.sort_by_key(|switch| switch.tsc);
        let mut switches = Switches { lost, ..Switches::default() };
        let mut before: Option<&Switch> = None;
        for switch in &told {
            if let Some(before) = before {
                switches.between(before, switch);
            }
            switches.signs.push((switch.tsc, switch.sign));
            switches.on_core.saw(switch.tsc, switch.sign);
            before = Some(switch);
        }
        Ok(switches)
    }

    /// What two records say that follow one another, besides what each says.
    fn between(&mut self, before: &Switch, switch: &Switch) {
        let leaves = (switch.tsc, Sign::Leaves(None));
        match (before.sign, switch.sign) {
            (Sign::Leaves(_), comes @ Sign::Enters(_)) if before.other != comes => {
                self.incomplete = true;
                self.on_core.saw(before.tsc, Sign::Enters(NOBODY));
                self.on_core.saw(leaves.0, leaves.1);
            }
            // It left unseen: as far as is known, here. One that has ended leaves without a name, for which LLDB leaves it out.
            (Sign::Enters(_), Sign::Enters(_)) => {
                self.on_core.saw(leaves.0, leaves.1);
                self.signs.extend((switch.other == Sign::Leaves(None)).then_some(leaves));
            }
            _ => {}
        }
    }

    /// What is not told of the core.
    pub fn warning(&self, core: u32) -> Option<String> {
        let Lost { count, first } = self.lost;
        let place = first.map_or(String::new(), |tsc| format!(", the first in front of TSC {tsc}"));
        let doubt = "what ran there may be told of another thread";
        (count > 0).then(|| format!("core {core}: {count} records of switches were lost{place}: {doubt}"))
    }
}

impl Switch {
    fn of(record: &Record, conversion: Conversion) -> Result<Self, Short> {
        let mut body = Fields::new(record.body, 0);
        let mut who = || Ok::<Who, Short>((body.u32()?, body.u32()?));
        let (other, who) = (who()?, who()?);
        let out = record.is_switch_out();
        let tsc = conversion.ticks(body.u64()?);
        Ok(Switch { tsc, sign: Sign::of_switch(who, out), other: Sign::of_switch(other, !out) })
    }
}

impl Lost {
    /// {id, count} or {count}, and the sample id.
    fn take(&mut self, record: &Record, conversion: Conversion) -> Result<(), Short> {
        let mut body = Fields::new(record.body, if record.kind == kind::LOST { 8 } else { 0 });
        self.count = self.count.saturating_add(body.u64()?);
        let time = body.u64().and_then(|_| body.u64()).ok();
        self.first = self.first.or(time.map(|time| conversion.ticks(time)));
        Ok(())
    }
}

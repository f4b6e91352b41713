//! Who runs on one core, from all that records say of it.

use crate::Switch;

/// Process and thread.
pub type Who = (u32, u32);

/// What a record says of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Tracing begins while it runs (PERF_RECORD_ITRACE_START).
    Traced(Who),
    Enters(Who),
    Leaves(Who),
}

impl Sign {
    fn who(self) -> Who {
        let (Sign::Traced(who) | Sign::Enters(who) | Sign::Leaves(who)) = self;
        who
    }
}

/// All signs of a core with their times, in TSC ticks.
#[derive(Default)]
pub struct OnCore(Vec<(u64, Sign)>);

impl OnCore {
    pub fn saw(&mut self, tsc: u64, sign: Sign) {
        self.0.push((tsc, sign));
    }

    /// Who ran when tracing of the core began, where that is told, and all switches by time.
    pub fn switches(mut self) -> (Option<Switch>, Vec<Switch>) {
        self.0.sort_by_key(|&(tsc, _)| tsc);
        let begins = self.begins();
        let (mut switches, mut running) = (Vec::new(), None);
        for (tsc, sign) in self.0 {
            let switch = |(pid, tid), enters| Switch { tsc, pid, tid, enters };
            let traced = matches!(sign, Sign::Traced(_));
            match (sign, running) {
                // Tracing begins on the way in: the kernel tells one arrival twice.
                (Sign::Traced(who) | Sign::Enters(who), Some((before, early)))
                    if who == before && (traced || early) =>
                {
                    running = Some((who, false));
                }
                (Sign::Traced(who) | Sign::Enters(who), _) => {
                    switches.push(switch(who, true));
                    running = Some((who, traced));
                }
                (Sign::Leaves(who), _) => {
                    switches.push(switch(who, false));
                    running = None;
                }
            }
        }
        (begins, switches)
    }

    /// Whoever runs as tracing begins, unless another was seen before.
    fn begins(&self) -> Option<Switch> {
        let traced = self.0.iter().position(|(_, sign)| matches!(sign, Sign::Traced(_)))?;
        let (pid, tid) = self.0[traced].1.who();
        let alone = self.0[..traced].iter().all(|(_, sign)| sign.who() == (pid, tid));
        alone.then_some(Switch { tsc: self.0[0].0, pid, tid, enters: true })
    }
}

//! Who runs on one core, from all that records say of it.

use crate::Switch;

/// Process and thread.
pub type Who = (u32, u32);

/// The idle thread, and whoever is not known.
pub const NOBODY: Who = (0, 0);

/// What a record says of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Tracing begins while it runs (PERF_RECORD_ITRACE_START).
    Traced(Who),
    Enters(Who),
    /// `None`: whoever runs.
    Leaves(Option<Who>),
    /// It became another program: a thread that was not its process's first has another tid from then on.
    Execs(Who),
    /// Its last record: it runs no user code any more.
    Exits(Who),
}

impl Sign {
    /// What a record of a switch says. A thread that has ended leaves as -1, because the kernel has no pid for it any more
    /// (kernel/events/core.c, perf_event_pid_type); who arrives as -1 is the idle thread.
    pub fn of_switch((pid, tid): Who, out: bool) -> Self {
        let named = (pid != u32::MAX && tid != u32::MAX).then_some((pid, tid));
        if out {
            Sign::Leaves(named)
        } else {
            Sign::Enters(named.unwrap_or(NOBODY))
        }
    }

    pub fn who(self) -> Option<Who> {
        match self {
            Sign::Traced(who) | Sign::Enters(who) | Sign::Execs(who) | Sign::Exits(who) => Some(who),
            Sign::Leaves(who) => who,
        }
    }
}

/// All signs of a core with their times, in TSC ticks.
#[derive(Default)]
pub struct OnCore(Vec<(u64, Sign)>);

impl OnCore {
    pub fn saw(&mut self, tsc: u64, sign: Sign) {
        self.0.push((tsc, sign));
    }

    /// By time.
    pub fn signs(&mut self) -> &[(u64, Sign)] {
        self.0.sort_by_key(|&(tsc, _)| tsc);
        &self.0
    }

    /// Who ran when tracing of the core began, where that is told, and all switches by time.
    pub fn switches(mut self) -> (Option<Switch>, Vec<Switch>) {
        self.signs();
        let begins = self.begins();
        let mut told = Told::default();
        for (tsc, sign) in self.0 {
            told.take(tsc, sign);
        }
        told.end();
        (begins, told.switches)
    }

    /// Whoever runs as tracing begins, unless another was seen before.
    fn begins(&self) -> Option<Switch> {
        let traced = self.0.iter().position(|(_, sign)| matches!(sign, Sign::Traced(_)))?;
        let (pid, tid) = self.0[traced].1.who()?;
        let alone = self.0[..traced].iter().all(|(_, sign)| sign.who() == Some((pid, tid)));
        alone.then_some(Switch { tsc: self.0[0].0, pid, tid, enters: true })
    }
}

#[derive(Default)]
struct Told {
    switches: Vec<Switch>,
    running: Option<Who>,
    /// Tracing began for whoever runs, on its way in: the kernel tells of its arrival once more.
    early: bool,
    /// Whoever runs said that it ends.
    ended: Option<u64>,
}

impl Told {
    fn take(&mut self, tsc: u64, sign: Sign) {
        let early = std::mem::take(&mut self.early);
        match sign {
            Sign::Traced(who) if self.running == Some(who) => {}
            Sign::Enters(who) if self.running == Some(who) && early => {}
            Sign::Execs((pid, tid)) => {
                if self.running.is_some_and(|(process, thread)| process == pid && thread != tid) {
                    self.enters(tsc, (pid, tid));
                }
            }
            Sign::Traced(who) | Sign::Enters(who) => {
                self.end();
                self.enters(tsc, who);
                self.early = matches!(sign, Sign::Traced(_));
            }
            Sign::Leaves(who) => {
                let who = who.or(self.running).unwrap_or(NOBODY);
                if self.running != Some(who) {
                    self.end();
                }
                self.leaves(tsc, who);
            }
            Sign::Exits(who) => {
                if self.running.is_some_and(|running| running != who) {
                    self.end();
                    self.enters(tsc, who);
                }
                (self.running, self.ended) = (Some(who), Some(tsc));
            }
        }
    }

    /// A thread that ended leaves where it said so, unless it is told when it left.
    fn end(&mut self) {
        if let (Some(tsc), Some(who)) = (self.ended, self.running) {
            self.leaves(tsc, who);
        }
    }

    fn enters(&mut self, tsc: u64, (pid, tid): Who) {
        self.switches.push(Switch { tsc, pid, tid, enters: true });
        (self.running, self.ended) = (Some((pid, tid)), None);
    }

    fn leaves(&mut self, tsc: u64, (pid, tid): Who) {
        self.switches.push(Switch { tsc, pid, tid, enters: false });
        (self.running, self.ended) = (None, None);
    }
}

//! Threads made up at random that take turns on two cores.

use crate::machine::Random;
use crate::nested::{Begins, Habits, Nested, SCHEDULER};
use crate::support::Sections;
use pt_capture::{Stays, Switch, View};
use pt_flow::{is_kernel, CodeMemory, CodeSlice};

/// The code of threads that take turns: each has a program of its own.
pub struct Codes<'c> {
    sections: Vec<&'c Sections>,
    views: &'c [View],
    pub hides_kernel: bool,
}

impl CodeMemory for Codes<'_> {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        let number = self.views[epoch as usize].tid - 1;
        if self.hides_kernel && is_kernel(address) {
            return None;
        }
        let slice = self.sections[number as usize].read(0, address)?;
        Some(CodeSlice { generation: u64::from(number) << 32 | slice.generation, ..slice })
    }

    fn thread(&self, epoch: u32) -> u64 {
        self.views[epoch as usize].thread()
    }
}

/// Threads that take turns on two cores.
pub struct Turns {
    pub habits: Habits,
    pub threads: Vec<Nested>,
    pub cores: [Vec<u8>; 2],
    /// Of each turn, and where it begins on its core.
    pub views: Vec<View>,
    pub epochs: [Vec<(usize, u32)>; 2],
    /// As `Config` has it.
    pub thread_switch: Option<u64>,
}

impl Turns {
    /// Nothing but their programs is traced.
    fn of_programs(seed: u64) -> Turns {
        Turns::of(seed, Habits { interrupts: [20, 300][seed as usize % 2], ..habits(seed) })
    }

    /// Their kernel is traced as well, but for where it goes from one of them to another.
    pub fn of_stopping_programs(seed: u64) -> Turns {
        let interrupts = [0, 50, 300][seed as usize % 3];
        Turns::of(seed, Habits { kernel: true, stops: true, interrupts, ..habits(seed) })
    }

    fn of(seed: u64, habits: Habits) -> Turns {
        let mut turns = Turns::new(habits, (0..3).map(|number| Nested::new(4 * seed + number, habits)).collect());
        let (mut random, mut over, mut core) = (Random(seed | 1 << 40), [false; 3], 0);
        while !over.iter().all(|over| *over) {
            let number = random.below(3);
            core = if random.below(4) == 0 { 1 - core } else { core };
            if !over[number] {
                let ends = turns.views.len() > 100;
                over[number] = turns.turn(number, core, |thread, stream| thread.turn(core, stream, ends));
            }
        }
        turns
    }

    /// They are a kernel's, and go over into each other in the midst of it, or into themselves.
    fn of_kernel(seed: u64) -> Turns {
        Turns::switching(seed, true)
    }

    /// The same; the kernel never switches from a thread to the same one.
    pub fn of_others(seed: u64) -> Turns {
        Turns { thread_switch: Some(SCHEDULER), ..Turns::switching(seed, false) }
    }

    fn switching(seed: u64, to_itself: bool) -> Turns {
        let habits = Habits { kernel: true, interrupts: [0, 50, 300][seed as usize % 3], ..habits(seed) };
        // The first two are idle, each on its core.
        let mut turns = Turns::new(habits, (0..5).map(|_| Nested::of_kernel(seed, habits)).collect());
        let mut random = Random(seed | 1 << 40);
        // Who runs, whether nothing is traced there, and who was running when tracing ended.
        let (mut runs, mut dark, mut stopped) = ([0, 1], [true; 2], [false; 5]);
        for turn in 0..100 {
            let core = if turn < 2 { turn } else { random.below(2) };
            let any = 2 + random.below(3);
            let mut next = if turn < 2 || runs[1 - core] == any || random.below(4) == 0 { core } else { any };
            if !to_itself && !dark[core] && runs[core] == next {
                let others = (core..5).filter(|&other| other == core || other > 1);
                next = others.filter(|&other| !runs.contains(&other)).min().unwrap_or(core);
            }
            let begins = match (dark[core], runs[core] == next) {
                (true, _) => Begins::Traced { anew: !stopped[next] },
                (false, true) => Begins::Still,
                (false, false) => Begins::Behind(next as u64 + 1),
            };
            dark[core] = turn >= 98 || random.below(10) == 0;
            (runs[core], stopped[next]) = (next, dark[core]);
            turns.turn(next, core, |thread, stream| {
                thread.turn_of_kernel(core, stream, begins);
                if stopped[next] {
                    thread.stop(stream);
                }
                false
            });
        }
        for core in (0..2).filter(|&core| !dark[core]) {
            turns.threads[runs[core]].stop(&mut turns.cores[core]);
        }
        turns
    }

    fn new(habits: Habits, threads: Vec<Nested>) -> Turns {
        let (cores, epochs) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
        Turns { habits, threads, cores, views: Vec::new(), epochs, thread_switch: None }
    }

    fn turn(&mut self, number: usize, core: usize, run: impl FnOnce(&mut Nested, &mut Vec<u8>) -> bool) -> bool {
        let (thread, stream) = (&mut self.threads[number], &mut self.cores[core]);
        self.epochs[core].push((stream.len(), self.views.len() as u32));
        let is_over = run(thread, stream);
        let stay = thread.moves();
        self.views.push(View { pid: 1, tid: number as u32 + 1, image: 0, epoch: 0, kernel: 0, stay });
        is_over
    }

    /// As a turn each takes a tick.
    pub fn stays(&self) -> Stays {
        let on_core = |core: usize| self.epochs[core].iter().map(move |&(_, turn)| (core as u32, turn));
        Stays::of((0..2).flat_map(on_core).map(|(core, turn)| {
            let View { pid, tid, .. } = self.views[turn as usize];
            (core, Switch { tsc: u64::from(turn) + 1, pid, tid, enters: true })
        }))
    }

    pub fn codes(&self) -> Codes<'_> {
        let sections = self.threads.iter().map(|thread| &thread.code).collect();
        Codes { sections, views: &self.views, hides_kernel: false }
    }
}

fn habits(seed: u64) -> Habits {
    let psb_bytes = [300, 3000, usize::MAX][seed as usize / 2 % 3];
    Habits {
        kernel: false,
        interrupts: 0,
        signals: 0,
        compressed: seed % 5 != 0,
        psb_bytes,
        stops: false,
        deferred: false,
    }
}

pub fn all_turns() -> impl Iterator<Item = (u64, Turns)> {
    let both = |seed| [(seed, Turns::of_programs(seed)), (seed, Turns::of_kernel(seed))];
    (1..=programs()).flat_map(both)
}

/// `PERMILLE_MUTATIONS` asks for more programs.
pub fn programs() -> u64 {
    std::env::var("PERMILLE_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

//! Who ran when, as views of the streams.

use crate::attribute::{place, Turn};
use crate::spaces::{Spaces, KERNEL};
use crate::{Capture, Of, Switch, View};
use pt_image::Image;
use std::collections::HashMap;

/// Numbers of a process in the capture: its image, and from which TSC on which epoch of that holds.
struct Process {
    image: usize,
    epochs: Vec<(u64, u32)>,
}

impl Process {
    /// Times at which an epoch begins, behind `since` and before `until`.
    fn within(&self, since: u64, until: u64) -> impl Iterator<Item = u64> + '_ {
        let first = self.epochs.partition_point(|&(tsc, _)| tsc <= since);
        self.epochs[first..].iter().map(|&(tsc, _)| tsc).take_while(move |&tsc| tsc < until)
    }

    fn epoch(&self, tsc: u64) -> u32 {
        let newer = self.epochs.partition_point(|&(since, _)| since <= tsc);
        newer.checked_sub(1).map_or(0, |last| self.epochs[last].1)
    }
}

/// Mappings of all images together are taken up to this many.
const MAX_CHANGES: usize = 1 << 23;

struct Timeline<'c> {
    capture: &'c mut Capture,
    spaces: &'c Spaces,
    processes: HashMap<u32, Process>,
    views: HashMap<View, u32>,
    /// Number of the image without anything.
    nobody: usize,
    user_only: bool,
    /// In all images so far.
    changes: usize,
}

/// Gives every stream of the capture its image and its epochs. `user_only`: the kernel was not traced, so that the
/// idle thread leaves no packets.
pub fn attach(capture: &mut Capture, spaces: &Spaces, user_only: bool) {
    capture.images.push(Image::new());
    let nobody = capture.images.len() - 1;
    let mut timeline =
        Timeline { capture, spaces, processes: HashMap::new(), views: HashMap::new(), nobody, user_only, changes: 0 };
    if spaces.knows(KERNEL) {
        timeline.capture.kernel = Some(timeline.process(KERNEL).image);
    }
    for number in 0..timeline.capture.streams.len() {
        timeline.stream(number);
    }
}

impl Timeline<'_> {
    fn stream(&mut self, number: usize) {
        let stream = &self.capture.streams[number];
        let (data, of) = (stream.data.clone(), stream.of);
        let switches = stream.switches.clone();
        let (first, turns) = match of {
            Of::Thread { pid, tid } => (self.view(pid, tid, 0), self.changes(pid, tid, 0, u64::MAX)),
            Of::Core(_) => self.runs(&switches),
        };
        let placed = place(&data, &self.capture.config, first, &turns);
        let stream = &mut self.capture.streams[number];
        stream.epochs = placed.epochs;
        stream.image = self.capture.views[first as usize].image;
        let name = &stream.name;
        let told = [(placed.ambiguous, "several places fit"), (placed.coarse, "only the clock packets tell")];
        for (count, what) in told.into_iter().filter(|&(count, _)| count > 0) {
            let warning = format!("{name}: {count} of {} changes of thread or mappings: {what}", turns.len());
            self.capture.warnings.push(warning);
        }
    }

    /// The turns of a core, and who ran at the beginning.
    fn runs(&mut self, switches: &[Switch]) -> (u32, Vec<Turn>) {
        let switches: Vec<_> = switches.iter().filter(|switch| !(self.user_only && switch.tid == 0)).copied().collect();
        let (mut turns, mut running) = (Vec::new(), None);
        let first = match switches.first() {
            Some(switch) if !switch.enters => {
                running = Some((switch.pid, switch.tid, 0));
                self.view(switch.pid, switch.tid, 0)
            }
            _ => self.view(0, 0, 0),
        };
        // Since when it is possible that another thread runs.
        let mut free = None;
        for switch in switches {
            let who = (switch.pid, switch.tid);
            let known = running.filter(|&(pid, tid, _)| (pid, tid) == who);
            if switch.enters || known.is_none() {
                let from = free.or(running.map(|(_, _, since)| since)).unwrap_or(switch.tsc);
                self.run(&mut turns, running, switch.tsc);
                let view = self.view(switch.pid, switch.tid, switch.tsc);
                turns.push(Turn { from: from.min(switch.tsc), to: switch.tsc, view, pid: self.process_of(switch.pid) });
                running = Some((switch.pid, switch.tid, switch.tsc));
            }
            if !switch.enters {
                self.run(&mut turns, running, switch.tsc);
                running = None;
            }
            free = (!switch.enters).then_some(switch.tsc);
        }
        self.run(&mut turns, running, u64::MAX);
        if let Some(tsc) = free {
            let view = self.view(0, 0, tsc);
            turns.push(Turn { from: tsc, to: tsc, view, pid: 0 });
        }
        turns.dedup_by(|next, turn| next.view == turn.view);
        (first, turns)
    }

    /// Changes of the address space while a thread runs.
    fn run(&mut self, turns: &mut Vec<Turn>, running: Option<(u32, u32, u64)>, until: u64) {
        if let Some((pid, tid, since)) = running {
            turns.append(&mut self.changes(pid, tid, since, until));
        }
    }

    fn changes(&mut self, pid: u32, tid: u32, since: u64, until: u64) -> Vec<Turn> {
        let mut times: Vec<_> = self.process(pid).within(since, until).collect();
        times.extend(self.process(KERNEL).within(since, until));
        times.sort_unstable();
        times.dedup();
        let turn = |tsc| Turn { from: tsc, to: tsc, view: self.view(pid, tid, tsc), pid: 0 };
        times.into_iter().map(turn).collect()
    }

    /// The pid where it has an address space of its own: kernel threads run in that of whoever ran before.
    fn process_of(&self, pid: u32) -> u32 {
        if self.spaces.knows(pid) {
            pid
        } else {
            0
        }
    }

    fn view(&mut self, pid: u32, tid: u32, tsc: u64) -> u32 {
        let kernel = self.process(KERNEL).epoch(tsc);
        let process = self.process(pid);
        let view = View { pid, tid, image: process.image, epoch: process.epoch(tsc), kernel };
        let views = &mut self.capture.views;
        *self.views.entry(view).or_insert_with(|| {
            views.push(view);
            (views.len() - 1) as u32
        })
    }

    fn process(&mut self, pid: u32) -> &Process {
        let Timeline { capture, spaces, processes, nobody, changes, .. } = self;
        processes.entry(pid).or_insert_with(|| {
            if !spaces.knows(pid) {
                return Process { image: *nobody, epochs: Vec::new() };
            }
            if *changes > MAX_CHANGES {
                return Process { image: *nobody, epochs: Vec::new() };
            }
            let built = spaces.build(pid);
            *changes += built.changes;
            if *changes > MAX_CHANGES {
                let what = "the code of later processes is left out: import a shorter recording";
                capture.warnings.push(format!("more than {MAX_CHANGES} mappings: {what}"));
            }
            capture.warnings.extend(built.refused.iter().map(|what| format!("process {pid}: {what}")));
            capture.images.push(built.image);
            Process { image: capture.images.len() - 1, epochs: built.epochs }
        })
    }
}

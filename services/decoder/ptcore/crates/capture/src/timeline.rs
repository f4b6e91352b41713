//! Who ran when, as views of the streams.

use crate::attribute::Turn;
use crate::by_time::ByTime;
use crate::guests::GUEST;
use crate::runs::{self, changes, epoch_at, Spaces as _};
use crate::spaces::{Spaces, KERNEL};
use crate::stays::Stays;
use crate::{given, Capture, Of, Options, Switch, View};
use pt_image::Image;
use std::collections::HashMap;

/// Numbers of a process in the capture: its image, and from which TSC on which epoch of that holds.
struct Process {
    image: usize,
    epochs: Vec<(u64, u32)>,
}

/// Mappings of all images together are taken up to this many.
const MAX_CHANGES: usize = 1 << 23;

/// Of a stream so many bytes are read before their memory is given back.
const RELEASE: usize = 1 << 26;

struct Timeline<'c> {
    capture: &'c mut Capture,
    spaces: &'c Spaces,
    processes: HashMap<u32, Process>,
    /// Number of the image without anything.
    nobody: usize,
    stays: Stays,
    user_only: bool,
    as_listed: bool,
    /// In all images so far.
    changes: usize,
}

/// Gives every stream of the capture its image and its epochs. `user_only`: the kernel was not traced, so that the
/// idle thread leaves no packets.
pub fn attach(capture: &mut Capture, spaces: &Spaces, user_only: bool, options: &Options) {
    let stays = Stays::of_streams(&capture.streams);
    attach_with(capture, spaces, stays, user_only, options);
}

/// The same where it is known which cores threads were on.
pub fn attach_with(capture: &mut Capture, spaces: &Spaces, stays: Stays, user_only: bool, options: &Options) {
    if options.packets_only {
        return;
    }
    // It holds for where threads change as well.
    given::take_over(capture, options);
    capture.images.push(Image::new());
    let nobody = capture.images.len() - 1;
    let mut timeline = Timeline {
        capture,
        spaces,
        processes: HashMap::new(),
        nobody,
        stays,
        user_only,
        as_listed: options.as_listed,
        changes: 0,
    };
    if spaces.knows(KERNEL) {
        timeline.capture.kernel = Some(timeline.process(KERNEL).image);
    }
    for number in 0..timeline.capture.streams.len() {
        timeline.stream(number);
    }
    timeline.capture.stays = Some(timeline.stays);
}

impl runs::Spaces for Timeline<'_> {
    fn view(&mut self, pid: u32, tid: u32, tsc: u64) -> u32 {
        let kernel = epoch_at(&self.process(KERNEL).epochs, tsc);
        let stay = self.stays.before(tid, tsc);
        let process = self.process(pid);
        let view = View { pid, tid, image: process.image, epoch: epoch_at(&process.epochs, tsc), kernel, stay };
        self.capture.views.number(view)
    }

    fn epochs(&mut self, pid: u32) -> &[(u64, u32)] {
        &self.process(pid).epochs
    }

    /// Kernel threads run in the address space of whoever ran before.
    fn space_of(&self, pid: u32) -> u32 {
        if self.spaces.knows(pid) {
            pid
        } else {
            0
        }
    }
}

impl Timeline<'_> {
    fn stream(&mut self, number: usize) {
        let stream = &self.capture.streams[number];
        let (data, of) = (stream.data.clone(), stream.of);
        let (begins, switches) = (stream.begins, stream.switches.clone());
        let (first, turns) = match of {
            Of::Thread { pid, tid } => (self.view(pid, tid, 0), changes(self, pid, tid, 0, u64::MAX)),
            Of::Core(_) => {
                let told = |switch: &Switch| !(self.user_only && switch.tid == 0);
                let switches: Vec<_> = switches.into_iter().filter(told).collect();
                runs::runs(self, begins, &switches)
            }
        };
        let alone = self.last_of_one_thread(first, &turns);
        let nobody = View { pid: 0, tid: 0, image: self.nobody, epoch: 0, kernel: GUEST, stay: 0 };
        let guest = self.capture.views.find(nobody).unwrap_or(self.capture.views.len() as u32);
        let stream = &self.capture.streams[number];
        let by_time = ByTime { first, turns, alone, guest, missing: stream.lost.clone() };
        let (epochs, by_time) = if self.as_listed {
            self.capture.views.number(nobody);
            (vec![(0, first)], Some(by_time))
        } else {
            let mut views = by_time.views(&data, &self.capture.config);
            let mut released = 0;
            let release = |&(at, _): &(usize, u32)| {
                if at >= released + RELEASE {
                    released = at;
                    data.release();
                }
            };
            let mut epochs: Vec<_> = views.by_ref().inspect(release).collect();
            epochs.dedup_by_key(|&mut (_, view)| view);
            if views.has_guests() {
                self.capture.views.number(nobody);
            }
            self.capture.warnings.extend(views.warnings(&stream.name));
            (epochs, None)
        };
        let stream = &mut self.capture.streams[number];
        stream.image = self.capture.views[epochs[0].1 as usize].image;
        (stream.epochs, stream.by_time) = (epochs, by_time);
    }

    /// What holds of a thread at last, if there is no other: without times that is likelier than what it began with, as
    /// the program that started it and had it traced.
    fn last_of_one_thread(&self, first: u32, turns: &[Turn]) -> Option<u32> {
        let tid = |view: u32| self.capture.views[view as usize].tid;
        let told = std::iter::once(first).chain(turns.iter().map(|turn| turn.view));
        let told: Vec<_> = told.filter(|&view| tid(view) != 0).collect();
        told.last().copied().filter(|_| told.windows(2).all(|pair| tid(pair[0]) == tid(pair[1])))
    }

    fn process(&mut self, pid: u32) -> &Process {
        let Timeline { capture, spaces, processes, nobody, changes, .. } = self;
        processes.entry(pid).or_insert_with(|| {
            if !spaces.knows(pid) || *changes > MAX_CHANGES {
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

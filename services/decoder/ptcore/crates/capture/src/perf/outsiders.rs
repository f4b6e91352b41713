//! Processes outside of the PID namespace that perf ran in, as where it ran in a container: all of them have the number 0
//! (kernel/events/core.c of Linux, perf_event_pid_type), which is that of the idle thread too.

use super::attributes::SampleId;
use super::record::Event;
use crate::spaces::{Content, Mapping, Spaces};

/// All that runs with the number 0.
const ALL: u32 = 0;
/// Where programs stand.
const USER_HALF: u64 = 1 << 63;

/// Whether any were seen.
#[derive(Default)]
pub struct Outsiders(bool);

impl Outsiders {
    /// Takes a record. Whether it tells of one alone: its code would be taken for that of all.
    ///
    /// The idle thread maps nothing, does not begin or end while something is recorded, and never takes a core from itself.
    pub fn saw(&mut self, event: &Event, id: &SampleId) -> bool {
        let tells_of_one = match *event {
            Event::Mmap { pid, kernel, .. } => pid == ALL && !kernel,
            Event::Comm { pid, exec, .. } => pid == ALL && exec,
            Event::Fork { pid, .. } | Event::Exit { pid, .. } => pid == ALL,
            _ => false,
        };
        let follows_another = matches!(event, Event::Switch { other: Some(ALL), .. }) && id.tid == Some(ALL);
        self.0 |= tells_of_one || follows_another;
        tells_of_one
    }

    pub fn are_there(&self) -> bool {
        self.0
    }

    /// Says of addresses of theirs why nothing is known there.
    pub fn leave_out(&self, spaces: &mut Spaces) {
        if self.0 {
            let reason = "a process outside of the PID namespace that perf ran in, or one that is not known".to_owned();
            let (name, content) = ("[outside]".to_owned(), Content::Missing { reason });
            spaces.map(ALL, 0, Mapping { address: 0, size: USER_HALF, name, content });
        }
    }

    pub fn warning(&self) -> Option<String> {
        let what = "processes outside of the PID namespace that perf ran in all have the number 0, as the idle thread has: what \
                    they ran is nobody's; record outside of it (`docker run --pid=host`, on the host)";
        self.0.then(|| what.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use crate::perf::recording::{halves, kcore, program, runs, Folder, Pipe, NOP_RET, TWO_NOPS_RET, USER};
    use crate::{Capture, Options};

    const WARNING: &str = "processes outside of the PID namespace that perf ran in all have the number 0";

    /// Thread 7 runs, then one of number 0, then thread 7 again. `begins` stands before.
    fn recorded(folder: &Folder, user_only: bool, switch: [u32; 2], begins: impl Fn(&mut Pipe)) -> Capture {
        program(folder, "mine", &NOP_RET);
        program(folder, "other", &TWO_NOPS_RET);
        let mut pipe = Pipe::new();
        if user_only {
            pipe.excludes_kernel();
        }
        pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/mine");
        begins(&mut pipe);
        pipe.enters((7, 7, 10, 0));
        pipe.leaves((7, 7, 150, 0));
        pipe.event(15, 2, &halves(&switch), (0, 0, 150, 0));
        pipe.leaves((0, 0, 250, 0));
        pipe.enters((7, 7, 250, 0));
        pipe.ran(0, &[(100, USER), (200, USER), (300, USER)]);
        pipe.open(folder, Options { kcore: kcore(folder).kcore, ..Options::default() })
    }

    #[test]
    fn what_a_process_outside_of_the_namespace_ran_is_nobodys() {
        let folder = Folder::new("outside");
        let told = |begins: fn(&mut Pipe), switch| {
            [true, false].map(|user_only| {
                let capture = recorded(&folder, user_only, switch, begins);
                let of_7 = runs(&capture).into_iter().find(|&(tid, _)| tid == 7);
                let mut views = capture.streams[0].epochs.iter().map(|&(_, view)| view);
                let other = views.rfind(|&view| capture.views[view as usize].tid == 0).unwrap();
                let why = capture.memory().why_no_code(other, USER);
                (of_7, why.starts_with("[outside]: "), capture.warnings.iter().any(|one| one.starts_with(WARNING)))
            })
        };
        let whole = [(); 2].map(|()| (Some((7, vec![2, 2])), true, true));
        // It maps a program of its own.
        assert_eq!(told(|pipe| pipe.maps((0, 0, 6, 0), USER, 4, 0x1000, "/other"), [7, 7]), whole);
        // It takes the core from another one.
        assert_eq!(told(|_| {}, [0, 0]), whole);
    }

    #[test]
    fn the_idle_thread_is_none() {
        let folder = Folder::new("no-outside");
        let capture = recorded(&folder, true, [7, 7], |_| {});
        assert_eq!(capture.warnings, Vec::<String>::new());
        // The kernel was not traced: it left no packets.
        assert_eq!(runs(&capture), [(7, vec![2, 2, 2])]);
    }
}

//! How much of what ran a recording has, by how it was set up, and the ways to more.

use super::pt_info::{PtInfo, Switches};
use super::records::Records;

impl Records {
    /// Whether all that threads ran on any core is there, but for what was lost on the way.
    pub fn have_all_cores(&self) -> bool {
        let told = |info: PtInfo| !info.snapshots && info.switches != Switches::Untold;
        // Samples have what ran in front of each of them alone.
        self.info.is_some_and(told) && !self.attributes.sample_packets() && self.some_cores().is_none()
    }

    /// What is not there, and why. `of_cores`: there are streams of cores.
    pub fn scope_warnings(&self, of_cores: bool) -> impl Iterator<Item = String> {
        let branches = self.info.is_some_and(|info| info.leaves_out_branches(&self.attributes.all)).then(|| {
            "no branches were recorded (branch=0): nothing says what ran, only what other packets tell is there; record them \
             with `perf record -e intel_pt//`"
                .to_owned()
        });
        let pauses = self.attributes.all.iter().any(|attribute| attribute.pauses).then(|| {
            "tracing was paused and resumed (aux-action): where is not told, and calls go on over what ran meanwhile; record \
             without aux-action to have all of them"
                .to_owned()
        });
        let cores = self.some_cores().filter(|_| of_cores).map(|(recorded, online)| {
            format!(
                "{recorded} of {online} cores were recorded: what threads ran on others is missing, and calls that they came back \
                 from look as if a signal had interrupted them; record without --cpu to have all cores"
            )
        });
        [branches, pauses, cores].into_iter().flatten()
    }

    /// How many cores were recorded, and how many the system had, where these are not all. The event is opened for each core that is
    /// recorded, and for each thread there.
    fn some_cores(&self) -> Option<(usize, usize)> {
        let opened = self.attributes.opened(self.info?.pmu);
        let online = self.features.online as usize;
        (1..online).contains(&opened).then_some((opened, online))
    }
}

#[cfg(test)]
mod tests {
    use crate::perf::recording::{halves, program, words, Folder, Pipe, NOP_RET, USER};
    use crate::{Capture, Options};

    /// perf_event_attr of the event, to its end in Linux 6.13, with its ids.
    fn event(config: u64, aux_action: u32, ids: &[u64]) -> Vec<u8> {
        let head = [halves(&[8, 136]), words(&[config, 0, 0x86, 0, 1 << 18, 0, 0, 0, 0, 0, 0, 0, 0])].concat();
        [head, halves(&[0, aux_action]), words(&[0, 0]), words(ids)].concat()
    }

    /// A recording of a thread that ran on a core, on a system of two.
    fn recorded(folder: &Folder, event: &[u8]) -> Capture {
        program(folder, "work", &NOP_RET);
        let mut pipe = Pipe(Pipe::new().0[..16].to_vec());
        pipe.record(64, 0, event);
        pipe.record(70, 0, &words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1]));
        pipe.cpu("GenuineIntel,6,122,1");
        // NRCPUS: those that there may be, and those that are online.
        pipe.record(80, 0, &[words(&[7]), halves(&[4, 2])].concat());
        pipe.maps((7, 7, 5, 0), USER, 4, 0x1000, "/work");
        pipe.enters((7, 7, 10, 0));
        pipe.ran(0, &[(100, USER)]);
        pipe.open(folder, Options::default())
    }

    #[test]
    fn a_recording_of_some_cores_does_not_tell_where_threads_were_meanwhile() {
        let folder = Folder::new("some-cores");
        let told = |ids: &[u64]| {
            let capture = recorded(&folder, &event(1 << 13 | 1, 0, ids));
            (capture.stays.is_some(), capture.warnings)
        };
        let warning =
            "1 of 2 cores were recorded: what threads ran on others is missing, and calls that they came back from \
                       look as if a signal had interrupted them; record without --cpu to have all cores";
        assert_eq!(told(&[71]), (false, vec![warning.to_owned()]));
        // For each core and thread, and where nothing is said.
        assert_eq!([&[71, 72][..], &[71, 72, 73, 74], &[]].map(told), [(); 3].map(|()| (true, Vec::new())));
    }

    #[test]
    fn events_without_branches_or_with_pauses_are_told() {
        let folder = Folder::new("scope");
        let begins = |event: &[u8], begin: &str| {
            let warnings = recorded(&folder, event).warnings;
            warnings.len() == 1 && warnings[0].starts_with(begin)
        };
        assert!(begins(&event(1, 0, &[]), "no branches were recorded (branch=0)"));
        for aux_action in [1, 2, 4] {
            assert!(begins(&event(1 << 13 | 1, aux_action, &[]), "tracing was paused and resumed (aux-action)"));
        }
        assert_eq!(recorded(&folder, &event(0, 0, &[])).warnings, Vec::<String>::new());
    }
}

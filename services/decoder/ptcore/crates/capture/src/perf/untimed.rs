//! Mappings of which no record says when they were made, as those of `perf record --per-thread`: of several at one place the last
//! one holds from the beginning.

use std::collections::BTreeMap;

/// Gathers such mappings.
#[derive(Default)]
pub struct Untimed {
    /// End and file by process and address; none overlaps another.
    mapped: BTreeMap<(u32, u64), (u64, String)>,
    /// How often a file took the place of another.
    replaced: u64,
}

impl Untimed {
    pub fn exec(&mut self, pid: u32) {
        self.mapped.retain(|&(mapped, _), _| mapped != pid);
    }

    pub fn map(&mut self, pid: u32, address: u64, size: u64, name: &str) {
        let end = address.saturating_add(size);
        let before = self.mapped.range((pid, 0)..(pid, end)).rev().take_while(|(_, (end, _))| *end > address);
        let before: Vec<_> = before.map(|(&place, (_, file))| (place, file != name)).collect();
        self.replaced += u64::from(before.iter().any(|&(_, other)| other));
        for (place, _) in before {
            self.mapped.remove(&place);
        }
        self.mapped.insert((pid, address), (end, name.to_owned()));
    }

    pub fn doubt(&self) -> Option<String> {
        let what = "no record says when: the last one is taken to have been there from the beginning; record without --per-thread";
        (self.replaced > 0)
            .then(|| format!("{} times a file was mapped where another had been, and {what}", self.replaced))
    }
}

#[cfg(test)]
mod tests {
    use crate::elf;
    use crate::perf::recording::{halves, kcore, program, runs, text, words, Folder, Pipe};
    use crate::perf::recording::{KERNEL, NOP_RET, TWO_NOPS_RET, USER};
    use crate::{open, Of, Options};
    use pt_packet::{writer::write, Compression, Ip, Packet};

    /// What `perf record --per-thread` writes: records say who it was, neither when nor where.
    struct PerThread(Pipe);

    impl PerThread {
        fn new() -> Self {
            let mut pipe = Pipe([&b"PERFILE2"[..], &16u64.to_le_bytes()].concat());
            // Sample type TID, sample_id_all; a buffer for each thread, no switches.
            pipe.record(64, 0, &[halves(&[8, 64]), words(&[0, 0, 2, 0, 1 << 18, 0, 0])].concat());
            pipe.record(70, 0, &words(&[1, 8, 0, 1, 0, 1, 0x400, 0x800, 0, 0, 0]));
            pipe.cpu("GenuineIntel,6,122,1");
            PerThread(pipe)
        }

        fn event(&mut self, kind: u32, misc: u16, body: &[u8], of: [u32; 2]) {
            self.0.record(kind, misc, &[body, &halves(&of)].concat());
        }

        fn maps(&mut self, of: [u32; 2], address: u64, file: &str) {
            let place = [words(&[address, 4, 0x1000]), vec![0; 24], halves(&[5, 2])].concat();
            self.event(10, 2, &[halves(&of), place, text(file)].concat(), of);
        }

        fn starts(&mut self, of: [u32; 2]) {
            self.event(12, 0, &halves(&of), of);
        }

        fn execs(&mut self, of: [u32; 2], name: &str) {
            self.event(3, 1 << 13, &[halves(&of), text(name)].concat(), of);
        }

        /// A thread's packets, in the buffer of this number.
        fn ran(&mut self, buffer: u32, tid: u32, addresses: &[u64]) {
            let full = |payload| Ip { compression: Compression::Full, payload };
            let mut data = Vec::new();
            [Packet::Psb, Packet::Tsc(1), Packet::Psbend].into_iter().for_each(|packet| write(&mut data, packet));
            for &address in addresses {
                write(&mut data, Packet::TipPge(full(address)));
                write(&mut data, Packet::TipPgd(full(0x77)));
            }
            data.resize(data.len().next_multiple_of(8), 0);
            let head = [words(&[data.len() as u64, 0, 0]), halves(&[buffer, tid, u32::MAX, 0])].concat();
            self.0.record(71, 0, &head);
            self.0 .0.extend(data);
        }
    }

    #[test]
    fn each_thread_has_a_stream_of_its_own_and_runs_the_program_that_it_became_and_the_kernel() {
        let folder = Folder::new("per-thread");
        program(&folder, "perf", &[0xc3, 0xcc, 0xcc, 0xcc]);
        program(&folder, "work", &TWO_NOPS_RET);
        // The folder that `perf record --kcore` makes.
        std::fs::create_dir_all(folder.0.join("kcore_dir")).unwrap();
        std::fs::write(folder.0.join("kcore_dir/kcore"), elf::file(KERNEL, &NOP_RET, &[])).unwrap();
        let mut recorded = PerThread::new();
        recorded.maps([7, 7], USER, "/perf");
        recorded.starts([7, 7]);
        recorded.execs([7, 7], "work");
        recorded.maps([7, 7], USER, "/work");
        recorded.starts([7, 9]);
        recorded.ran(0, 7, &[USER, KERNEL]);
        recorded.ran(1, 9, &[KERNEL, USER, USER]);
        folder.add("data", &recorded.0 .0);
        let options = Options { symbols: vec![folder.0.clone()], ..Options::default() };
        let capture = open(&folder.0, &options).unwrap();
        let of: Vec<_> = capture.streams.iter().map(|stream| stream.of).collect();
        assert_eq!(of, [Of::Thread { pid: 7, tid: 7 }, Of::Thread { pid: 7, tid: 9 }]);
        assert_eq!(runs(&capture), [(7, vec![3, 2]), (9, vec![2, 3, 3])]);
        assert_eq!(capture.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_file_that_takes_the_place_of_another_is_told_as_nothing_says_when() {
        let folder = Folder::new("per-thread-again");
        program(&folder, "one", &NOP_RET);
        program(&folder, "two", &TWO_NOPS_RET);
        let mut recorded = PerThread::new();
        recorded.starts([7, 7]);
        recorded.maps([7, 7], USER, "/one");
        recorded.maps([7, 7], USER, "/one");
        recorded.maps([8, 8], USER, "/two");
        recorded.ran(0, 7, &[USER]);
        let options = || kcore(&folder);
        assert_eq!(recorded.0.open(&folder, options()).warnings, Vec::<String>::new());
        recorded.maps([7, 7], USER + 2, "/two");
        let warning = "1 times a file was mapped where another had been, and no record says when: the last one is \
                       taken to have been there from the beginning; record without --per-thread";
        assert_eq!(recorded.0.open(&folder, options()).warnings, [warning]);
    }
}

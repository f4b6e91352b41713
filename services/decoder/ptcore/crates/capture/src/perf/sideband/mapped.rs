//! What processes map, by the records of perf.

use super::Sideband;
use crate::jit;
use crate::perf::written::has_no_file;
use crate::spaces::{Content, Mapping};
use crate::vdso;

impl Sideband<'_> {
    pub(super) fn map(
        &mut self,
        pid: u32,
        tsc: u64,
        (address, size, offset): (u64, u64, u64),
        writable: bool,
        name: &str,
        build_id: &str,
    ) {
        // The kernel does what is called there: no code of that page runs (arch/x86/entry/vsyscall of Linux).
        if name == "[vsyscall]" {
            return;
        }
        if let Some(file) = jit::is_dump(name) {
            match self.written.dump((pid, tsc), name, file, self.conversion) {
                Ok(dump) => {
                    for (tsc, mapping) in dump.code {
                        self.spaces.map(pid, tsc, mapping);
                    }
                    if let Some(damage) = dump.damage {
                        self.miss(name, &damage);
                    }
                }
                Err(reason) => self.miss(name, &reason),
            }
            return;
        }
        let content = if has_no_file(name) {
            let reason = "code written at run time: only a jitdump file tells it".to_owned();
            Content::Unnamed { names: self.written.names(pid), writable, reason }
        } else {
            let file = dso(name, address);
            let found = self.files.find(file, build_id).or_else(|reason| match file {
                "[vdso]" if self.same_kernel => vdso::with_id(build_id).ok_or(reason),
                _ => Err(reason),
            });
            match found {
                Ok(binary) => Content::File { binary, offset },
                Err(reason) => {
                    let place = (address, size, offset);
                    let portable = self.portables.map(&self.files, &mut self.written, pid, place, (file, build_id));
                    if let Some(mapping) = portable {
                        return self.spaces.map(pid, tsc, mapping);
                    }
                    self.miss(name, &reason);
                    if name.starts_with("/memfd:") {
                        Content::Unnamed { names: self.written.names(pid), writable, reason }
                    } else {
                        Content::Unread { reason }
                    }
                }
            }
        };
        self.spaces.map(pid, tsc, Mapping { address, size, name: name.to_owned(), content });
    }

    fn miss(&mut self, name: &str, reason: &str) {
        *self.missing.entry((name.to_owned(), reason.to_owned())).or_default() += 1;
    }
}

/// What perf calls the file that is mapped: the kernel has another vdso for programs of 32 bits, which it names as the one of 64
/// bits (tools/perf/util/vdso.h).
pub(super) fn dso(name: &str, address: u64) -> &str {
    match name {
        "[vdso]" if address >> 32 == 0 => "[vdso32]",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use crate::elf;
    use crate::perf::recording::{halves, runs, text, words, Folder, Pipe, USER};
    use crate::Options;

    #[test]
    fn memory_that_a_program_may_write_is_no_copy_of_a_files_code() {
        const HUGE_PAGE: u64 = 2 << 20;
        for (protection, instructions) in [(5, 1), (7, 0)] {
            let folder = Folder::new("remapped");
            folder.add("work", &elf::file(USER, &[0xc3; 2 * HUGE_PAGE as usize], &[]));
            let mut pipe = Pipe::new();
            pipe.maps((7, 7, 5, 0), USER, 2 * HUGE_PAGE, 0x1000, "/work");
            let place = [words(&[USER + HUGE_PAGE, HUGE_PAGE, 0]), vec![0; 24], halves(&[protection, 2])].concat();
            pipe.event(10, 2, &[halves(&[7, 7]), place, text("//anon")].concat(), (7, 7, 6, 0));
            pipe.enters((7, 7, 10, 0));
            pipe.ran(0, &[(100, USER + HUGE_PAGE)]);
            assert_eq!(runs(&pipe.open(&folder, Options::default())), [(7, vec![instructions])], "{protection}");
        }
    }
}

//! What processes map, by the records of perf.

use super::Sideband;
use crate::jit;
use crate::perf::written::has_no_file;
use crate::spaces::{Content, Mapping};
use crate::vdso;

/// What a loss says that is in a page of the kernel's for uprobes, by the page's name (kernel/events/uprobes.c and, since Linux 6.18,
/// arch/x86/kernel/uprobes.c).
const OF_UPROBES: [(&str, &str); 2] = [
    ("[uprobes]", "the kernel's copies of instructions that have a uprobe: nobody can read them"),
    (
        "[uprobes-trampoline]",
        "the kernel's code for uprobes in place of a nop, whose call of it is not in the file: what ran from there to the next address \
         that a packet has is lost",
    ),
];

/// What of a library's branches is not in its file.
pub const COMPLETED: &str =
    "to other files, which it was told as it was loaded (DT_TEXTREL): there is a loss at each (bad-instruction)";

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
        let content = if let Some((page, reason)) = OF_UPROBES.into_iter().find(|(page, _)| *page == name) {
            // The copies are told where the instructions stand.
            if page != "[uprobes]" {
                self.miss(name, reason);
            }
            Content::Unread { reason: reason.to_owned() }
        } else if has_no_file(name) {
            let reason = "code written at run time: only a jitdump file tells it".to_owned();
            Content::Unnamed { names: self.written.names(pid), writable, reason }
        } else {
            let file = dso(name, address);
            let found = self.files.find(file, build_id).or_else(|reason| match file {
                "[vdso]" if self.same_kernel => vdso::with_id(build_id).ok_or(reason),
                _ => Err(reason),
            });
            match found {
                Ok(binary) => {
                    if binary.unknown_branches() > 0 {
                        let count = binary.unknown_branches();
                        self.miss(name, &format!("{count} branches of it are {COMPLETED}"));
                    }
                    Content::File { binary, offset }
                }
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

    /// Of the file that is mapped so, as the recording's header has it. A program of the x32 ABI has a vdso of its own, at the addresses
    /// of one of 32 bits.
    pub(super) fn told_build_id(&self, name: &str, address: u64) -> Option<&String> {
        let file = dso(name, address);
        self.build_ids.get(file).or_else(|| self.build_ids.get("[vdsox32]").filter(|_| file == "[vdso32]"))
    }

    fn miss(&mut self, name: &str, reason: &str) {
        *self.missing.entry((name.to_owned(), reason.to_owned())).or_default() += 1;
    }
}

/// What perf calls the file that is mapped: the kernel has another vdso for programs of 32 bits, which it names as the one of 64
/// bits (tools/perf/util/vdso.h).
fn dso(name: &str, address: u64) -> &str {
    match name {
        "[vdso]" if address >> 32 == 0 => "[vdso32]",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::OF_UPROBES;
    use crate::elf;
    use crate::perf::recording::{halves, runs, text, words, Folder, Pipe, USER};
    use crate::Options;

    #[test]
    fn a_program_of_the_x32_abi_has_a_vdso_of_its_own() {
        const LOW: u64 = 0xffbf_e000;
        let folder = Folder::new("vdsox32");
        let vdso = crate::vdso::own().unwrap();
        folder.add(vdso.build_id(), vdso.code(0));
        let id: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&vdso.build_id()[2 * at..][..2], 16).unwrap()).collect();
        let mut pipe = Pipe::new();
        pipe.record(67, 2, &[halves(&[u32::MAX]), id, vec![0; 4], text("[vdsox32]")].concat());
        pipe.maps((7, 7, 5, 0), LOW, 0x2000, 0, "[vdso]");
        pipe.enters((7, 7, 10, 0));
        pipe.ran(0, &[(100, LOW)]);
        assert_eq!(pipe.open(&folder, Options::default()).warnings, Vec::<String>::new());
    }

    #[test]
    fn pages_of_the_kernel_for_uprobes_are_no_files_that_are_missing() {
        const COPIES: u64 = 0x7fff_ffff_e000;
        const TRAMPOLINE: u64 = USER - 0x10000;
        let folder = Folder::new("uprobes");
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, 5, 0), COPIES, 0x1000, 0, "[uprobes]");
        pipe.maps((7, 7, 5, 0), TRAMPOLINE, 0x1000, 0, "[uprobes-trampoline]");
        pipe.enters((7, 7, 10, 0));
        pipe.ran(0, &[(100, COPIES), (200, TRAMPOLINE)]);
        let capture = pipe.open(&folder, Options::default());
        let [_, (_, of_trampoline)] = OF_UPROBES;
        assert_eq!(capture.warnings, [format!("[uprobes-trampoline], mapped 1 times: {of_trampoline}")]);
        let view = capture.views.iter().position(|view| view.tid == 7).unwrap() as u32;
        for (address, (page, why)) in [COPIES, TRAMPOLINE].into_iter().zip(OF_UPROBES) {
            assert_eq!(capture.memory().why_no_code(view, address), format!("{page}: {why}"));
        }
    }

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

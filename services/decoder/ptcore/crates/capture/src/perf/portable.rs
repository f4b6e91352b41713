//! Code of Portable Executables, which .NET and Wine map as it stands in the file.

use super::written::Written;
use crate::elf::{self, Function};
use crate::files::Files;
use crate::spaces::{Content, Mapping};
use crate::Bytes;
use pt_image::Binary;
use std::collections::HashMap;
use std::sync::Arc;

/// So many bytes of it are taken for a recording, in whole pages: they stay in memory.
const MAX_TAKEN: usize = 1 << 30;
const PAGE: usize = 1 << 12;

/// A part of a file: path, offset and size; and of which process at which address where a perf map has names there.
type Key = (String, usize, usize, Option<(u32, u64)>);

/// Finds those files, and takes each part of them once.
pub struct Portables {
    /// By path, where there is one.
    files: HashMap<String, Option<Bytes>>,
    taken: HashMap<Key, Arc<Binary>>,
    /// How many bytes may still be taken.
    room: usize,
}

impl Default for Portables {
    fn default() -> Self {
        Portables { files: HashMap::new(), taken: HashMap::new(), room: MAX_TAKEN }
    }
}

impl Portables {
    /// What the process mapped at {address, size, offset} of the file, as far as that reaches. `None` where it is no such
    /// file, as one with a build id never is, or where there is no room.
    pub fn map(
        &mut self,
        files: &Files,
        written: &mut Written<'_>,
        pid: u32,
        (address, size, offset): (u64, u64, u64),
        (name, build_id): (&str, &str),
    ) -> Option<Mapping> {
        if !build_id.is_empty() {
            return None;
        }
        let file = self.files.entry(name.to_owned()).or_insert_with(|| files.portable(name)).clone()?;
        let start = usize::try_from(offset).ok()?;
        let code = file.part(start..start.saturating_add(usize::try_from(size).ok()?));
        let end = address.checked_add(code.len() as u64).filter(|&end| end > address)?;
        let names = written.names(pid);
        let named = names.within(address..end);
        let key = (name.to_owned(), start, code.len(), (!named.is_empty()).then_some((pid, address)));
        let binary = match self.taken.get(&key) {
            Some(known) => Arc::clone(known),
            None => {
                self.room.checked_sub(code.len())?;
                // Its own addresses are offsets in the file: so code without a name is called.
                let own = |function: &&Function| Function {
                    address: function.address - address + offset,
                    size: function.size.min(end - function.address),
                    name: function.name.clone(),
                    binding: function.binding,
                };
                let functions: Vec<_> = named.iter().map(own).collect();
                let binary = elf::binary(name, &[(offset, &code)], &functions.iter().collect::<Vec<_>>()).ok()?;
                self.room = self.room.saturating_sub(binary.code(0).len().next_multiple_of(PAGE));
                self.taken.insert(key, Arc::clone(&binary));
                binary
            }
        };
        let content = Content::File { binary, offset: elf::code_at(1) };
        Some(Mapping { address, size: code.len() as u64, name: name.to_owned(), content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::recording::{named, runs, Folder, Pipe, NOP_RET, TWO_NOPS_RET, USER};
    use crate::{Capture, Options};

    /// One function at offset 0x1000, another at 0x1010.
    fn library() -> Vec<u8> {
        let mut file = b"MZ".to_vec();
        for (at, code) in [(0x1000, NOP_RET), (0x1010, TWO_NOPS_RET)] {
            file.resize(at, 0);
            file.extend(code);
        }
        file
    }

    /// The process mapped so many bytes of it, from offset 0x1000 on.
    fn opened(folder: &Folder, size: u64) -> Capture {
        let mut pipe = Pipe::new();
        pipe.maps((7, 7, 5, 0), USER, size, 0x1000, "/lib.dll");
        pipe.enters((7, 7, 10, 0));
        pipe.ran(0, &[(100, USER), (200, USER + 0x10), (300, USER + 0x14)]);
        pipe.open(folder, Options::default())
    }

    #[test]
    fn the_code_of_a_portable_executable_is_called_after_its_place_in_the_file() {
        let folder = Folder::new("portable");
        folder.add("lib.dll", &library());
        let capture = opened(&folder, 0x1000);
        assert_eq!(capture.warnings, Vec::<String>::new());
        // Behind its end nothing is there.
        assert_eq!(runs(&capture), [(7, vec![2, 3, 0])]);
        assert_eq!(named(&capture, USER + 0x11), "lib.dll+0x1011");
        // What is mapped ends before the second one.
        assert_eq!(runs(&opened(&folder, 0x10)), [(7, vec![2, 0])]);
    }

    #[test]
    fn a_perf_map_names_what_stands_in_a_portable_executable() {
        let folder = Folder::new("portable-names");
        folder.add("lib.dll", &library());
        folder.add("perf-7.map", b"400010 100 [PreJIT] Work\n");
        let capture = opened(&folder, 0x1000);
        assert_eq!(runs(&capture), [(7, vec![2, 3, 0])]);
        assert_eq!(named(&capture, USER + 0x11), "[PreJIT] Work");
        assert_eq!(named(&capture, USER + 1), "lib.dll+0x1001");
    }

    #[test]
    fn each_part_is_taken_once_and_while_there_is_room() {
        let folder = Folder::new("portable-room");
        folder.add("lib.dll", &library());
        let folders = [folder.0.clone()];
        let (files, mut written) = (Files::new(&folders), Written::new(&folders));
        let mut portables = Portables { room: 2 * PAGE, ..Portables::default() };
        let mut is_taken = |pid, offset, build_id| {
            portables.map(&files, &mut written, pid, (USER, 0x10, offset), ("/lib.dll", build_id)).is_some()
        };
        assert!(!is_taken(7, 0x1000, "ab"));
        assert!(is_taken(7, 0x1000, "") && is_taken(8, 0x1000, "") && is_taken(8, 0x1010, ""));
        assert!(!is_taken(8, 0xff0, "") && is_taken(9, 0x1010, ""));
        // Behind its end.
        assert!(!is_taken(7, 0x2000, ""));
    }

    #[test]
    fn other_files_are_no_code() {
        let folder = Folder::new("no-code");
        let path = folder.add("lib.dll", &[&b"no"[..], &library()[2..]].concat());
        let capture = opened(&folder, 0x1000);
        assert_eq!(runs(&capture), [(7, vec![0])]);
        assert!(capture.warnings[0].contains(&path.display().to_string()), "{:?}", capture.warnings);
    }
}

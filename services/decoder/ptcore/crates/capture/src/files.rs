//! Binaries by the name, build id and folder under which they may be found.

use crate::identity::{has_other, is};
use crate::unpacked;
use object::elf::{FileHeader32, FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind};
use pt_image::{Binary, BinaryError, Bytes, Caches, Search};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A packed file is unpacked up to this size, the largest kernel modules have some tens of megabytes; and all of a
/// recording together, as they stay in memory.
const MAX_UNPACKED: u64 = 1 << 28;
const MAX_ALL_UNPACKED: u64 = 1 << 30;

/// So Linux names a file that was deleted before it was mapped, or before perf looked: another one may stand there now.
pub const DELETED: &str = " (deleted)";

pub const IS_DEBUG_FILE: &str = "it is the debug file of a binary: its code is not in it";

/// Looks for binaries in folders of the caller first, then where tools keep copies, then at the path itself.
pub struct Files {
    folders: Vec<PathBuf>,
    search: Search,
    /// By path, and whether the paths in it are looked at.
    opened: HashMap<(PathBuf, bool), Result<Arc<Binary>, String>>,
    /// By path and build id: recordings map the same files over and over.
    found: HashMap<(String, String), Result<Arc<Binary>, String>>,
    /// By build id: the same file may have been at several paths.
    identified: HashMap<String, Arc<Binary>>,
    /// How many bytes may still be unpacked.
    room: u64,
}

impl Files {
    pub fn new(folders: &[PathBuf]) -> Self {
        Files {
            folders: folders.to_vec(),
            search: search(folders),
            opened: HashMap::new(),
            found: HashMap::new(),
            identified: HashMap::new(),
            room: MAX_ALL_UNPACKED,
        }
    }

    /// The binary that was at `path` on the recorded machine; the build id in hex, empty when it is not known. The
    /// error says why there is none.
    pub fn find(&mut self, path: &str, build_id: &str) -> Result<Arc<Binary>, String> {
        let key = (path.to_owned(), build_id.to_owned());
        if let Some(known) = self.found.get(&key) {
            return known.clone();
        }
        let found = match self.identified.get(build_id) {
            Some(known) => Ok(Arc::clone(known)),
            None => self.look_for(path, build_id),
        };
        if let (Ok(binary), false) = (&found, build_id.is_empty()) {
            self.identified.insert(build_id.to_owned(), Arc::clone(binary));
        }
        self.found.insert(key, found.clone());
        found
    }

    fn look_for(&mut self, path: &str, build_id: &str) -> Result<Arc<Binary>, String> {
        let mut refusal = None;
        for candidate in self.candidates(path, build_id) {
            if !candidate.is_file() {
                continue;
            }
            // What stands where it ran was installed here, and may say where it was built.
            let recorded_paths = candidate == Path::new(path);
            match self.opened(&candidate, recorded_paths) {
                Ok(binary) if build_id.is_empty() || is(&binary, build_id) => return Ok(binary),
                Ok(binary) => {
                    refusal.get_or_insert(format!("build id {build_id} is wanted, {}", has_other(&binary, build_id)));
                }
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| match build_id {
            "" => "the file is not there".to_owned(),
            id => format!("no file with build id {id} is there"),
        }))
    }

    /// The Portable Executable that was at `path` on the recorded machine. Any other file that is no ELF may be a secret: a
    /// stranger's recording must not have it shown.
    pub fn portable(&self, path: &str) -> Option<crate::Bytes> {
        let there = self.candidates(path, "").into_iter().filter(|candidate| candidate.is_file());
        there.filter_map(|path| crate::Bytes::open(&path).ok()).find(|bytes| bytes.starts_with(b"MZ"))
    }

    /// The ELF file at exactly this path, also when it is packed.
    pub fn open(&mut self, path: &Path) -> Result<Arc<Binary>, String> {
        self.opened(path, false)
    }

    /// The same of a file that may take all the room that there is.
    pub fn open_alone(&mut self, path: &Path) -> Result<Arc<Binary>, String> {
        self.load(path, false, self.room).map(Arc::new)
    }

    fn opened(&mut self, path: &Path, recorded_paths: bool) -> Result<Arc<Binary>, String> {
        let key = (path.to_owned(), recorded_paths);
        if let Some(known) = self.opened.get(&key) {
            return known.clone();
        }
        let opened = self.load(path, recorded_paths, MAX_UNPACKED).map(Arc::new);
        self.opened.insert(key, opened.clone());
        opened
    }

    fn load(&mut self, path: &Path, recorded_paths: bool, limit: u64) -> Result<Binary, String> {
        let unreadable = |error| BinaryError::Unreadable { path: path.to_owned(), error }.to_string();
        let mut file = Bytes::open(path).map_err(unreadable)?;
        if let Some(unpacked) = unpacked::binary(&file, self.room.min(limit)) {
            let bytes = unpacked.map_err(|what| format!("{}: {what}", path.display()))?;
            self.room -= bytes.len() as u64;
            file = Bytes::Owned(bytes);
        }
        let search = Search { recorded_paths, ..self.search.clone() };
        let binary = Binary::of(path, file, &search).map_err(|error| error.to_string())?;
        if binary.is_debug_file() {
            return Err(format!("{}: {IS_DEBUG_FILE}", path.display()));
        }
        Ok(binary)
    }

    fn candidates(&self, path: &str, build_id: &str) -> Vec<PathBuf> {
        let there = path.strip_suffix(DELETED);
        let may_be_other = there.is_some() && build_id.is_empty();
        let path = there.unwrap_or(path);
        let relative = path.trim_start_matches('/');
        let name = relative.rsplit('/').next().unwrap_or_default();
        let plain = !name.is_empty() && !path.starts_with('[') && !relative.split('/').any(|part| part == "..");
        let mut candidates = Vec::new();
        for folder in &self.folders {
            if build_id.len() > 2 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                candidates.extend(Caches::kept_by_perf(folder, build_id));
                candidates.push(folder.join(build_id));
            }
            if plain {
                candidates.push(folder.join(relative));
                candidates.push(folder.join(name));
            }
        }
        candidates.extend(self.search.caches.binaries(build_id));
        if plain && path.starts_with('/') && !may_be_other {
            candidates.push(path.into());
        }
        candidates
    }
}

/// Where separate debug files of binaries may be: in folders that may be copies of a machine's file system, and in this one's.
pub fn search(folders: &[PathBuf]) -> Search {
    let copied = folders.iter().flat_map(|folder| [folder.clone(), folder.join("usr/lib/debug")]);
    let folders = copied.chain([PathBuf::from("/usr/lib/debug")]).collect();
    Search { folders, caches: Caches::of_user(), ..Search::default() }
}

/// What a loader puts into memory: {address, bytes of the file, offset in the file}, in the file's own addresses.
pub struct Loaded {
    pub address: u64,
    pub size: u64,
    pub offset: u64,
    pub executable: bool,
}

/// The loaded parts of an ELF file, in the order of its program headers, which need not be that of their addresses.
pub fn loaded(bytes: &[u8]) -> Result<Vec<Loaded>, String> {
    let parts = match FileKind::parse(bytes) {
        Ok(FileKind::Elf32) => loaded_of::<FileHeader32<Endianness>>(bytes),
        Ok(FileKind::Elf64) => loaded_of::<FileHeader64<Endianness>>(bytes),
        Ok(_) => return Err("it is no ELF file".to_owned()),
        Err(error) => Err(error),
    };
    parts.map_err(|error| error.to_string())
}

fn loaded_of<Elf: FileHeader>(bytes: &[u8]) -> Result<Vec<Loaded>, object::Error> {
    let header = Elf::parse(bytes)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let part = |segment: &Elf::ProgramHeader| {
        let (offset, size) = segment.file_range(endian);
        let executable = segment.p_flags(endian).contains(PF_X);
        Loaded { address: segment.p_vaddr(endian).into(), size, offset, executable }
    };
    Ok(segments.map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_file_that_was_deleted_is_looked_for_by_its_name_but_where_it_was_by_its_build_id_alone() {
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        let id = Binary::load(&shell, &Search::default()).unwrap().build_id().to_owned();
        let deleted = format!("{} (deleted)", shell.display());
        let folder = shell.parent().unwrap().to_owned();
        assert_eq!(Files::new(&[folder]).find(&deleted, "").unwrap().build_id(), id);
        assert_eq!(Files::new(&[]).find(&deleted, &id).unwrap().build_id(), id);
        assert_eq!(Files::new(&[]).find(&deleted, "").err().unwrap(), "the file is not there");
    }

    #[test]
    fn a_binary_that_is_gone_is_found_where_tools_keep_copies() {
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        let id = Binary::load(&shell, &Search::default()).unwrap().build_id().to_owned();
        let (first, rest) = id.split_at(2);
        let kept = format!(".debug/.build-id/{first}/{rest}");
        for place in [format!("{kept}/elf"), kept, format!(".cache/debuginfod_client/{id}/executable")] {
            let home = Home::with("copies", &place, &std::fs::read(&shell).unwrap());
            assert_eq!(home.found("/gone/sh", &id, &[]), [Ok(id.clone())]);
        }
    }

    #[test]
    fn what_is_loaded_of_a_file_with_damaged_section_headers_is_known() {
        let mut shell = std::fs::read("/bin/sh").unwrap();
        let parts = |bytes: &[u8]| {
            let part = |part: Loaded| (part.address, part.size, part.offset, part.executable);
            loaded(bytes).map(|all| all.into_iter().map(part).collect::<Vec<_>>())
        };
        let whole = parts(&shell).unwrap();
        assert!(whole.iter().any(|part| part.3) && whole.iter().any(|part| !part.3));
        // e_shoff.
        shell[0x28..0x30].fill(0xfe);
        assert_eq!(parts(&shell), Ok(whole));
        assert!(parts(b"text").is_err());
    }

    #[test]
    fn a_debug_file_is_not_the_binary_whose_name_it_has() {
        let home = Home::with("debug", "bin/program", &crate::elf::file(0x1000, &[0x90, 0xc3], &[]));
        let (folder, path) = (home.0.join("debug"), home.0.join("bin/program"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("program"), crate::elf::debug_file(0x1000, &[0x90, 0xc3], &[])).unwrap();
        let found = Files::new(std::slice::from_ref(&folder)).find(path.to_str().unwrap(), "").unwrap();
        assert_eq!(found.path(), path);
        let refused = Files::new(std::slice::from_ref(&folder)).find("/gone/program", "").err().unwrap();
        let debug = folder.join("program").display().to_string();
        assert_eq!(refused, format!("{debug}: {IS_DEBUG_FILE}"));
    }

    #[test]
    fn a_file_without_a_build_id_is_told_from_others_by_its_checksum() {
        let file = crate::elf::file(0x1000, &[0x90, 0xc3], &[]);
        let home = Home::with("checksum", "program", &file);
        let path = home.0.join("program").display().to_string();
        let mut hash = flate2::Crc::new();
        hash.update(&file);
        let id = |number: u32| format!("{number:08x}");
        // LLDB writes the bytes as they stand in memory, and of old 16 of them.
        let own = id(hash.sum().swap_bytes());
        for id in [own.clone(), id(hash.sum()), own.clone() + &"0".repeat(24)] {
            assert!(Files::new(&[]).find(&path, &id).is_ok(), "{id}");
        }
        let refused = Files::new(&[]).find(&path, "00000001").err().unwrap();
        assert_eq!(refused, format!("build id 00000001 is wanted, {path} has none; its checksum is {own}"));
        let refused = Files::new(&[]).find(&path, "0000000100").err().unwrap();
        assert_eq!(refused, format!("build id 0000000100 is wanted, {path} has none"));
    }

    #[test]
    fn a_binary_that_was_at_two_paths_is_one() {
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        let id = Binary::load(&shell, &Search::default()).unwrap().build_id().to_owned();
        let home = Home::with("paths", "elsewhere/sh", &std::fs::read(&shell).unwrap());
        let mut files = Files::new(&[home.0.join("elsewhere")]);
        let elsewhere = files.find("/container/bin/sh", &id).unwrap();
        assert!(Arc::ptr_eq(&files.find(shell.to_str().unwrap(), &id).unwrap(), &elsewhere));
        assert!(Arc::ptr_eq(&files.find("/gone/sh", &id).unwrap(), &elsewhere));
    }

    #[test]
    fn what_the_kernel_put_into_processes_is_found_where_perf_keeps_it() {
        let vdso = crate::vdso::own().unwrap();
        let id = vdso.build_id();
        let (first, rest) = id.split_at(2);
        for place in [format!(".debug/.build-id/{first}/{rest}/vdso"), format!(".debug/[vdso]/{id}/vdso")] {
            let home = Home::with("vdso", &place, vdso.code(0));
            // In the user's own cache, and in a copy of another's.
            let found = home.found("[vdso]", id, &[home.0.join(".debug")]);
            assert_eq!(found, [Ok(id.to_owned()), Ok(id.to_owned())], "{place}");
            let other = id.replace(['0', '1'], "2");
            assert_eq!(home.found("[vdso]", &other, &[]), [Err(format!("no file with build id {other} is there"))]);
        }
    }

    #[test]
    fn a_binary_is_found_in_caches_of_old_versions_of_perf() {
        let file = std::fs::read("/bin/sh").unwrap();
        let id = Binary::load(Path::new("/bin/sh"), &Search::default()).unwrap().build_id().to_owned();
        let (first, rest) = id.split_at(2);
        let home = Home::with("old-cache", &format!(".debug/.build-id/{first}/{rest}"), &file);
        assert_eq!(home.found("/gone/sh", &id, &[home.0.join(".debug")]), [Ok(id.clone()), Ok(id)]);
    }

    #[test]
    fn packed_files_are_unpacked_as_far_as_there_is_room_for_all_of_them() {
        let shell = std::fs::read("/bin/sh").unwrap();
        let home = Home::with("packed", "one.gz", &crate::unpacked::tests::gzip(&shell));
        let (one, two) = (home.0.join("one.gz"), home.0.join("two.gz"));
        std::fs::copy(&one, &two).unwrap();
        let mut files = Files::new(&[]);
        files.room = shell.len() as u64 + 5;
        assert_eq!(files.open(&one).unwrap().code(0), shell);
        let refused = format!("{}: more than 5 bytes when unpacked", two.display());
        assert_eq!(files.open(&two).err(), Some(refused));
    }

    #[test]
    fn debug_files_are_where_a_copy_of_a_machines_files_has_them() {
        let search = search(&[PathBuf::from("/copy")]);
        assert_eq!(search.folders, ["/copy", "/copy/usr/lib/debug", "/usr/lib/debug"].map(PathBuf::from));
    }

    const PROGRAM: &[u8] = b"\
static inline __attribute__((always_inline)) int inner(volatile int *x) { return *x += 3; }
int main(int count, char **all) { volatile int x = count; return inner(&x); }
";

    #[test]
    fn split_debug_information_is_where_a_program_of_this_machine_was_built() {
        let home = Home::with("split", "build/program.c", PROGRAM);
        std::fs::create_dir(home.0.join("bin")).unwrap();
        let gcc = |arguments: &[&str]| {
            let built = Command::new("gcc").args(arguments).current_dir(home.0.join("build")).status();
            built.is_ok_and(|status| status.success())
        };
        if !gcc(&["-g", "-gsplit-dwarf", "-O1", "-c", "program.c"]) || !gcc(&["-o", "../bin/program", "program.o"]) {
            eprintln!("skipped: gcc is not installed (package gcc)");
            return;
        }
        let program = home.0.join("bin/program").display().to_string();
        let inlined = |binary: Arc<Binary>| {
            let main = binary.functions().iter().find(|one| binary.name(one).as_deref() == Some("main")).unwrap();
            (main.address..main.address + main.size).any(|address| binary.frames(address).len() > 1)
        };
        assert!(inlined(Files::new(&[]).find(&program, "").unwrap()));
        // A stranger's file does not say what is opened here.
        let mut given = Files::new(&[home.0.join("bin")]);
        assert!(!inlined(given.find("/gone/program", "").unwrap()));
        // A pipe would wait for its writer.
        let recorded = home.0.join("build/program.dwo");
        std::fs::remove_file(&recorded).unwrap();
        assert!(Command::new("mkfifo").arg(&recorded).status().unwrap().success());
        assert!(!inlined(Files::new(&[]).find(&program, "").unwrap()));
    }

    #[test]
    fn debug_files_are_found_in_a_copy_of_a_machines_file_system() {
        let home = Home::with("sysroot", "program.c", PROGRAM);
        let ran = |program: &str, arguments: &[&str]| {
            let status = Command::new(program).args(arguments).current_dir(&home.0).status();
            status.is_ok_and(|status| status.success())
        };
        if !ran("gcc", &["-g", "-Wl,--build-id", "-o", "program", "program.c"]) {
            eprintln!("skipped: gcc is not installed (package gcc)");
            return;
        }
        let built = Binary::load(&home.0.join("program"), &Search::default()).unwrap();
        let (first, rest) = built.build_id().split_at(2);
        let folder = format!("usr/lib/debug/.build-id/{first}");
        std::fs::create_dir_all(home.0.join(&folder)).unwrap();
        assert!(ran("objcopy", &["--only-keep-debug", "program", &format!("{folder}/{rest}.debug")]));
        assert!(ran("strip", &["program"]));
        let found = Files::new(std::slice::from_ref(&home.0)).find("/gone/program", built.build_id()).unwrap();
        assert_eq!(found.symbol_status(), "debug");
    }

    struct Home(PathBuf);

    impl Home {
        fn with(name: &str, place: &str, bytes: &[u8]) -> Home {
            let home = std::env::temp_dir().join(format!("pt-capture-{name}-{}", std::process::id()));
            std::fs::create_dir_all(home.join(place).parent().unwrap()).unwrap();
            std::fs::write(home.join(place), bytes).unwrap();
            Home(home)
        }

        /// The build id of what is found by the caches of this home, and in each of the folders without caches.
        fn found(&self, path: &str, build_id: &str, folders: &[PathBuf]) -> Vec<Result<String, String>> {
            let caches = Caches::of(|name| (name == "HOME").then(|| self.0.clone()));
            let mut all = vec![(Files::new(&[]), caches)];
            all.extend(folders.iter().map(|folder| (Files::new(std::slice::from_ref(folder)), Caches::default())));
            let found = |(mut files, caches): (Files, Caches)| {
                files.search.caches = caches;
                files.find(path, build_id).map(|binary| binary.build_id().to_owned())
            };
            all.into_iter().map(found).collect()
        }
    }

    impl Drop for Home {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }
}

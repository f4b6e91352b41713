//! Files with debug information that stand apart from the binary.
//!
//! Where they are: GDB manual, "Debugging Information in Separate Files"; for `.dwo` and `.dwp` GCC's `-gsplit-dwarf`
//! and the DWARF 5 standard, appendix F. A file is taken only when its identity fits: no path is trusted for its name.

use crate::bytes::Bytes;
use crate::caches::Caches;
use crate::elf_file::{build_id as id_of, elf, File};
use crate::room::Room;
use object::{Object, ObjectSection};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Where separate debug files are looked for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The debug file itself, when it is known.
    pub debug: Option<PathBuf>,
    /// What the binary was mapped as, where the file that is read is a copy without its name.
    pub mapped: Option<PathBuf>,
    /// Laid out like `/usr/lib/debug`; `.dwo` and `.dwp` files and what debug files have in common may stand in them
    /// directly.
    pub folders: Vec<PathBuf>,
    /// Paths that the binary names are looked at, wherever they lead. Right for programs of this machine, not for files
    /// of strangers. Only regular files of the wanted identity are taken.
    pub recorded_paths: bool,
    pub caches: Caches,
    /// For compressed sections, and files that are packed into others.
    pub room: Room,
}

/// What tells a file without a build id from others: the checksum of its debug file as `.gnu_debuglink` has it, else its own.
pub fn checksum(file: &File<'_>, bytes: &[u8]) -> u32 {
    file.gnu_debuglink().ok().flatten().map_or_else(|| crc32fast::hash(bytes), |(_, checksum)| checksum)
}

impl Search {
    /// The debug file of the binary at `path`, by build id, then by the link's name and checksum, then by its own name.
    pub(crate) fn debug_file(&self, path: &Path, file: &File<'_>) -> Option<PathBuf> {
        if self.debug.is_some() {
            return self.debug.clone();
        }
        let build_id = id_of(file);
        let by_id = self.by_build_id(build_id).into_iter().find(|path| has_build_id(path, build_id));
        by_id.or_else(|| self.linked(path, file, build_id)).or_else(|| self.namesake(path, build_id))
    }

    /// As `objcopy --only-keep-debug` leaves it in a tree of its own.
    fn namesake(&self, path: &Path, build_id: &[u8]) -> Option<PathBuf> {
        let path = path.canonicalize().ok()?;
        let own = self.mapped.as_deref().unwrap_or(&path);
        let (folder, name) = (below_root(own.parent()?)?, own.file_name()?);
        let mut below = self.folders.iter().flat_map(|root| [root.join(folder).join(name), root.join(name)]);
        below.find(|candidate| *candidate != path && has_build_id(candidate, build_id))
    }

    fn linked(&self, path: &Path, file: &File<'_>, build_id: &[u8]) -> Option<PathBuf> {
        let (name, checksum) = file.gnu_debuglink().ok().flatten()?;
        let name = plain_name(name)?;
        let path = path.canonicalize().ok()?;
        let beside = path.parent().filter(|_| self.mapped.is_none());
        let beside = beside.map(|folder| [folder.join(name), folder.join(".debug").join(name)]);
        let folder = below_root(self.mapped.as_deref().unwrap_or(&path).parent()?)?;
        let below = self.folders.iter().map(|root| root.join(folder).join(name));
        beside.into_iter().flatten().chain(below).filter(|candidate| *candidate != path).find(|candidate| {
            if build_id.is_empty() {
                Bytes::open(candidate).is_ok_and(|bytes| crc32fast::hash(&bytes) == checksum)
            } else {
                has_build_id(candidate, build_id)
            }
        })
    }

    /// The file with what several debug files have in common (`dwz -m`), as the debug file at `path` names it.
    pub(crate) fn common_file(&self, path: &Path, file: &File<'_>) -> Option<PathBuf> {
        let (name, build_id) = file.gnu_debugaltlink().ok().flatten()?;
        let named = path.parent()?.join(OsStr::from_bytes(name));
        let mut candidates = self.by_build_id(build_id);
        let base = named.file_name()?;
        candidates.extend(self.folders.iter().flat_map(|root| [root.join(".dwz").join(base), root.join(base)]));
        // Debian has a folder for each architecture there (dh_dwz(1)).
        if let Some(architecture) = named.parent().and_then(Path::file_name) {
            candidates.extend(self.folders.iter().map(|root| root.join(".dwz").join(architecture).join(base)));
        }
        if self.recorded_paths {
            candidates.push(named);
        }
        candidates.into_iter().find(|path| has_build_id(path, build_id))
    }

    /// Where the package of split debug information of the binary at `path` may be.
    pub(crate) fn packages(&self, path: &Path) -> Vec<PathBuf> {
        let Some(name) = self.mapped.as_deref().unwrap_or(path).file_name() else { return Vec::new() };
        let mut name = name.to_owned();
        name.push(".dwp");
        self.beside_and_in_folders(path, &name)
    }

    /// Where the split debug information may be that the binary at `path` calls `name`, relative to `folder`.
    pub(crate) fn split(&self, path: &Path, folder: &[u8], name: &[u8]) -> Vec<PathBuf> {
        let name = Path::new(OsStr::from_bytes(name));
        let recorded = Path::new(OsStr::from_bytes(folder)).join(name);
        let Some(base) = name.file_name() else { return Vec::new() };
        let mut found = self.beside_and_in_folders(path, base);
        found.extend(Some(recorded).filter(|path| self.recorded_paths && path.is_absolute() && path.is_file()));
        found
    }

    fn beside_and_in_folders(&self, path: &Path, name: &OsStr) -> Vec<PathBuf> {
        // Nothing that belongs to it stands beside a copy.
        let beside = self.mapped.is_none().then(|| path.with_file_name(name));
        let inside = self.folders.iter().map(|root| root.join(name));
        beside.into_iter().chain(inside).filter(|path| path.is_file()).collect()
    }

    fn by_build_id(&self, build_id: &[u8]) -> Vec<PathBuf> {
        let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let name = format!("{first:02x}/{}.debug", hex(rest));
        let mut found: Vec<_> = self.folders.iter().map(|root| root.join(".build-id").join(&name)).collect();
        found.extend(self.caches.debug_files(&hex(build_id)));
        found
    }
}

/// The link names a file in a known folder, not a way out of it.
fn plain_name(name: &[u8]) -> Option<&Path> {
    let path = Path::new(OsStr::from_bytes(name));
    let mut parts = path.components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)).then_some(path)
}

/// The folder as the debug folders repeat it; `None` for one that leads out of them.
fn below_root(folder: &Path) -> Option<&Path> {
    let folder = folder.strip_prefix("/").unwrap_or(folder);
    folder.components().all(|part| matches!(part, Component::Normal(_))).then_some(folder)
}

/// False for the stripped file itself, which has the same build id.
fn has_build_id(path: &Path, build_id: &[u8]) -> bool {
    let Ok(bytes) = Bytes::open(path) else { return false };
    let Ok(file) = elf(&bytes) else { return false };
    let same = !build_id.is_empty() && id_of(&file) == build_id;
    same && (file.section_by_name(".debug_info").is_some()
        || file.section_by_name(".zdebug_info").is_some()
        || file.section_by_name(".symtab").is_some_and(|table| table.size() > 0))
}

/// As build ids are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

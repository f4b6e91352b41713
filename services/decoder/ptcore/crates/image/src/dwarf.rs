//! Source lines and inlined functions from DWARF, read unit by unit as they are asked for.

mod split;

use crate::absent::{Absent, Absents};
use crate::bytes::Bytes;
use crate::demangle::demangle;
use crate::elf_file::{elf, File};
use crate::metered::{on_little_stack, readings, Copies, Metered};
use crate::separate::Search;
use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use elsa::{FrozenMap, FrozenVec};
use gimli::{AbbreviationsCacheStrategy, DwarfPackage, SectionId};
use object::{CompressedData, Object, ObjectSection};
use self_cell::self_cell;
use split::SplitFile;
use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Compressed sections of a binary are unpacked up to this many bytes; further ones are missing.
const MAX_UNPACKED: u64 = 1 << 30;
/// Inlined calls at one address; a file that claims more is damaged.
const MAX_FRAMES: usize = 1 << 8;

/// A function at an address: the code's own one, or one that was inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Demangled; `None` where nothing names it.
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// A file, and where it was found.
pub type Located = (PathBuf, Arc<Bytes>);

/// The debug information of a binary, opened when it is first asked for.
pub struct Dwarf {
    files: Vec<Located>,
    search: Search,
    opened: OnceLock<Option<Mutex<Opened>>>,
}

impl Dwarf {
    /// The first of `files` with debug information has it all.
    pub fn new(files: Vec<Located>, search: Search) -> Dwarf {
        Dwarf { files, search, opened: OnceLock::new() }
    }

    /// `None` when no file has debug information.
    pub fn line(&self, address: u64) -> Option<(String, u32)> {
        let opened = self.opened()?.lock().unwrap_or_else(PoisonError::into_inner);
        opened.with_dependent(|_, units| units.line(address))
    }

    /// The functions at `address`, the innermost inlined one first; empty when nothing is known.
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        let Some(opened) = self.opened() else { return Vec::new() };
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        let frames = || opened.with_dependent(|files, units| units.frames(files, address));
        on_little_stack(frames).unwrap_or_default()
    }

    /// Files that were looked for so far and are not there, and how many more than are named.
    pub fn absent(&self) -> (Vec<Absent>, usize) {
        let Some(opened) = self.opened.get().and_then(Option::as_ref) else { return Default::default() };
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.borrow_owner().absent.all()
    }

    /// It was asked for, and there is none.
    pub fn is_missed(&self) -> bool {
        self.opened.get().is_some_and(Option::is_none)
    }

    fn opened(&self) -> Option<&Mutex<Opened>> {
        let open = || {
            let main = self.files.iter().find(|(_, bytes)| has_units(bytes))?;
            let paths = self.files.iter().map(|(path, _)| path.clone()).collect();
            let files = Files::new(main.clone(), paths, self.search.clone());
            Opened::try_new(files, |files| Units::open(files).ok_or(())).ok().map(Mutex::new)
        };
        self.opened.get_or_init(open).as_ref()
    }
}

self_cell!(
    struct Opened {
        owner: Files,
        #[not_covariant]
        dependent: Units,
    }
);

/// What the units borrow from; more comes while they are read.
struct Files {
    main: Located,
    /// Of the binary and its debug file.
    paths: Vec<PathBuf>,
    search: Search,
    others: FrozenVec<Box<Bytes>>,
    sections: FrozenVec<Vec<u8>>,
    room: Cell<u64>,
    /// Of sections, how often they are read.
    readings: FrozenVec<Box<AtomicU64>>,
    copies: Copies,
    absent: Absents,
}

impl Files {
    fn new(main: Located, paths: Vec<PathBuf>, search: Search) -> Files {
        Files {
            main,
            paths,
            search,
            others: FrozenVec::new(),
            sections: FrozenVec::new(),
            room: Cell::new(MAX_UNPACKED),
            readings: FrozenVec::new(),
            copies: Copies::default(),
            absent: Absents::default(),
        }
    }

    fn add(&self, path: &Path) -> Option<&[u8]> {
        Some(self.others.push_get(Box::new(Bytes::open(path).ok()?)))
    }

    /// The section's bytes, unpacked; none when it is absent, damaged or too large.
    fn section<'f>(&'f self, file: &File<'f>, name: &str) -> Metered<'f> {
        let bytes = self.section_bytes(file, name).unwrap_or_default();
        if name == SectionId::DebugLine.name() {
            self.copies.add(bytes);
        }
        let kept = KEPT.iter().any(|id| name == id.name() || id.dwo_name() == Some(name));
        let readings = kept.then(|| self.readings.push_get(Box::new(readings(bytes))));
        Metered::new(bytes, readings, &self.copies)
    }

    fn section_bytes<'f>(&'f self, file: &File<'f>, name: &str) -> Option<&'f [u8]> {
        self.unpacked(file.section_by_name(name)?.compressed_data().ok()?)
    }

    fn unpacked<'f>(&'f self, data: CompressedData<'f>) -> Option<&'f [u8]> {
        if data.format == object::CompressionFormat::None {
            return Some(data.data);
        }
        self.room.set(self.room.get().checked_sub(data.uncompressed_size)?);
        self.search.room.take(data.uncompressed_size)?;
        Some(self.sections.push_get(data.decompress().ok()?.into_owned()))
    }

    fn dwarf<'f>(&'f self, file: &File<'f>) -> gimli::Dwarf<Metered<'f>> {
        let section = |id: SectionId| Ok(if is_read(id) { self.section(file, id.name()) } else { Metered::default() });
        gimli::Dwarf::load::<_, ()>(section).unwrap_or_default()
    }

    /// The section as files of split debug information name it.
    fn split_section<'f>(&'f self, file: &File<'f>, id: SectionId) -> Metered<'f> {
        id.dwo_name().filter(|_| is_read(id)).map_or(Metered::default(), |name| self.section(file, name))
    }
}

/// The sections of whose tables a copy is kept for each unit or function that refers to one.
const KEPT: [SectionId; 4] =
    [SectionId::DebugAbbrev, SectionId::DebugLine, SectionId::DebugRanges, SectionId::DebugRngLists];

/// The sections that lines and functions need; locations of variables and macros are the larger part of the others.
fn is_read(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugCuIndex
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

fn has_units(bytes: &[u8]) -> bool {
    little_endian(bytes).is_some_and(|file| file.section_by_name(".debug_info").is_some_and(|info| info.size() > 0))
}

fn little_endian(bytes: &[u8]) -> Option<File<'_>> {
    elf(bytes).ok().filter(|file| file.is_little_endian())
}

struct Units<'f> {
    context: Context<Metered<'f>>,
    packages: Vec<DwarfPackage<Metered<'f>>>,
    /// By path, also where there is none.
    split_files: FrozenMap<PathBuf, Box<Option<SplitFile<'f>>>>,
}

impl<'f> Units<'f> {
    fn open(files: &'f Files) -> Option<Units<'f>> {
        let (path, bytes) = &files.main;
        let file = little_endian(bytes)?;
        let mut dwarf = files.dwarf(&file);
        let common = files.search.common_file(path, &file).and_then(|path| files.add(&path));
        match (common.and_then(little_endian), file.gnu_debugaltlink()) {
            (Some(common), _) => dwarf.set_sup(files.dwarf(&common)),
            (None, Ok(Some((name, _)))) => {
                let folder = path.parent().map_or(&[][..], |folder| folder.as_os_str().as_bytes());
                files.absent.add(folder, name, None);
            }
            _ => {}
        }
        let packages = files.paths.iter().flat_map(|path| files.search.packages(path)).filter_map(|path| {
            let file = little_endian(files.add(&path)?)?;
            // A package is cut into units by offsets into every section: none may be left out. Type units are not read.
            let name = |id: SectionId| id.dwo_name().filter(|_| id != SectionId::DebugTuIndex);
            let whole = |id| name(id).map_or(Metered::default(), |name| files.section(&file, name));
            let section = |id| Ok::<_, gimli::Error>(whole(id));
            DwarfPackage::load(section, Metered::default()).ok()
        });
        let packages = packages.collect();
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        Some(Units { context: Context::from_dwarf(dwarf).ok()?, packages, split_files: FrozenMap::new() })
    }

    fn line(&self, address: u64) -> Option<(String, u32)> {
        let location = self.context.find_location(address).ok()??;
        Some((location.file?.to_owned(), location.line?))
    }

    fn frames(&self, files: &'f Files, address: u64) -> Option<Vec<Frame>> {
        let mut lookup = self.context.find_frames(address);
        let mut found = loop {
            match lookup {
                LookupResult::Output(found) => break found.ok()?,
                LookupResult::Load { load, continuation } => lookup = continuation.resume(self.split(files, &load)),
            }
        };
        let mut frames = Vec::new();
        while let (Ok(Some(frame)), true) = (found.next(), frames.len() < MAX_FRAMES) {
            let name = frame.function.as_ref().map(|function| String::from_utf8_lossy(function.name.bytes()));
            frames.push(Frame {
                function: name.map(|name| demangle(&name)),
                file: frame.location.as_ref().and_then(|location| location.file).map(str::to_owned),
                line: frame.location.as_ref().and_then(|location| location.line),
            });
        }
        Some(frames)
    }

    fn split(&self, files: &'f Files, load: &SplitDwarfLoad<Metered<'f>>) -> Option<Arc<gimli::Dwarf<Metered<'f>>>> {
        let packed = self.packages.iter().find_map(|package| package.find_cu(load.dwo_id, &load.parent).ok().flatten());
        if let Some(dwarf) = packed {
            return Some(Arc::new(dwarf));
        }
        let folder = load.comp_dir.map_or(&[][..], |folder| folder.bytes());
        let name = load.path?.bytes();
        let mut refused = None;
        for path in files.paths.iter().flat_map(|path| files.search.split(path, folder, name)) {
            match self.split_file(files, &path).and_then(|file| file.beginning_with(load)) {
                Some(dwarf) => return Some(dwarf),
                None => refused = refused.or(Some(path)),
            }
        }
        files.absent.add(folder, name, refused);
        None
    }

    fn split_file(&self, files: &'f Files, path: &Path) -> Option<&SplitFile<'f>> {
        let known = self.split_files.get(path);
        let open = || self.split_files.insert(path.to_owned(), Box::new(SplitFile::open(files, path)));
        known.unwrap_or_else(open).as_ref()
    }
}

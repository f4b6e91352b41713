//! An ELF file: its code and its functions.

use crate::bytes::Bytes;
use crate::demangle::demangle;
use crate::dwarf::{Dwarf, Frame};
use crate::flatten::{flatten, Range};
use crate::name::Role;
use crate::pclntab;
use crate::plt::{lazy_stubs, stubs, Callee};
use crate::separate::{hex, Search};
use crate::symbols::{dynamic_functions, place_of, static_functions, Binding, Source, Symbol};
use crate::unwind::function_bounds;
use crate::xz;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, SectionKind, SymbolIndex};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Unpacks the xz data of `.gnu_debugdata`; `None` when they are damaged or too large.
pub type Unpack<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

#[derive(Debug)]
pub enum BinaryError {
    Unreadable { path: PathBuf, error: io::Error },
    NotElf { path: PathBuf, error: String },
}

impl fmt::Display for BinaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BinaryError::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
            BinaryError::NotElf { path, error } => write!(f, "{} is no ELF file: {error}", path.display()),
        }
    }
}

impl std::error::Error for BinaryError {}

/// A function of a binary. Addresses are the file's own.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub address: u64,
    pub size: u64,
    pub source: Source,
    pub role: Role,
    name: Option<Name>,
}

/// Where the name stands, in which of the binary's files.
#[derive(Clone, Copy, Debug)]
struct Name {
    file: Source,
    at: (u64, u32),
}

/// A stretch of the file that is loaded.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    address: u64,
    size: u64,
    executable: bool,
}

/// What is known about an address: the function it is in, or between which bounds none is.
pub struct Found {
    pub function: Option<u32>,
    pub start: u64,
    pub end: u64,
}

pub struct Binary {
    path: PathBuf,
    bytes: Arc<Bytes>,
    debug: Option<Arc<Bytes>>,
    mini: Option<Bytes>,
    build_id: String,
    symbol_status: String,
    segments: Vec<Segment>,
    functions: Vec<Function>,
    ranges: Vec<Range>,
    dwarf: Dwarf,
    go: Option<pclntab::Place>,
}

impl Binary {
    /// Reads an ELF file and, where given, its separate debug file. A debug file that cannot be used is named in
    /// `symbol_status`, no error.
    pub fn open(path: &Path, debug_path: Option<&Path>, unpack: Unpack<'_>) -> Result<Binary, BinaryError> {
        Binary::read(path, Search { debug: debug_path.map(Path::to_owned), ..Search::default() }, unpack)
    }

    /// Reads an ELF file and the symbols of its separate debug file, which is looked for as `search` says. A debug file
    /// that cannot be used is named in `symbol_status`, no error.
    pub fn load(path: &Path, search: &Search) -> Result<Binary, BinaryError> {
        Binary::read(path, search.clone(), &xz::unpack)
    }

    fn read(path: &Path, search: Search, unpack: Unpack<'_>) -> Result<Binary, BinaryError> {
        let bytes = Bytes::open(path).map_err(|error| BinaryError::Unreadable { path: path.to_owned(), error })?;
        let bytes = Arc::new(bytes);
        let file = elf(&bytes).map_err(|error| BinaryError::NotElf { path: path.to_owned(), error })?;
        let build_id = hex(file.build_id().ok().flatten().unwrap_or_default());
        let mut files = vec![(path.to_owned(), Arc::clone(&bytes))];
        let mut refusal = String::new();
        let mut debug = None;
        if let Some(path) = search.debug_file(path, &file) {
            match usable(Bytes::open(&path), &build_id) {
                Ok(bytes) => {
                    files.insert(0, (path, Arc::clone(debug.insert(Arc::new(bytes)))));
                }
                Err(error) => refusal = format!("; the debug file {} cannot be used: {error}", path.display()),
            }
        }
        let mini = mini_debug_info(&file, unpack);
        let segments = segments(&file);
        let mut binary = Binary {
            path: path.to_owned(),
            build_id,
            symbol_status: String::new(),
            segments,
            functions: Vec::new(),
            ranges: Vec::new(),
            dwarf: Dwarf::new(files, search),
            go: pclntab::Place::find(&file, &bytes),
            debug,
            mini,
            bytes: Arc::clone(&bytes),
        };
        let symbols = binary.symbols(&file, &bytes);
        binary.symbol_status = status(&symbols, &refusal);
        binary.name_functions(&file, &bytes, symbols);
        Ok(binary)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// GNU build id in hex, empty when there is none.
    pub fn build_id(&self) -> &str {
        &self.build_id
    }

    /// The best table there is: `symtab`, `debug`, `minidebug`, `dynsym` or `none: ` with the reason.
    pub fn symbol_status(&self) -> &str {
        &self.symbol_status
    }

    /// All functions, by address.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    pub fn function(&self, number: u32) -> &Function {
        &self.functions[number as usize]
    }

    /// The function's name, demangled; `None` for one that is known by its bounds alone.
    pub fn name(&self, function: &Function) -> Option<String> {
        let raw = self.raw_name(function.name?)?;
        let name = demangle(&String::from_utf8_lossy(raw));
        Some(if function.source == Source::Plt { name + "@plt" } else { name })
    }

    /// File and line of each address, `None` where the debug information has none.
    pub fn lines(&self, addresses: &[u64]) -> Vec<Option<(String, u32)>> {
        let go = self.go.and_then(|place| place.table(&self.bytes));
        let line = |address| self.dwarf.line(address).or_else(|| go.as_ref()?.line(address));
        addresses.iter().map(|&address| line(address)).collect()
    }

    /// The functions at `address`, the innermost inlined one first and the code's own last, each with the file and line
    /// where it stands. Without debug information at most the function that symbols tell.
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        let mut frames = self.dwarf.frames(address);
        let own = self.find(address).function.and_then(|number| self.name(self.function(number)));
        match frames.last_mut() {
            // The symbol's name is the one that the function has everywhere else.
            Some(last) => last.function = own.or(last.function.take()),
            None => {
                let (file, line) = self.lines(&[address]).pop().flatten().unzip();
                frames.extend(own.map(|name| Frame { function: Some(name), file, line }));
            }
        }
        frames
    }

    /// The file's bytes from `offset` on.
    pub fn code(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or_default()
    }

    /// The bytes of its separate debug file, where one was found.
    pub fn debug(&self) -> Option<&[u8]> {
        self.debug.as_deref().map(|bytes| &**bytes)
    }

    /// The address at which the byte at `offset` is loaded; `None` when no segment loads it.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        // Neighbouring segments may share a page of the file: the one with code is meant.
        let holds =
            |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|distance| distance < segment.size);
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.executable && holds(segment))
            .or_else(|| self.segments.iter().find(holds))?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    /// The function around `address`.
    pub fn find(&self, address: u64) -> Found {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let before = after.checked_sub(1).map(|index| self.ranges[index]);
        if let Some(range) = before.filter(|range| address < range.end) {
            return Found { function: Some(range.function), start: range.start, end: range.end };
        }
        let segment = self.segments.iter().find(|segment| address.wrapping_sub(segment.address) < segment.size);
        let (first, last) =
            segment.map_or((0, u64::MAX), |segment| (segment.address, segment.address.saturating_add(segment.size)));
        Found {
            function: None,
            start: before.map_or(first, |range| range.end.max(first)),
            end: self.ranges.get(after).map_or(last, |range| range.start.min(last)),
        }
    }

    fn raw_name(&self, name: Name) -> Option<&[u8]> {
        let bytes = match name.file {
            Source::Debug => self.debug.as_deref()?,
            Source::MiniDebug => self.mini.as_deref()?,
            _ => &self.bytes,
        };
        named(bytes, name.at)
    }

    /// All function symbols in executable segments.
    fn symbols(&self, file: &object::File<'_>, bytes: &[u8]) -> Vec<Symbol> {
        let mut symbols = static_functions(file, bytes, Source::Symtab);
        let debug = self.debug.iter().map(|debug| (&***debug, Source::Debug));
        let mini = self.mini.iter().map(|mini| (&**mini, Source::MiniDebug));
        for (other, source) in debug.chain(mini) {
            if let Ok(file) = elf(other) {
                symbols.extend(static_functions(&file, other, source));
            }
        }
        if !symbols.iter().any(|symbol| symbol.source == Source::Symtab) {
            symbols.extend(self.go_functions(bytes));
        }
        symbols.extend(dynamic_functions(file, bytes));
        symbols.retain(|symbol| self.is_code(symbol.address));
        symbols
    }

    fn go_functions(&self, bytes: &[u8]) -> Vec<Symbol> {
        let Some(table) = self.go.and_then(|place| place.table(bytes)) else { return Vec::new() };
        let symbol = |function: pclntab::GoFunction<'_>| {
            let name = place_of(function.name, bytes)?;
            let size = function.end - function.start;
            Some(Symbol { address: function.start, size, source: Source::Go, binding: Binding::Global, name })
        };
        table.functions().filter_map(symbol).collect()
    }

    fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| segment.executable && address.wrapping_sub(segment.address) < segment.size)
    }

    fn name_functions(&mut self, file: &object::File<'_>, bytes: &[u8], symbols: Vec<Symbol>) {
        let mut functions = self.chosen(bytes, symbols);
        self.add_stubs(&mut functions, file, bytes);
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        close_sizes(&mut functions, &code_sections(file));
        self.add_unwind_bounds(&mut functions, file);
        let cold = self.cold_parts(bytes, &functions);
        self.ranges = flatten(&ranges(&functions));
        for range in &mut self.ranges {
            range.function = *cold.get(&range.function).unwrap_or(&range.function);
        }
        self.functions = functions;
    }

    /// One name for each address: global before weak before local, then the shortest, then the first in order.
    fn chosen(&self, bytes: &[u8], mut symbols: Vec<Symbol>) -> Vec<Function> {
        let text = |symbol: &Symbol| self.name_of(bytes, symbol);
        symbols.sort_by(|a, b| {
            let key = |symbol: &Symbol| (symbol.address, symbol.binding, symbol.name.1);
            key(a).cmp(&key(b)).then_with(|| text(a).cmp(text(b))).then_with(|| a.source.cmp(&b.source))
        });
        let same = symbols.chunk_by(|a, b| a.address == b.address);
        same.map(|aliases| {
            let first = &aliases[0];
            let role = aliases.iter().map(|alias| Role::of(text(alias))).find(|&role| role != Role::Plain);
            Function {
                address: first.address,
                size: aliases.iter().map(|alias| alias.size).max().unwrap_or(0),
                source: first.source,
                role: role.unwrap_or_default(),
                name: Some(Name { file: first.source, at: first.name }),
            }
        })
        .collect()
    }

    fn name_of<'b>(&'b self, bytes: &'b [u8], symbol: &Symbol) -> &'b [u8] {
        let bytes = match symbol.source {
            Source::Debug => self.debug.as_ref().map_or(&[][..], |debug| debug),
            Source::MiniDebug => self.mini.as_deref().unwrap_or_default(),
            _ => bytes,
        };
        named(bytes, symbol.name).unwrap_or_default()
    }

    fn add_stubs(&self, functions: &mut Vec<Function>, file: &object::File<'_>, bytes: &[u8]) {
        let table = file.dynamic_symbol_table();
        let stubs: Vec<_> = stubs(file)
            .into_iter()
            .filter_map(|stub| {
                let name = match stub.callee {
                    Callee::Symbol(number) => {
                        let symbol = table.as_ref()?.symbol_by_index(SymbolIndex(number as usize)).ok()?;
                        Name { file: Source::Dynsym, at: place_of(symbol.name_bytes().ok()?, bytes)? }
                    }
                    Callee::Resolver(address) => {
                        let found = functions.binary_search_by_key(&address, |function| function.address).ok()?;
                        functions[found].name?
                    }
                };
                Some(Function {
                    address: stub.start,
                    size: stub.end.wrapping_sub(stub.start),
                    source: Source::Plt,
                    role: Role::Stub,
                    name: Some(name),
                })
            })
            .collect();
        functions.extend(stubs);
    }

    fn add_unwind_bounds(&self, functions: &mut Vec<Function>, file: &object::File<'_>) {
        let known = flatten(&ranges(functions));
        let covered = |address: u64| {
            let after = known.partition_point(|range| range.start <= address);
            after > 0 && address < known[after - 1].end
        };
        let next =
            |address: u64| known.get(known.partition_point(|range| range.start <= address)).map(|range| range.start);
        let bounds = function_bounds(file);
        let lazy = lazy_stubs(file);
        functions.extend(
            bounds.iter().filter(|&&(start, end)| start < end && self.is_code(start) && !covered(start)).map(
                |&(start, end)| Function {
                    address: start,
                    size: end.min(next(start).unwrap_or(u64::MAX)) - start,
                    source: Source::Unwind,
                    // The code in front of the stubs, which leads to the resolver.
                    role: if lazy.contains(&start) { Role::Stub } else { Role::Plain },
                    name: None,
                },
            ),
        );
        functions.sort_by_key(|function| function.address);
    }

    /// Parts that the compiler moved away from their function (`name.cold`, `name.cold.1`), with the function.
    fn cold_parts(&self, bytes: &[u8], functions: &[Function]) -> HashMap<u32, u32> {
        let text = |function: &Function| {
            let name = function.name?;
            let bytes = match name.file {
                Source::Debug => self.debug.as_deref()?,
                Source::MiniDebug => self.mini.as_deref()?,
                _ => bytes,
            };
            named(bytes, name.at).filter(|_| function.source != Source::Plt)
        };
        let parts: Vec<_> = functions
            .iter()
            .zip(0..)
            .filter_map(|(function, number)| Some((hot_name(text(function)?)?, number)))
            .collect();
        if parts.is_empty() {
            return HashMap::new();
        }
        // A name that several files have for their own functions tells nothing.
        let mut whole = HashMap::new();
        for (function, number) in functions.iter().zip(0u32..) {
            if let Some(name) = text(function) {
                whole.entry(name).and_modify(|known| *known = None).or_insert(Some(number));
            }
        }
        parts.into_iter().filter_map(|(name, part)| Some((part, (*whole.get(name)?)?))).collect()
    }
}

fn elf(bytes: &[u8]) -> Result<object::File<'_>, String> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err("it does not begin with the ELF magic number".to_owned());
    }
    object::File::parse(bytes).map_err(|error| error.to_string())
}

fn usable(debug: io::Result<Bytes>, build_id: &str) -> Result<Bytes, String> {
    let debug = debug.map_err(|error| error.to_string())?;
    let file = elf(&debug)?;
    let other = hex(file.build_id().ok().flatten().unwrap_or_default());
    if !build_id.is_empty() && !other.is_empty() && other != build_id {
        return Err(format!("its build id is {other}"));
    }
    drop(file);
    Ok(debug)
}

fn mini_debug_info(file: &object::File<'_>, unpack: Unpack<'_>) -> Option<Bytes> {
    let packed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
    let bytes = Bytes::Owned(unpack(packed)?);
    elf(&bytes).is_ok().then_some(bytes)
}

fn segments(file: &object::File<'_>) -> Vec<Segment> {
    file.segments()
        .map(|segment| Segment {
            offset: segment.file_range().0,
            address: segment.address(),
            size: segment.file_range().1,
            executable: segment.permissions().executable(),
        })
        .collect()
}

fn code_sections(file: &object::File<'_>) -> Vec<(u64, u64)> {
    let mut sections: Vec<_> = file
        .sections()
        .filter(|section| section.kind() == SectionKind::Text)
        .map(|section| (section.address(), section.address().saturating_add(section.size())))
        .collect();
    sections.sort_unstable();
    sections
}

/// Functions whose symbol says no size end where the next one or their section does. Sorted by address.
fn close_sizes(functions: &mut [Function], sections: &[(u64, u64)]) {
    let mut next = u64::MAX;
    for function in functions.iter_mut().rev() {
        if function.size == 0 {
            let after = sections.partition_point(|&(start, _)| start <= function.address);
            let end = after.checked_sub(1).map_or(next, |section| sections[section].1);
            let end = if end > function.address { end.min(next) } else { next };
            function.size = if end == u64::MAX { 1 } else { end - function.address };
        }
        next = function.address;
    }
}

fn ranges(functions: &[Function]) -> Vec<Range> {
    functions
        .iter()
        .zip(0..)
        .map(|(function, number)| Range {
            start: function.address,
            end: function.address.saturating_add(function.size),
            function: number,
        })
        .collect()
}

/// `name` of `name.cold` and `name.cold.1`.
fn hot_name(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let stem = &name[..name.len() - digits];
    let stem = if digits > 0 { stem.strip_suffix(b".")? } else { stem };
    stem.strip_suffix(b".cold").filter(|stem| !stem.is_empty())
}

fn named(bytes: &[u8], (offset, length): (u64, u32)) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(length as usize)?)
}

fn status(symbols: &[Symbol], refusal: &str) -> String {
    match symbols.iter().map(|symbol| symbol.source).min() {
        Some(source) => format!("{}{refusal}", source.name()),
        None => format!("none: no function symbols in the file and no separate debug file{refusal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_segments_of_any_size() {
        let search = Search::default();
        let segment = |offset, size| Segment { offset, address: 0x40_0000, size, executable: true };
        let mut binary = Binary {
            path: PathBuf::new(),
            bytes: Arc::new(Bytes::Owned(Vec::new())),
            debug: None,
            mini: None,
            build_id: String::new(),
            symbol_status: String::new(),
            segments: vec![segment(0x1000, u64::MAX)],
            functions: Vec::new(),
            ranges: Vec::new(),
            dwarf: Dwarf::new(Vec::new(), search),
            go: None,
        };
        assert_eq!([0, 0xfff].map(|offset| binary.address_of(offset)), [None, None]);
        assert_eq!(binary.address_of(0x1234), Some(0x40_0234));
        binary.segments = vec![segment(0x1000, 0x10)];
        assert_eq!([0x100f, 0x1010].map(|offset| binary.address_of(offset)), [Some(0x40_000f), None]);
    }
}

//! The kernel's own file, moved to where the kernel was (address space randomisation).

use super::{traced_calls, Addresses, Recorded, TEXT};
use crate::elf::Function;
use crate::files::{loaded, Files, Loaded};
use crate::identity::same_id;
use crate::perf::modules::NOP5;
use crate::spaces::{Content, Mapping};
use crate::{CaptureError, Options};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolIndex, SymbolKind};
use pt_image::{Binary, Binding, SymbolNames};
use std::path::Path;
use std::sync::Arc;

/// What its code belongs to.
const NAME: &str = "[kernel]";

pub struct Vmlinux {
    binary: Arc<Binary>,
    parts: Vec<Loaded>,
    /// How far it was moved.
    slide: u64,
    /// Where the file has `__fentry__`.
    fentry: Option<u64>,
    has_names: bool,
}

impl Vmlinux {
    /// The one that was given, or the one with the kernel's build id among the binaries of the recorded machine.
    pub fn find(
        recorded: &Recorded,
        options: &Options,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Vmlinux>, CaptureError> {
        let found = if options.vmlinux.is_some() { given(recorded, options)? } else { with_id(recorded, options) };
        found.map(|binary| Vmlinux::moved(binary, recorded, warnings)).transpose()
    }

    /// As far as the recorded symbol was.
    fn moved(binary: Arc<Binary>, recorded: &Recorded, warnings: &mut Vec<String>) -> Result<Vmlinux, CaptureError> {
        let refuse = |what: String| refusal(&binary, what);
        let parts = loaded(binary.code(0)).map_err(refuse)?;
        let code = parts.iter().find(|part| part.executable && part.address >= TEXT);
        let none = || refuse(format!("no part of it is code at {TEXT:#x} or above: it is no kernel"));
        let code = code.map(|part| part.address).ok_or_else(none)?;
        if !may_have_code(&binary) {
            let what =
                "it has no code: distributions have such a vmlinux for BTF or for debuggers, beside the whole one";
            return Err(refuse(what.to_owned()));
        }
        let file = binary.elf().map_err(refuse)?;
        let names = SymbolNames::of(&file);
        let is_named = |symbol: SymbolIndex, name: &str| names.name(symbol) == Some(name.as_bytes());
        let symbol = |name: &str| file.symbols().find(|one| is_named(one.index(), name)).map(|symbol| symbol.address());
        let own = recorded.symbol.as_ref().and_then(|(name, _)| symbol(name));
        if own.is_none() && (binary.build_id().is_empty() || recorded.build_id.is_empty()) {
            let what = "neither a build id nor a symbol says whether it is the recorded kernel";
            warnings.push(format!("{}: {what}", binary.path().display()));
        }
        let slide = recorded.symbol.as_ref().map_or(0, |(_, address)| address.wrapping_sub(own.unwrap_or(code)));
        let (fentry, has_names) = (symbol("__fentry__"), file.symbols().next().is_some());
        Ok(Vmlinux { slide, parts, fentry, has_names, binary: Arc::clone(&binary) })
    }

    pub fn path(&self) -> &Path {
        self.binary.path()
    }

    /// As it is once the kernel has begun to run: functions are not traced then.
    pub fn code(&self) -> Vec<Mapping> {
        let bytes = self.binary.code(0).len() as u64;
        let mapping = |part: &Loaded| Mapping {
            address: part.address.wrapping_add(self.slide),
            size: part.size.min(bytes.saturating_sub(part.offset)),
            name: NAME.to_owned(),
            content: Content::File { binary: Arc::clone(&self.binary), offset: part.offset },
        };
        let code = self.parts.iter().filter(|part| part.executable && part.size > 0);
        let mut mappings: Vec<_> = code.map(mapping).filter(|one| one.size > 0).collect();
        let traced = self.traced_calls(&mappings);
        let nop: Arc<[u8]> = NOP5.into();
        mappings.extend(traced.into_iter().map(|address| Mapping {
            address,
            size: nop.len() as u64,
            name: NAME.to_owned(),
            content: Content::Code(Arc::clone(&nop)),
        }));
        mappings
    }

    /// What of the text stands at another address, of that size at most: the address, the size, and where it is in the text.
    pub fn entry(&self, (address, size, text): (u64, u64, u64)) -> Option<Mapping> {
        let linked = text.wrapping_sub(self.slide);
        let inside = |part: &Loaded| linked.checked_sub(part.address).filter(|&inside| inside < part.size);
        let executable = self.parts.iter().filter(|part| part.executable);
        let (part, inside) = executable.filter_map(|part| Some((part, inside(part)?))).next()?;
        let offset = part.offset.checked_add(inside)?;
        let there = (part.size - inside).min(self.binary.code(offset).len() as u64);
        let content = Content::File { binary: Arc::clone(&self.binary), offset };
        let mapping = Mapping { address, size: size.min(there), name: NAME.to_owned(), content };
        (mapping.size > 0).then_some(mapping)
    }

    fn traced_calls(&self, code: &[Mapping]) -> Vec<u64> {
        // The parts of a crafted file may all be the same bytes.
        let mut room = self.binary.code(0).len() as u64;
        let parts = code.iter().map_while(|part| {
            room = room.checked_sub(part.size)?;
            Some((part.address, &part.content.code()[..part.size as usize]))
        });
        let parts: Vec<_> = parts.collect();
        let fentry = match self.fentry {
            Some(address) => Some(address.wrapping_add(self.slide)),
            None if self.has_names => None,
            None => traced_calls::most_called(&parts),
        };
        fentry.map(|fentry| traced_calls::of(&parts, fentry)).unwrap_or_default()
    }

    /// Where what it defines was.
    pub fn addresses(&self) -> Result<Addresses<'_>, CaptureError> {
        let file = self.binary.elf().map_err(|what| refusal(&self.binary, what))?;
        let names = SymbolNames::of(&file);
        let symbols = file.symbols().filter(|symbol| symbol.is_definition());
        Ok(symbols.filter_map(|one| Some((names.name(one.index())?, one.address().wrapping_add(self.slide)))).collect())
    }

    /// By address.
    pub fn functions(&self) -> Result<Vec<Function>, CaptureError> {
        let file = self.binary.elf().map_err(|what| refusal(&self.binary, what))?;
        let names = SymbolNames::of(&file);
        let symbols = file.symbols().filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
        let (mut functions, mut named_bytes) = (Vec::new(), 0);
        for symbol in symbols {
            let Some(name) = names.name(symbol.index()) else { continue };
            named_bytes += name.len();
            if named_bytes > self.binary.code(0).len() {
                return Err(refusal(&self.binary, "its functions' names have more bytes than the file".to_owned()));
            }
            let (address, name) =
                (symbol.address().wrapping_add(self.slide), String::from_utf8_lossy(name).into_owned());
            functions.push(Function { address, size: symbol.size(), name, binding: Binding::of(&symbol) });
        }
        functions.sort_by_key(|function| function.address);
        Ok(functions)
    }
}

/// As its own section headers say, where it has any: an executable segment may hold data.
fn may_have_code(binary: &Binary) -> bool {
    let Ok(file) = pt_image::elf(binary.code(0)) else { return true };
    let mut sections = file.sections().peekable();
    sections.peek().is_none() || sections.any(|section| section.kind() == SectionKind::Text && section.size() > 0)
}

fn refusal(binary: &Binary, what: String) -> CaptureError {
    CaptureError::option(&binary.path().display().to_string(), what)
}

fn given(recorded: &Recorded, options: &Options) -> Result<Option<Arc<Binary>>, CaptureError> {
    let Some(path) = &options.vmlinux else { return Ok(None) };
    let refuse = |what: String| CaptureError::option(&path.display().to_string(), what);
    let binary = Files::new(&options.symbols).open_alone(path).map_err(refuse)?;
    let (own, wanted) = (binary.build_id(), &*recorded.build_id);
    if !own.is_empty() && !wanted.is_empty() && !same_id(own, wanted) {
        let what = format!("its build id is {own}, that of the recorded kernel {wanted}: it is another one");
        return Err(refuse(what));
    }
    Ok(Some(binary))
}

fn with_id(recorded: &Recorded, options: &Options) -> Option<Arc<Binary>> {
    let wanted = &*recorded.build_id;
    if wanted.is_empty() || recorded.mapped.is_empty() {
        return None;
    }
    let mut files = Files::new(&options.symbols);
    let (release, (first, rest)) = (&recorded.release, wanted.split_at(2));
    // As in perf (tools/perf/util/symbol.c, vmlinux_path__init); a debug file may have the code, too.
    let names = [
        "vmlinux".to_owned(),
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("/lib/modules/{release}/vmlinux"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"),
        format!("/.build-id/{first}/{rest}.debug"),
    ];
    let packed = |name: &String| ["", ".gz", ".xz", ".zst"].map(|ending| format!("{name}{ending}"));
    let mut found = names.iter().flat_map(packed).filter_map(|name| files.find(&name, wanted).ok());
    found.find(|binary| may_have_code(binary))
}

//! Functions that the symbol tables of a file name.

use crate::elf_file::File;
use crate::name::MAX_NAME;
use crate::symbol_names::SymbolNames;
use object::{Object, ObjectSymbol, SymbolKind};

/// Where a function is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// `.symtab` of the file itself.
    Symtab,
    /// `.symtab` of the separate debug file.
    Debug,
    /// `.symtab` of the compressed file in `.gnu_debugdata`.
    MiniDebug,
    /// Go's own table in `.gopclntab`.
    Go,
    /// `.dynsym`.
    Dynsym,
    /// A stub in the procedure linkage table.
    Plt,
    /// `.eh_frame`: bounds without a name.
    Unwind,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Symtab => "symtab",
            Source::Debug => "debug",
            Source::MiniDebug => "minidebug",
            Source::Go => "gopclntab",
            Source::Dynsym => "dynsym",
            Source::Plt => "plt",
            Source::Unwind => "none: stripped, bounds from the unwind table",
        }
    }
}

/// A function symbol; `name` stands at this place in the bytes of its file.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    pub address: u64,
    pub size: u64,
    pub source: Source,
    pub binding: Binding,
    pub name: (u64, u32),
}

/// In the order in which one of several names for one address is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    #[default]
    Global,
    Weak,
    Local,
}

impl Binding {
    pub fn of<'d>(symbol: &impl ObjectSymbol<'d>) -> Binding {
        match (symbol.is_weak(), symbol.is_local()) {
            (true, _) => Binding::Weak,
            (_, true) => Binding::Local,
            _ => Binding::Global,
        }
    }
}

/// The function symbols of the static symbol table of `file`, whose bytes are `data`.
pub fn static_functions(file: &File<'_>, data: &[u8], source: Source) -> Vec<Symbol> {
    let names = SymbolNames::of(file);
    file.symbols().filter_map(|symbol| function(&symbol, &names, data, source)).collect()
}

pub fn dynamic_functions(file: &File<'_>, data: &[u8]) -> Vec<Symbol> {
    let names = SymbolNames::dynamic(file);
    file.dynamic_symbols().filter_map(|symbol| function(&symbol, &names, data, Source::Dynsym)).collect()
}

fn function<'d>(one: &impl ObjectSymbol<'d>, names: &SymbolNames<'_>, data: &[u8], source: Source) -> Option<Symbol> {
    (one.kind() == SymbolKind::Text && !one.is_undefined()).then(|| symbol(one, names, data, source))?
}

/// `None` for one without a name.
pub fn symbol<'d>(
    symbol: &impl ObjectSymbol<'d>,
    names: &SymbolNames<'_>,
    data: &[u8],
    source: Source,
) -> Option<Symbol> {
    let binding = Binding::of(symbol);
    let name = place_of(names.name(symbol.index())?, data)?;
    Some(Symbol { address: symbol.address(), size: symbol.size(), source, binding, name })
}

/// Where in `data` the part `name` stands.
pub fn place_of(name: &[u8], data: &[u8]) -> Option<(u64, u32)> {
    let offset = (name.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
    if name.is_empty() || offset + name.len() > data.len() {
        return None;
    }
    Some((offset as u64, name.len().min(MAX_NAME) as u32))
}

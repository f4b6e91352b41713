//! Names, which stay in the files until somebody asks.

use super::{Binary, Function};
use crate::demangle::demangle;
use crate::symbols::{Source, Symbol};

/// Where the name stands, in which of the binary's files.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub file: Source,
    pub at: (u64, u32),
}

impl Binary {
    /// The function's name, demangled; `None` for one that is known by its bounds alone.
    pub fn name(&self, function: &Function) -> Option<String> {
        let raw = self.raw_name(function.name?)?;
        let name = demangle(&String::from_utf8_lossy(raw));
        Some(if function.source == Source::Plt { name + "@plt" } else { name })
    }

    /// The address of the function that the file calls so, as it spells the name.
    pub fn function_named(&self, name: &[u8]) -> Option<u64> {
        let is_it = |function: &&Function| function.name.and_then(|of| self.raw_name(of)) == Some(name);
        self.functions.iter().find(is_it).map(|function| function.address)
    }

    pub(super) fn raw_name(&self, name: Name) -> Option<&[u8]> {
        let bytes = match name.file {
            Source::Debug => self.debug.as_deref()?,
            Source::MiniDebug => self.mini.as_deref()?,
            _ => &self.bytes,
        };
        named(bytes, name.at)
    }

    pub(super) fn name_of<'b>(&'b self, bytes: &'b [u8], symbol: &Symbol) -> &'b [u8] {
        let bytes = match symbol.source {
            Source::Debug => self.debug.as_ref().map_or(&[][..], |debug| debug),
            Source::MiniDebug => self.mini.as_deref().unwrap_or_default(),
            _ => bytes,
        };
        named(bytes, symbol.name).unwrap_or_default()
    }
}

pub fn named(bytes: &[u8], (offset, length): (u64, u32)) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(length as usize)?)
}

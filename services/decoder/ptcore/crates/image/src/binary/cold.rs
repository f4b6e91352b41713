//! Parts of functions that the compiler moved away from them.

use super::names::named;
use super::{Binary, Function};
use crate::elf_file::File;
use crate::name::Role;
use crate::parts::parts;
use crate::symbols::Source;
use std::collections::HashMap;

impl Binary {
    /// Parts that the compiler moved away from their function and named for it, with the function: `None` where several
    /// have its name, or none.
    pub(super) fn named_parts(&self, bytes: &[u8], functions: &[Function]) -> HashMap<u32, Option<u32>> {
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
            .filter_map(|(function, number)| Some((whole_name(text(function)?)?, number)))
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
        parts.into_iter().map(|(name, part)| (part, whole.get(name).copied().flatten())).collect()
    }
}

/// Parts that no name joins to a function, with the function. `named`: as [`Binary::named_parts`].
pub fn other_parts(file: &File<'_>, functions: &[Function], named: &HashMap<u32, Option<u32>>) -> HashMap<u32, u32> {
    let at = |address: u64| functions.binary_search_by_key(&address, |function| function.address).ok();
    let is_part = |number: usize| match named.get(&(number as u32)) {
        Some(whole) => whole.is_none(),
        // Code in front of stubs belongs to nobody.
        None => functions[number].source == Source::Unwind && functions[number].role == Role::Plain,
    };
    let parts = parts(file, |address| at(address).is_some_and(is_part));
    let numbers = parts.into_iter().filter_map(|(part, function)| Some((at(part)? as u32, at(function)? as u32)));
    // A part is nobody's whole.
    numbers.filter(|(_, function)| !named.contains_key(function)).collect()
}

/// `name` of `name.cold` and `name.cold.1`, and of what clang divides by `-fbasic-block-sections`: `name.__part.1` and
/// `name.eh` (LLVM, MachineBasicBlock::getSymbol). They are jumped to and share the frame. Copies and outlined parts that
/// are called (`.isra.0`, `.constprop.0`, `.part.0`, `.lto_priv.0`, `.llvm.1`) are functions of their own.
pub fn whole_name(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let stem = match &name[..name.len() - digits] {
        stem if digits == 0 => stem.strip_suffix(b".cold").or_else(|| stem.strip_suffix(b".eh")),
        stem => stem.strip_suffix(b".cold.").or_else(|| stem.strip_suffix(b".__part.")),
    };
    stem.filter(|stem| !stem.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_jumped_to_is_a_part_and_what_is_called_is_not() {
        for part in ["f.cold", "f.cold.1", "f.__part.12", "f.eh"] {
            assert_eq!(whole_name(part.as_bytes()), Some(&b"f"[..]), "{part}");
        }
        assert_eq!(whole_name(b"f.isra.0.cold"), Some(&b"f.isra.0"[..]));
        let own = ["f", "f.isra.0", "f.constprop.0", "f.part.0", "f.lto_priv.0", "f.llvm.77", "f.__part.", "f.eh.1"];
        for name in own.into_iter().chain([".cold", ".eh", ".__part.1", "12", ""]) {
            assert_eq!(whole_name(name.as_bytes()), None, "{name}");
        }
    }
}

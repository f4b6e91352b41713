//! Parts of functions that the compiler moved away from them.

use super::names::named;
use super::{Binary, Function};
use crate::name::Role;
use crate::parts::parts;
use crate::symbols::Source;
use std::collections::HashMap;

impl Binary {
    /// Parts that the compiler moved away from their function (`name.cold`, `name.cold.1`), with the function.
    pub(super) fn cold_parts(&self, bytes: &[u8], functions: &[Function]) -> HashMap<u32, u32> {
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

/// Parts without a name of their own, with the function.
pub fn unnamed_parts(file: &object::File<'_>, functions: &[Function]) -> HashMap<u32, u32> {
    let at = |address: u64| functions.binary_search_by_key(&address, |function| function.address).ok();
    // Code in front of stubs belongs to nobody.
    let is_part = |function: &Function| function.source == Source::Unwind && function.role == Role::Plain;
    let parts = parts(file, |address| at(address).is_some_and(|number| is_part(&functions[number])));
    parts.into_iter().filter_map(|(part, function)| Some((at(part)? as u32, at(function)? as u32))).collect()
}

/// `name` of `name.cold` and `name.cold.1`.
fn hot_name(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let stem = &name[..name.len() - digits];
    let stem = if digits > 0 { stem.strip_suffix(b".")? } else { stem };
    stem.strip_suffix(b".cold").filter(|stem| !stem.is_empty())
}

//! From symbols, stubs and the unwind table to the functions of a binary.

use super::bounds::{close_sizes, ranges};
use super::cold::other_parts;
use super::names::Name;
use super::segments::code_sections;
use super::Binary;
use crate::elf_file::File;
use crate::flatten::flatten;
use crate::name::Role;
use crate::plt::{stubs, Callee, Stub};
use crate::symbol_names::SymbolNames;
use crate::symbols::{place_of, Source, Symbol};
use crate::unwind::function_bounds;
use object::SymbolIndex;

/// A function of a binary. Addresses are the file's own.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub address: u64,
    pub size: u64,
    pub source: Source,
    pub role: Role,
    pub(super) name: Option<Name>,
}

impl Binary {
    pub(super) fn name_functions(&mut self, file: &File<'_>, bytes: &[u8], symbols: Vec<Symbol>) {
        let mut functions = self.chosen(bytes, symbols);
        self.add_stubs(&mut functions, file, bytes);
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        let bounds = function_bounds(file);
        close_sizes(&mut functions, &code_sections(file), &bounds);
        self.add_unwind_bounds(&mut functions, file, &bounds);
        let named = self.named_parts(bytes, &functions);
        let mut whole = other_parts(file, &functions, &named);
        whole.extend(named.into_iter().filter_map(|(part, function)| Some((part, function?))));
        self.ranges = flatten(&ranges(&functions));
        for range in &mut self.ranges {
            range.function = *whole.get(&range.function).unwrap_or(&range.function);
        }
        let start = functions.iter_mut().find(|function| Some(function.address) == self.start);
        if let Some(function) = start.filter(|function| function.role == Role::Plain) {
            function.role = Role::Start;
        }
        self.functions = functions;
    }

    /// The role of code at the address that is in no function.
    pub fn bare_role(&self, address: u64) -> Role {
        if Some(address) == self.start {
            Role::Start
        } else {
            Role::Plain
        }
    }

    fn add_stubs(&self, functions: &mut Vec<Function>, file: &File<'_>, bytes: &[u8]) {
        let names = SymbolNames::dynamic(file);
        let dynamic = |number: u32| {
            let name = names.name(SymbolIndex(number as usize))?;
            Some(Name { file: Source::Dynsym, at: place_of(name, bytes)? })
        };
        let at = |address: u64| {
            let found = functions.binary_search_by_key(&address, |function| function.address).ok()?;
            functions[found].name
        };
        let own = |stub: &Stub| at(stub.start).map(|name| self.without_suffix(name));
        let name = |stub: &Stub| match stub.callee {
            Callee::Symbol(number) => dynamic(number).or_else(|| own(stub)),
            // The resolver has a name of its own, which says less: it chooses who is called.
            Callee::Resolver(address) => own(stub).or_else(|| at(address)),
            Callee::Linker => own(stub),
        };
        let stub = |stub: Stub| Function {
            address: stub.start,
            size: stub.end.wrapping_sub(stub.start),
            source: Source::Plt,
            role: Role::Stub,
            // Who calls a stub calls another function, whether it has a name or not.
            name: name(&stub),
        };
        let stubs: Vec<_> = stubs(file).into_iter().map(stub).collect();
        // In front: of two at one address the first is kept.
        functions.splice(0..0, stubs);
    }

    /// The name of what a stub leads to, of the stub's own in mold's symbols.
    fn without_suffix(&self, name: Name) -> Name {
        let raw = self.raw_name(name).unwrap_or_default();
        let rest = [&b"$plt"[..], b"$pltgot"].into_iter().find_map(|suffix| raw.strip_suffix(suffix));
        let length = rest.filter(|rest| !rest.is_empty()).map_or(name.at.1, |rest| rest.len() as u32);
        Name { at: (name.at.0, length), ..name }
    }
}

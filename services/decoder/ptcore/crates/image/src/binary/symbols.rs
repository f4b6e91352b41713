//! The symbols of all files of a binary, one for each address.

use super::names::Name;
use super::{Binary, Function};
use crate::elf_file::{elf, File};
use crate::labels::{dynamic_labels, functions_of, static_labels};
use crate::name::Role;
use crate::pclntab;
use crate::symbols::{dynamic_functions, place_of, static_functions, Binding, Source, Symbol};

impl Binary {
    /// All function symbols in executable segments.
    pub(super) fn symbols(&self, file: &File<'_>, bytes: &[u8]) -> Vec<Symbol> {
        let mut symbols = static_functions(file, bytes, Source::Symtab);
        let mut labels = static_labels(file, bytes, Source::Symtab);
        let debug = self.debug.iter().map(|debug| (&***debug, Source::Debug));
        let mini = self.mini.iter().map(|mini| (&**mini, Source::MiniDebug));
        for (other, source) in debug.chain(mini) {
            if let Ok(file) = elf(other) {
                symbols.extend(static_functions(&file, other, source));
                labels.extend(static_labels(&file, other, source));
            }
        }
        if !symbols.iter().any(|symbol| symbol.source == Source::Symtab) {
            symbols.extend(self.go_functions(bytes));
        }
        symbols.extend(dynamic_functions(file, bytes));
        labels.extend(dynamic_labels(file, bytes));
        symbols.extend(functions_of(labels, &symbols));
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

    /// One name for each address: one with a size before markers (`runtime.text` of Go), global before weak before local,
    /// then the shortest, then the first in order.
    pub(super) fn chosen(&self, bytes: &[u8], mut symbols: Vec<Symbol>) -> Vec<Function> {
        let text = |symbol: &Symbol| self.name_of(bytes, symbol);
        symbols.sort_by(|a, b| {
            let key = |symbol: &Symbol| (symbol.address, symbol.size == 0, symbol.binding, symbol.name.1);
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
}

pub fn status(symbols: &[Symbol], refusal: &str) -> String {
    match symbols.iter().map(|symbol| symbol.source).min() {
        Some(source) => format!("{}{refusal}", source.name()),
        None => format!("none: no function symbols in the file and no separate debug file{refusal}"),
    }
}

//! Packs of arguments with a pattern, `A&&, B&&` for the `T&&...` of `f(T&&...)`: cpp_demangle writes what belongs to each
//! argument only once, at the first or the last.

use super::declarators::qualified;
use super::prefixes::Prefixes;
use super::{cpp_options, cpp_parse};
use crate::name::MAX_NAME;
use cpp_demangle::DemangleNodeType::{self, TemplateArgs, TemplateParam, UnqualifiedName};
use cpp_demangle::{DemangleWrite, Symbol};
use std::fmt;

/// The name behind `before` with the pattern at each argument, where `plain` is what cpp_demangle writes; `None` where it
/// has no such pack, or one that is not understood.
pub fn with_patterns(before: &str, name: &str, plain: &str) -> Option<String> {
    let marked = marked(name)?;
    let symbol = Symbol::new_with_options(marked, &cpp_parse()).ok()?;
    let mut patterns = Patterns::behind(before);
    symbol.structured_demangle(&mut patterns, &cpp_options().no_return_type()).ok()?;
    // The marks may have got into what is no pack: then the rest of the name is another.
    let is_same = unqualified(plain) == unqualified(&patterns.unmarked);
    (is_same && patterns.known && patterns.qualifiers.is_empty()).then(|| patterns.names.into_text())?
}

fn unqualified(text: &str) -> String {
    text.replace(" const", "").replace(['&', '*', ' ', '(', ')'], "")
}

/// A name in which each `Dp`, and what stands between it and the parameter of a template, is a qualifier of a vendor: such
/// ones are written behind the type, and they count as substitutions like those for which they stand.
fn marked(name: &str) -> Option<String> {
    let mut parts = name.split("Dp");
    let mut marked = parts.next()?.to_owned();
    for part in parts {
        let pattern = part.trim_start_matches(['R', 'O', 'P', 'K']);
        let qualifiers = if pattern.starts_with('T') { &part[..part.len() - pattern.len()] } else { "" };
        marked.push_str("U2Dp");
        qualifiers.chars().for_each(|one| marked.extend(["U1", one.encode_utf8(&mut [0; 4])]));
        marked.push_str(&part[qualifiers.len()..]);
    }
    (marked.len() > name.len()).then_some(marked)
}

/// Takes a name with such marks.
struct Patterns {
    names: Prefixes,
    nodes: Vec<Node>,
    parameters: Vec<Parameter>,
    /// Those marked since the last parameter, the innermost first.
    qualifiers: Vec<char>,
    /// What has been written but for the marks.
    unmarked: String,
    /// Where in its list a pattern without arguments stands.
    none: Option<usize>,
    /// Whether all patterns so far were understood.
    known: bool,
}

struct Node {
    kind: DemangleNodeType,
    /// The beginnings of the last items of the lists that are open, the outermost first.
    items: Vec<usize>,
    start: usize,
    /// Where the outermost list has its commas.
    commas: Vec<usize>,
}

/// A parameter of a template, by what stands for it in the text.
struct Parameter {
    start: usize,
    end: usize,
    commas: Vec<usize>,
    /// Where the arguments begin of which it is a part.
    arguments: usize,
}

const COMMA: &str = ", ";

impl Patterns {
    fn behind(before: &str) -> Self {
        let root = Node::new(DemangleNodeType::__NonExhaustive, before.len());
        let (parameters, qualifiers, unmarked) = (Vec::new(), Vec::new(), before.to_owned());
        let (names, nodes) = (Prefixes::behind(before), vec![root]);
        Patterns { names, nodes, parameters, qualifiers, unmarked, none: None, known: true }
    }

    fn is_mark(&self, text: &str) -> bool {
        matches!(text, "Dp" | "R" | "O" | "P" | "K")
            && self.names.text().ends_with(' ')
            && self.nodes.last().is_some_and(|node| node.kind != UnqualifiedName)
    }

    /// Ends the pattern at the end of the text.
    fn expand(&mut self) {
        let qualifiers = std::mem::take(&mut self.qualifiers);
        let start = self.nodes.last().and_then(|node| node.items.last()).copied();
        let Some(start) = start else { return self.known = false };
        let first = self.parameters.partition_point(|one| one.start < start);
        let parameters = self.parameters.split_off(first);
        let expanded = expanded(self.names.text(), start, &parameters, &qualifiers);
        let Some(expanded) = expanded else { return self.known = false };
        self.names.replace(start, &expanded);
        self.none = expanded.is_empty().then_some(start);
    }
}

impl DemangleWrite for Patterns {
    fn push_demangle_node(&mut self, kind: DemangleNodeType) {
        self.nodes.push(Node::new(kind, self.names.text().len()));
        self.names.push_demangle_node(kind);
    }

    fn write_string(&mut self, text: &str) -> fmt::Result {
        if self.is_mark(text) {
            self.names.replace(self.names.text().len() - 1, "");
            self.unmarked.pop();
            match text.chars().next().filter(|&one| one != 'D') {
                Some(qualifier) => self.qualifiers.push(qualifier),
                None => self.expand(),
            }
            return Ok(());
        }
        self.unmarked.push_str(text);
        if self.none.take() == Some(self.names.text().len()) && text == COMMA {
            return Ok(());
        }
        self.names.write_string(text)?;
        let end = self.names.text().len();
        if let Some(node) = self.nodes.last_mut().filter(|node| node.kind != UnqualifiedName) {
            self.known &= node.lists(text, end);
        }
        Ok(())
    }

    fn pop_demangle_node(&mut self) {
        self.names.pop_demangle_node();
        let Some(node) = self.nodes.pop() else { return };
        if node.kind == TemplateParam {
            let outer = self.nodes.iter().rev().find(|outer| outer.kind == TemplateArgs);
            let arguments = outer.map_or(0, |outer| outer.start);
            self.parameters.retain(|one| one.start < node.start);
            let end = self.names.text().len();
            self.parameters.push(Parameter { start: node.start, end, commas: node.commas, arguments });
        }
    }
}

impl Node {
    fn new(kind: DemangleNodeType, start: usize) -> Self {
        Node { kind, items: vec![start], start, commas: Vec::new() }
    }

    /// Follows the lists in `text`, which ends at `end`; `false` where they are not whole.
    fn lists(&mut self, text: &str, end: usize) -> bool {
        for (at, one) in text.bytes().enumerate() {
            let place = end - text.len() + at;
            match one {
                b'(' => self.items.push(place + 1),
                b')' => drop(self.items.pop()),
                b',' if text[at..].starts_with(COMMA) => {
                    if self.items.len() == 1 {
                        self.commas.push(place);
                    }
                    self.items.pop();
                    self.items.push(place + COMMA.len());
                }
                _ => (),
            }
        }
        !self.items.is_empty()
    }
}

/// The pattern at the end of `text`, once for each of the arguments that its parameters stand for.
fn expanded(text: &str, start: usize, parameters: &[Parameter], qualifiers: &[char]) -> Option<String> {
    let counts = || parameters.iter().map(Parameter::count);
    let count = if counts().any(|count| count == 0) { 0 } else { counts().max().unwrap_or(1) };
    let is_whole = matches!(parameters, [one] if one.start == start && one.end == text.len());
    let whole_or_argument = |one: &Parameter| is_whole || one.count() == 1 || one.arguments > start;
    let same_count = |one: &Parameter| one.count() == 1 || one.count() == count;
    if !(is_whole || qualifiers.is_empty()) || !parameters.iter().all(|one| whole_or_argument(one) && same_count(one)) {
        return None;
    }
    let mut expanded = String::new();
    for number in 0..count {
        if number > 0 {
            expanded.push_str(COMMA);
        }
        let argument = with_argument(text, start, parameters, number)?;
        let argument = qualifiers.iter().copied().try_fold(argument, |argument, one| qualified(&argument, one))?;
        expanded.push_str(&argument);
        if expanded.len() > MAX_NAME {
            return None;
        }
    }
    Some(expanded)
}

/// The pattern with the argument of this number.
fn with_argument(text: &str, start: usize, parameters: &[Parameter], number: usize) -> Option<String> {
    let mut written = String::new();
    let mut at = start;
    for one in parameters {
        written.push_str(text.get(at..one.start)?);
        written.push_str(text.get(one.argument(number))?);
        at = one.end;
        let rest = text.get(at..)?;
        if !one.commas.is_empty() && rest.trim_start_matches(' ').starts_with('>') {
            at += rest.len() - rest.trim_start_matches(' ').len();
            written.push_str(if written.ends_with('>') { " " } else { "" });
        }
    }
    Some(written + text.get(at..)?)
}

impl Parameter {
    /// Of how many arguments it is.
    fn count(&self) -> usize {
        if self.start == self.end {
            0
        } else {
            self.commas.len() + 1
        }
    }

    fn argument(&self, number: usize) -> std::ops::Range<usize> {
        if self.commas.is_empty() {
            return self.start..self.end;
        }
        let start = number.checked_sub(1).map_or(self.start, |before| self.commas[before] + COMMA.len());
        start..self.commas.get(number).copied().unwrap_or(self.end)
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn each_argument_of_a_pack_has_its_pattern() {
        for (name, expected) in [
            ("_Z1gIJiiEEiDpOT_", "g<int, int>(int&&, int&&)"),
            ("_Z1gIJPiPcEEiDpOT_", "g<int*, char*>(int*&&, char*&&)"),
            ("_Z1gIJRiiOcEEiDpOT_", "g<int&, int, char&&>(int&, int&&, char&&)"),
            ("_Z1gIiJN1n1AES1_EEiT_DpRKT0_", "g<int, n::A, n::A>(int, n::A const&, n::A const&)"),
            (
                "_Z1gIJPFviEA3_iRA3_iEEvDpOT_",
                "g<void (*)(int), int [3], int (&) [3]>(void (*&&)(int), int (&&) [3], int (&) [3])",
            ),
            (
                "_Z1gIJA3_cA3_KciEEvDpRKT_",
                "g<char [3], char const [3], int>(char const (&) [3], char const (&) [3], int const&)",
            ),
            ("_Z1gIJRiiEEvDpRT_", "g<int&, int>(int&, int&)"),
            ("_Z1gIJicEEvDpSt10unique_ptrIT_E", "g<int, char>(std::unique_ptr<int>, std::unique_ptr<char>)"),
            ("_Z1gIJ1AIiEcEEvDpOSaIT_E", "g<A<int>, char>(std::allocator<A<int> >&&, std::allocator<char>&&)"),
            (
                "_Z1gIJicEJaiEEvDpSt4pairIT_T0_E",
                "g<int, char, signed char, int>(std::pair<int, signed char>, std::pair<char, int>)",
            ),
            ("_ZN1AC1IJicEEEDpOT_", "A::A<int, char>(int&&, char&&)"),
            ("_Z1gIJicEEvDpOT_N1n1AEPS4_", "g<int, char>(int&&, char&&, n::A, n::A*)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn a_pack_without_arguments_leaves_nothing_of_its_pattern() {
        for (name, expected) in [
            ("_Z1gIJEEvcDpN1nIT_E4typeE", "g<>(char)"),
            ("_Z1gIJEEvDpSaIT_E", "g<>()"),
            ("_Z1gIJEEvcDpRKT_i", "g<>(char, int)"),
            ("_Z1gIJEEvDpOT_DpSaIS0_Ei", "g<>(int)"),
            ("_Z1gIJEcEvDpOSt4pairIT_T0_Ei", "g<, char>(int)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn packs_without_a_pattern_stay() {
        for (name, expected) in [
            ("_Z1gIJicEEvDpT_", "g<int, char>(int, char)"),
            ("_Z1gIJicEEvSt5tupleIJDpT_EE", "g<int, char>(std::tuple<int, char>)"),
            ("_Z1gIJEEvDpOT_", "g<>()"),
            ("_Z1gIJiEEvDpOT_", "g<int>(int&&)"),
            ("_ZN5fooDp1gIJicEEEvDpOT_", "fooDp::g<int, char>(int, char&&)"),
            ("_Z5fooDpv", "fooDp()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

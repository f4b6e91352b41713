//! What belongs behind a name in a class that stood as a type before: cpp_demangle writes a pointer, a reference or `const`
//! behind the class.

use super::Limited;
use crate::name::MAX_NAME;
use cpp_demangle::DemangleNodeType::{self, NestedName, Prefix, TemplateArgs, TemplateParam, TemplatePrefix};
use cpp_demangle::DemangleWrite;
use std::fmt::{self, Write};

/// Takes a name as cpp_demangle writes it: `A::B*` for `A*::B`.
#[derive(Default)]
pub struct Prefixes {
    text: Limited,
    nodes: Vec<Node>,
    /// Whether an argument of a template is `const`: a parameter that stands for it has that before `::` by right.
    const_argument: bool,
    has_packs: bool,
}

struct Node {
    kind: DemangleNodeType,
    start: usize,
    /// Where a type that stands before `::` has its end.
    prefix: Option<End>,
    /// What belongs behind the whole name.
    behind: String,
}

#[derive(Clone, Copy)]
struct End {
    at: usize,
    is_parameter: bool,
}

impl Node {
    fn is_name(&self) -> bool {
        matches!(self.kind, NestedName | Prefix | TemplatePrefix)
    }
}

impl Prefixes {
    pub fn behind(text: &str) -> Self {
        Prefixes { text: Limited(text.to_owned()), ..Prefixes::default() }
    }

    /// Whether a parameter of a template stands for several arguments or none.
    pub fn has_packs(&self) -> bool {
        self.has_packs
    }

    /// What has been taken so far.
    pub fn text(&self) -> &str {
        &self.text.0
    }

    /// Replaces what has been taken from `start` on.
    pub fn replace(&mut self, start: usize, text: &str) {
        self.text.0.truncate(start);
        self.text.0.push_str(text);
    }

    /// `None` for a name that is too long.
    pub fn into_text(self) -> Option<String> {
        Some(self.text.0).filter(|text| text.len() <= MAX_NAME)
    }

    fn take_qualifiers(&mut self) {
        let Some(node) = self.nodes.last_mut() else { return };
        let Some(end) = node.prefix.take().filter(|_| node.is_name()) else { return };
        let Some(qualifiers) = self.text.0.get(end.at..) else { return };
        let may_be_own = end.is_parameter && self.const_argument && qualifiers.contains("const");
        if are_qualifiers(qualifiers) && !may_be_own {
            node.behind.push_str(qualifiers);
            self.text.0.truncate(end.at);
        }
    }

    fn argument_ends(&mut self) {
        let is_argument = self.nodes.last().is_some_and(|node| node.kind == TemplateArgs);
        self.const_argument |= is_argument && self.text.0.ends_with(" const");
    }
}

impl DemangleWrite for Prefixes {
    fn push_demangle_node(&mut self, kind: DemangleNodeType) {
        let start = self.text.0.len();
        self.nodes.push(Node { kind, start, prefix: None, behind: String::new() });
    }

    fn write_string(&mut self, text: &str) -> fmt::Result {
        match text {
            "::" => self.take_qualifiers(),
            ", " => {
                self.argument_ends();
                self.has_packs |= self.nodes.last().is_some_and(|node| node.kind == TemplateParam);
            }
            _ => (),
        }
        self.text.write_str(text)
    }

    fn pop_demangle_node(&mut self) {
        self.argument_ends();
        let Some(node) = self.nodes.pop() else { return };
        self.has_packs |= node.kind == TemplateParam && node.start == self.text.0.len();
        // Of all that stands before `::` a name alone may be a type, also one that a parameter of a template stands for.
        let prefix = match node.kind {
            NestedName => Some(End { at: self.text.0.len(), is_parameter: false }),
            TemplateParam => node.prefix.map(|end| End { is_parameter: true, ..end }),
            _ => node.prefix,
        };
        let mut outer = self.nodes.last_mut();
        match outer.as_deref_mut().filter(|outer| outer.is_name()) {
            Some(outer) => outer.behind.push_str(&node.behind),
            None => self.text.0.push_str(&node.behind),
        }
        if let Some(outer) = outer.filter(|outer| outer.is_name() || outer.kind == TemplateParam) {
            outer.prefix = prefix;
        }
    }
}

fn are_qualifiers(mut text: &str) -> bool {
    const QUALIFIERS: [&str; 5] = ["&", "*", " const", " volatile", " restrict"];
    while let Some(rest) = QUALIFIERS.iter().find_map(|one| text.strip_prefix(one)) {
        text = rest;
    }
    text.is_empty()
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn what_points_to_a_member_of_a_class_stands_behind_it() {
        for (name, expected) in [
            ("_ZN1S3setEPKN1AERNS0_1BE", "S::set(A const*, A::B&)"),
            ("_ZN3app3Srv3setEPKNS_3CfgERNS1_3OptE", "app::Srv::set(app::Cfg const*, app::Cfg::Opt&)"),
            ("_ZN3app3Srv3getERNS_3CfgEPNS1_3OptE", "app::Srv::get(app::Cfg&, app::Cfg::Opt*)"),
            ("_Z1fPN1n1AEPKNS0_1BE", "f(n::A*, n::A::B const*)"),
            ("_Z1fPN1n1AEPPKNS0_1B1CE", "f(n::A*, n::A::B::C const**)"),
            ("_Z1fPN1n1AEPVKNS0_1BIiEE", "f(n::A*, n::A::B<int> const volatile*)"),
            ("_Z1fPN1n1AEPKNS0_1BIiE1CE", "f(n::A*, n::A::B<int>::C const*)"),
            ("_Z1fPN1n1AEPNS0_1BEPNS2_1CE", "f(n::A*, n::A::B*, n::A::B::C*)"),
            ("_Z1fN1n1AEN1m1DIRNS0_1BEEE", "f(n::A, m::D<n::A::B&>)"),
            ("_Z1fISaIKiEEvN1n1AEPKNS3_1BE", "f<std::allocator<int const> >(n::A, n::A::B const*)"),
            ("_Z1fIN1n1AEEvPNT_1BEPKNS2_1CE", "f<n::A>(n::A::B*, n::A::C const*)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_functions_end_with_stays() {
        for (name, expected) in [
            ("_ZZNR1n1A1fEvENKUlvE_clEv", "n::A::f() &::{lambda()#1}::operator()() const"),
            ("_ZZNK1n1A1fEvE1x", "n::A::f() const::x"),
            ("_ZZN1n1AaNERKS0_ENKUlvE_clEv", "n::A::operator&=(n::A const&)::{lambda()#1}::operator()() const"),
            ("_ZN1n1gIPFvPNS_1AEEEEvT_", "n::g<void (*)(n::A*)>(void (*)(n::A*))"),
            ("_Z1fPZN1n1gEvE1A", "f(n::g()::A*)"),
            ("_Z1fPN1n1AEPZNKS_1gERS0_E1B", "f(n::A*, n::g(n::A&) const::B*)"),
            ("_Z1fIKN1n1AEEvNT_1BE", "f<n::A const>(n::A const::B)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

//! Reads a mangled name from front to back, once: what comes next is told by the next few bytes.

mod builtins;
mod closures;
mod encodings;
mod expressions;
mod functions;
mod initializers;
mod names;
mod operators;
mod requirements;
mod special;
mod templates;
mod types;
mod unqualified;
mod unresolved;

use super::tree::{Id, List, Node, Tree};

/// How deep types, expressions and arguments of templates may stand in each other.
const MAX_DEPTH: u32 = 384;

/// What is left of a name and what has been read of it. Each part of the grammar is a function, which answers `None` where
/// the name does not go on as it must.
pub struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    pub tree: Tree<'a>,
    /// Itanium C++ ABI, 5.1.10, "Compression".
    pub substitutions: Vec<Id>,
    pub scopes: Scopes,
    /// Arguments of the template behind a type are those of the operator that converts to it.
    pub in_conversion: bool,
}

/// How the scopes of names that depend on a template are mangled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scopes {
    /// As in Itanium C++ ABI, 5.1.6, and by Clang.
    Names,
    /// As the types that they are: by GCC.
    Types,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str, scopes: Scopes) -> Self {
        Parser { text, at: 0, depth: 0, tree: Tree::default(), substitutions: Vec::new(), scopes, in_conversion: false }
    }

    /// The next byte, 0 at the end.
    pub fn peek(&self) -> u8 {
        self.peek_behind(0)
    }

    pub fn peek_behind(&self, bytes: usize) -> u8 {
        self.text.as_bytes().get(self.at + bytes).copied().unwrap_or(0)
    }

    pub fn peek_two(&self) -> [u8; 2] {
        [self.peek(), self.peek_behind(1)]
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    pub fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub fn eat(&mut self, expected: &str) -> bool {
        let is_next = self.text.as_bytes()[self.at.min(self.text.len())..].starts_with(expected.as_bytes());
        if is_next {
            self.at += expected.len();
        }
        is_next
    }

    pub fn expect(&mut self, expected: &str) -> Option<()> {
        self.eat(expected).then_some(())
    }

    pub fn take(&mut self, bytes: usize) -> Option<&'a str> {
        let end = self.at.checked_add(bytes)?;
        let taken = self.text.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.bytes().position(|one| !fits(one) || !one.is_ascii()).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// `<number>` that is not negative.
    pub fn number(&mut self) -> Option<u64> {
        self.take_while(|one| one.is_ascii_digit()).parse().ok()
    }

    pub fn signed_number(&mut self) -> Option<()> {
        self.eat("n");
        (!self.take_while(|one| one.is_ascii_digit()).is_empty()).then_some(())
    }

    /// `_` is 0, `0_` is 1 and so on.
    pub fn number_from_zero(&mut self) -> Option<u64> {
        if self.eat("_") {
            return Some(0);
        }
        let number = self.number()?.checked_add(1)?;
        self.expect("_")?;
        Some(number)
    }

    /// `<seq-id>`, as digits of base 36.
    pub fn sequence(&mut self) -> Option<usize> {
        if self.eat("_") {
            return Some(0);
        }
        let digits = self.take_while(|one| one.is_ascii_digit() || one.is_ascii_uppercase());
        self.expect("_")?;
        usize::from_str_radix(digits, 36).ok()?.checked_add(1)
    }

    /// What `read` reads one level deeper.
    pub fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let what = read(self);
        self.depth -= 1;
        what
    }

    /// What `read` reads until an `E`.
    pub fn until_end(&mut self, mut read: impl FnMut(&mut Self) -> Option<Id>) -> Option<List> {
        let mut items = Vec::new();
        while !self.eat("E") {
            items.push(read(self)?);
        }
        Some(self.tree.list(&items))
    }

    pub fn add(&mut self, node: Node<'a>) -> Option<Id> {
        Some(self.tree.add(node))
    }

    pub fn remember(&mut self, id: Id) -> Id {
        self.substitutions.push(id);
        id
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;
    use crate::name::MAX_NAME;

    #[test]
    fn what_other_parsers_go_back_in_is_read_once() {
        // Each level takes cpp_demangle three times as long.
        let name = format!("_Z{}ZZ1fI3TLZ1fZli11LZ1fD", "1fIL".repeat(1000));
        assert_eq!(demangle(&name), name);
    }

    /// Qt's strings that are added, from https://github.com/gimli-rs/cpp_demangle/issues/282.
    #[test]
    fn expressions_of_real_programs_are_not_too_deep() {
        let nested = |open: &str, inner: &str, close: &str| [&open.repeat(50), inner, &close.repeat(50)].concat();
        let name = format!("_Z1f{}", nested("14QStringBuilderI", "7QStringS_", "S_E"));
        let text = demangle(&name);
        assert_eq!(text.matches("QStringBuilder<").count(), 50, "{text}");
    }

    #[test]
    fn what_is_too_deep_stays_mangled() {
        for part in ["P", "Z1f", "1fI", "1fIX", "1fIXcv", "UlP", "FP", "1fIJ", "N1aC1I", "1fIXsr", "TtTt", "1fIL_Z"] {
            let name = format!("_Z{}", part.repeat(50_000));
            assert_eq!(demangle(&name), name);
        }
    }

    #[test]
    fn anything_ends() {
        const PARTS: &[&str] = &[
            "_Z", "N", "E", "I", "J", "X", "L", "Z", "S_", "S0_", "S1_", "T_", "T0_", "TL0__", "1f", "1A", "3foo", "v",
            "i", "P", "R", "O", "K", "F", "A3_", "M", "Dp", "Dt", "DT", "Do", "DO", "Dw", "Dv4_", "Ul", "Ut_", "UlvE_",
            "C1", "D2", "cv", "cl", "pl", "gt", "ad", "sr", "srN", "on", "dn", "gs", "nw", "_", "pi", "il", "tl", "di",
            "dx", "fp_", "fL0p_", "fl", "fR", "qu", "sZ", "sP", "sp", "St", "Ss", "B1t", "W1m", "WP1p", "Q", "rq",
            "rQ", "Ty", "Tn", "Tt", "Tp", "Tk", "Th8_", "Tv8_n8_", "TV", "GR", "GV", "TA", "DC", "H", "d_", "s", "n1",
            "5", ".cold", "1", "0", "u1v", "U1q",
        ];
        let mut random: u64 = 1;
        for _ in 0..100_000 {
            let mut name = String::from("_Z");
            let mut next = |below: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as usize % below
            };
            for _ in 0..next(40) {
                name.push_str(PARTS[next(PARTS.len())]);
            }
            assert!(demangle(&name).len() <= MAX_NAME.max(name.len()), "{name}");
        }
    }
}

//! Whole names: Itanium C++ ABI, 5.1.2, "General Structure", and what compilers add behind.

use super::names::Name;
use super::Parser;
use crate::demangle::tree::{Id, Node, Signature};

impl<'a> Parser<'a> {
    /// `<mangled-name>` with all of its suffixes.
    pub fn mangled_name(&mut self) -> Option<(Id, Vec<&'a str>)> {
        if self.eat("___Z") {
            let function = self.encoding(Place::Outer)?;
            self.block_invocation()?;
            return Some((self.add(Node::Special("invocation function for block in ", function))?, Vec::new()));
        }
        self.expect("_Z")?;
        let name = self.encoding(Place::Outer)?;
        let mut clones = Vec::new();
        while !self.is_at_end() {
            clones.push(self.clone_suffix()?);
        }
        Some((name, clones))
    }

    /// `_block_invoke`, `_block_invoke_2`: Clang's blocks.
    fn block_invocation(&mut self) -> Option<()> {
        self.expect("_block_invoke")?;
        self.eat("_");
        self.number();
        (self.is_at_end() || self.peek() == b'.').then_some(())
    }

    /// `.cold`, `.part.0`: GCC's and LLVM's copies of functions.
    fn clone_suffix(&mut self) -> Option<&'a str> {
        let before = self.rest();
        self.expect(".")?;
        let is_word = |one: u8| one.is_ascii_lowercase() || one == b'_';
        let first = self.peek();
        if !(is_word(first) || first.is_ascii_digit()) {
            return None;
        }
        self.take_while(|one| is_word(one) || one.is_ascii_digit());
        while self.peek() == b'.' && self.peek_behind(1).is_ascii_digit() {
            self.skip(1);
            self.take_while(|one| one.is_ascii_digit());
        }
        before.get(..before.len() - self.rest().len())
    }

    /// `<encoding>`
    pub fn encoding(&mut self, place: Place) -> Option<Id> {
        self.deeper(|parser| match parser.peek() {
            b'T' | b'G' => parser.special_name(),
            _ => parser.function_or_data(place),
        })
    }

    fn function_or_data(&mut self, place: Place) -> Option<Id> {
        let around = std::mem::take(&mut self.in_conversion);
        let name = self.name()?;
        let encoding = self.signature_of(name, place);
        self.in_conversion = around;
        encoding
    }

    /// `<bare-function-type>`, where there is one.
    fn signature_of(&mut self, name: Name, place: Place) -> Option<Id> {
        let arguments = name.arguments.unwrap_or_default();
        if self.ends_encoding() {
            let Some(requires) = self.constraint()? else { return Some(name.id) };
            let signature = Signature { requires: Some(requires), ..Signature::default() };
            return self.add(Node::Encoding(name.id, arguments, signature));
        }
        self.attributes()?;
        let mut returns = None;
        if self.eat("J") || (name.ends_with_arguments && !name.returns_nothing) {
            returns = Some(self.type_()?);
        }
        let mut parameters = Vec::new();
        if !self.eat("v") {
            while parameters.is_empty() || !self.ends_encoding() {
                parameters.push(self.type_()?);
            }
        }
        let requires = self.constraint()?;
        let signature = Signature {
            returns: returns.filter(|_| place == Place::Inner),
            parameters: self.tree.list(&parameters),
            qualifiers: name.qualifiers,
            reference: name.reference,
            requires,
            ..Signature::default()
        };
        self.add(Node::Encoding(name.id, arguments, signature))
    }

    fn ends_encoding(&self) -> bool {
        self.is_at_end() || matches!(self.peek(), b'E' | b'.' | b'_' | b'Q')
    }

    /// `Q <requires-clause expression>`
    pub fn constraint(&mut self) -> Option<Option<Id>> {
        if !self.eat("Q") {
            return Some(None);
        }
        self.expression().map(Some)
    }

    /// Clang's `enable_if`, which is no type: it is not written.
    fn attributes(&mut self) -> Option<()> {
        while self.eat("Ua9enable_ifI") {
            self.until_end(Self::template_argument)?;
        }
        Some(())
    }
}

/// Where a function is named: by itself, without its return type, or as an argument of a template.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Outer,
    Inner,
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn templates_of_constructors_keep_their_first_parameter() {
        for (name, expected) in [
            ("_ZN1AC1IiEET_PS1_i", "A::A<int>(int, int*, int)"),
            ("_ZN1AC2IiEEi", "A::A<int>(int)"),
            ("_ZN1AC1IJidEEEDpT_", "A::A<int, double>(int, double)"),
            ("_ZN1AIiEC1IiEET_PS2_i", "A<int>::A<int>(int, int*, int)"),
            ("_ZN1AC1I1BIN1CEEEET_", "A::A<B<C> >(B<C>)"),
            ("_ZN1AC1IiEET_PS1_i.isra.0", "A::A<int>(int, int*, int) [clone .isra.0]"),
            ("_ZZN1AC1IiEET_iENKUlvE_clEv", "A::A<int>(int, int)::{lambda()#1}::operator()() const"),
            ("_ZN1AC1IZN1n1fIiEEvT_EUlvE_EEOS2_", "A::A<n::f<int>(int)::{lambda()#1}>(n::f&&)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_only_looks_like_a_constructor_keeps_its_return_type() {
        for (name, expected) in [
            ("_ZN1A2C1IiEEvT_", "A::C1<int>(int)"),
            ("_ZN4xxC14xxC1IiEEvT_", "xxC1::xxC1<int>(int)"),
            ("_ZN1A4C1IxIiEEvT_", "A::C1Ix<int>(int)"),
            ("_ZN1n3runIZN1AC1IiEEiEUlvE_EEvi", "n::run<A::A<int>(int)::{lambda()#1}>(int)"),
            ("_ZN1nC1I", "_ZN1nC1I"),
            ("_ZN3\u{e9}C1IiEEi", "_ZN3\u{e9}C1IiEEi"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

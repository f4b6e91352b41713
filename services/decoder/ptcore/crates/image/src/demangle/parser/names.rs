//! Names of entities: Itanium C++ ABI, 5.1.2, "General Structure".

use super::encodings::Place;
use super::unqualified::Unqualified;
use super::Parser;
use crate::demangle::tree::{Id, List, Node, Qualifiers, Reference};

/// A name and what it says of the function.
pub struct Name {
    pub id: Id,
    /// Of the last template in it.
    pub arguments: Option<List>,
    pub ends_with_arguments: bool,
    /// Constructors, destructors and conversions have no return type.
    pub returns_nothing: bool,
    pub qualifiers: Qualifiers,
    pub reference: Option<Reference>,
}

impl Name {
    fn of(id: Id) -> Name {
        Name {
            id,
            arguments: None,
            ends_with_arguments: false,
            returns_nothing: false,
            qualifiers: Qualifiers::default(),
            reference: None,
        }
    }

    fn unqualified(one: Unqualified) -> Name {
        Name { returns_nothing: one.returns_nothing, ..Name::of(one.id) }
    }
}

impl Parser<'_> {
    /// `<name>`
    pub fn name(&mut self) -> Option<Name> {
        match self.peek_two() {
            [b'N', _] => self.nested_name(),
            [b'Z', _] => self.local_name(),
            [b'S', b't'] => {
                self.skip(2);
                let scope = self.tree.add(Node::Name("std"));
                let one = self.unqualified_name(Some(scope))?;
                self.maybe_of_template(Name::unqualified(one))
            }
            [b'S', _] => self.substituted_name(),
            _ => {
                let one = self.unqualified_name(None)?;
                self.maybe_of_template(Name::unqualified(one))
            }
        }
    }

    fn substituted_name(&mut self) -> Option<Name> {
        let id = self.substitution()?;
        if matches!(self.tree.node(id), Node::Module(..)) {
            return self.name_in(id);
        }
        if self.peek() != b'I' {
            return Some(Name::of(id));
        }
        self.with_arguments(Name::of(id))
    }

    /// A name without another scope than its module.
    pub fn name_in(&mut self, module: Id) -> Option<Name> {
        let one = self.unqualified_name_in(None, Some(module))?;
        self.maybe_of_template(Name::unqualified(one))
    }

    fn maybe_of_template(&mut self, name: Name) -> Option<Name> {
        if self.peek() != b'I' {
            return Some(name);
        }
        self.remember(name.id);
        self.with_arguments(name)
    }

    fn with_arguments(&mut self, name: Name) -> Option<Name> {
        let (id, list) = self.template(name.id)?;
        Some(Name { id, arguments: Some(list), ends_with_arguments: true, ..name })
    }

    /// `<nested-name>`
    fn nested_name(&mut self) -> Option<Name> {
        self.expect("N")?;
        // An explicit object is written as the parameter that it is.
        self.eat("H");
        let qualifiers = self.qualifiers();
        let reference = self.reference_qualifier();
        let mut name: Option<Name> = None;
        let mut is_remembered = false;
        while !self.eat("E") {
            if let Some(before) = name.as_ref().filter(|_| !is_remembered) {
                self.remember(before.id);
            }
            is_remembered = false;
            let scope = name.as_ref().map(|name| name.id);
            name = Some(match self.peek_two() {
                [b'T', _] if scope.is_none() => Name::of(self.template_parameter()?),
                [b'I', _] => {
                    let before = name.filter(|before| !before.ends_with_arguments)?;
                    self.with_arguments(before)?
                }
                [b'D', b't' | b'T'] if scope.is_none() => Name::of(self.decltype()?),
                [b'S', b't'] if scope.is_none() => {
                    self.skip(2);
                    is_remembered = true;
                    Name::of(self.tree.add(Node::Name("std")))
                }
                [b'S', _] => {
                    let id = self.substitution()?;
                    if matches!(self.tree.node(id), Node::Module(..)) {
                        let one = self.unqualified_name_in(scope, Some(id))?;
                        Name { arguments: name.and_then(|name| name.arguments), ..Name::unqualified(one) }
                    } else if scope.is_some() {
                        return None;
                    } else {
                        is_remembered = true;
                        Name::of(id)
                    }
                }
                [b'M', _] if scope.is_some() => {
                    self.skip(1);
                    is_remembered = true;
                    name?
                }
                _ => {
                    let one = self.unqualified_name(scope)?;
                    let arguments = name.and_then(|name| name.arguments);
                    Name { arguments, ..Name::unqualified(one) }
                }
            });
        }
        name.map(|name| Name { qualifiers, reference, ..name })
    }

    /// `<local-name>`
    fn local_name(&mut self) -> Option<Name> {
        self.expect("Z")?;
        let function = self.encoding(Place::Outer)?;
        self.expect("E")?;
        if self.eat("s") {
            self.discriminator();
            let entity = self.tree.add(Node::Name("string literal"));
            return self.add(Node::Local(function, entity)).map(Name::of);
        }
        let mut default = None;
        if self.eat("d") {
            default = Some(self.number_from_zero()?);
        }
        let mut name = self.deeper(Self::name)?;
        if let Some(number) = default {
            name.id = self.tree.add(Node::DefaultArgument(number + 1, name.id));
        } else {
            self.discriminator();
        }
        name.id = self.tree.add(Node::Local(function, name.id));
        Some(name)
    }

    /// `<discriminator>`, which tells apart what has one name in a function; it is not written.
    fn discriminator(&mut self) {
        match self.peek_two() {
            [b'_', b'_'] if self.peek_behind(2).is_ascii_digit() => {
                self.skip(2);
                self.number();
                self.eat("_");
            }
            [b'_', b'0'..=b'9'] => self.skip(2),
            _ => (),
        }
    }

    /// `<CV-qualifiers>`
    pub fn qualifiers(&mut self) -> Qualifiers {
        Qualifiers { restrict: self.eat("r"), is_volatile: self.eat("V"), is_const: self.eat("K") }
    }

    /// `<ref-qualifier>`
    pub fn reference_qualifier(&mut self) -> Option<Reference> {
        if self.eat("R") {
            return Some(Reference::LValue);
        }
        self.eat("O").then_some(Reference::RValue)
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn what_is_local_stands_behind_its_function() {
        for (name, expected) in [
            ("_ZZ1fiEs", "f(int)::string literal"),
            ("_ZZ1fvE1x_0", "f()::x"),
            ("_ZZ1fvE1x__12_", "f()::x"),
            ("_ZZ1fiEd0_NKUlvE_clEv", "f(int)::{default arg#2}::{lambda()#1}::operator()() const"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn members_have_qualifiers() {
        for (name, expected) in
            [("_ZNKO1A1fEv", "A::f() const &&"), ("_ZNVK1A1fEv", "A::f() const volatile"), ("_ZNH1A1fES_", "A::f(A)")]
        {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn classes_of_the_standard_library_are_substituted() {
        for (name, expected) in [
            ("_ZNSs6appendEv", "std::string::append()"),
            ("_ZNSsC1Ev", "std::string::string()"),
            ("_ZNSo5flushEv", "std::ostream::flush()"),
            ("_ZNSi3getEv", "std::basic_istream<char, std::char_traits<char> >::get()"),
            ("_ZNSd4swapERSd", "std::basic_iostream<char, std::char_traits<char> >::swap(std::basic_iostream<char, std::char_traits<char> >&)"),
            ("_ZNSaIcEC1Ev", "std::allocator<char>::allocator()"),
            ("_Z1fSaIcESbIcE", "f(std::allocator<char>, std::basic_string<char>)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

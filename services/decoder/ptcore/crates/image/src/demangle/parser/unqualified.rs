//! Names without their scope: Itanium C++ ABI, 5.1.2, "General Structure".

use super::Parser;
use crate::demangle::tree::{Id, Node};

/// `<unqualified-name>` with its scope.
pub struct Unqualified {
    pub id: Id,
    pub returns_nothing: bool,
}

impl<'a> Parser<'a> {
    pub fn unqualified_name(&mut self, scope: Option<Id>) -> Option<Unqualified> {
        self.unqualified_name_in(scope, None)
    }

    /// `[<module-name>] [F] [L] <unqualified-name> <abi-tags>`
    pub fn unqualified_name_in(&mut self, scope: Option<Id>, module: Option<Id>) -> Option<Unqualified> {
        let mut module = module;
        while self.peek() == b'W' {
            module = Some(self.module_part(module)?);
        }
        let is_friend = scope.is_some() && self.eat("F");
        self.eat("L");
        let mut returns_nothing = false;
        let mut id = match self.peek_two() {
            [b'0'..=b'9', _] => self.source_name()?,
            [b'U', b't'] => self.unnamed_type()?,
            [b'U', b'l'] => self.lambda()?,
            [b'D', b'C'] => {
                self.skip(2);
                let names = self.until_end(Self::source_name)?;
                self.tree.add(Node::Binding(names))
            }
            [b'C', _] | [b'D', b'0'..=b'9'] => {
                returns_nothing = true;
                self.structor(scope?)?
            }
            [b'c', b'v'] => {
                returns_nothing = true;
                self.conversion()?
            }
            _ => self.operator_name()?,
        };
        if let Some(module) = module {
            id = self.tree.add(Node::InModule(id, module));
        }
        while self.eat("B") {
            let tag = self.identifier()?;
            id = self.tree.add(Node::Tagged(id, tag));
        }
        if is_friend {
            id = self.tree.add(Node::Behind(id, "[friend]"));
        }
        if let Some(scope) = scope {
            id = self.tree.add(Node::Nested(scope, id));
        }
        Some(Unqualified { id, returns_nothing })
    }

    /// `<source-name>`
    pub fn source_name(&mut self) -> Option<Id> {
        let name = self.identifier()?;
        let mut after = name.strip_prefix("_GLOBAL_").unwrap_or("").bytes();
        let anonymous = matches!((after.next(), after.next()), (Some(b'_' | b'.' | b'$'), Some(b'N')));
        self.add(Node::Name(if anonymous { "(anonymous namespace)" } else { name }))
    }

    pub fn identifier(&mut self) -> Option<&'a str> {
        let length = self.number().filter(|&length| length > 0)?;
        self.take(usize::try_from(length).ok()?)
    }

    /// `<ctor-dtor-name>`
    fn structor(&mut self, class: Id) -> Option<Id> {
        if self.eat("D") {
            self.skip(1);
            return self.add(Node::Destructor(class));
        }
        self.expect("C")?;
        let inherited = self.eat("I");
        if !matches!(self.peek(), b'1'..=b'9') {
            return None;
        }
        self.skip(1);
        let mut named = class;
        if inherited {
            named = self.type_()?;
        }
        self.add(Node::Constructor(named))
    }

    /// `<module-name>`
    pub fn module_name(&mut self) -> Option<Id> {
        let mut module = None;
        while self.peek() == b'W' {
            module = Some(self.module_part(module)?);
        }
        match module {
            Some(module) => Some(module),
            None => self.substitution(),
        }
    }

    fn module_part(&mut self, around: Option<Id>) -> Option<Id> {
        self.expect("W")?;
        let is_partition = self.eat("P");
        let name = self.source_name()?;
        let module = self.tree.add(Node::Module(around, is_partition, name));
        Some(self.remember(module))
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    // From https://github.com/KDE/elf-dissector, autotests/demanglertest.cpp: binutils 2.40 and 2.41.
    #[test]
    fn names_are_in_modules_or_of_friends() {
        for (name, expected) in [
            ("_ZN5Outer5InnerW3FOO2FnERNS0_1XE", "Outer::Inner::Fn@FOO(Outer::Inner::X&)"),
            ("_ZN5OuterW3FOO5Inner2FnERNS1_1XE", "Outer::Inner@FOO::Fn(Outer::Inner@FOO::X&)"),
            ("_ZN4Quux4TotoW3FooW3Bar3BazEPNS0_S2_5PlughE", "Quux::Toto::Baz@Foo.Bar(Quux::Toto::Plugh@Foo.Bar*)"),
            ("_ZNStW3STD9allocatorIiE1MEPi", "std::allocator@STD<int>::M(int*)"),
            ("_ZN3NMSW3MOD3FooB3ABIEv", "NMS::Foo@MOD[abi:ABI]()"),
            ("_ZGIW3FooWP3BarW3Baz", "initializer for module Foo:Bar.Baz"),
            ("_ZN1SILi1EEF3barIiEEiR4Base", "S<1>::bar[friend]<int>(Base&)"),
            ("_ZNStDC1aEE", "std::[a]"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn names_have_tags_and_no_linkage() {
        for (name, expected) in [
            ("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f()"),
            ("_ZL1fv", "f()"),
            ("_ZN1AL1fEv", "A::f()"),
            ("_Z1fB3barv", "f[abi:bar]()"),
            ("_ZN1AB3barB3fooC1Ev", "A[abi:bar][abi:foo]::A()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

//! Names that depend on a template: Itanium C++ ABI, 5.1.6, `<unresolved-name>`.

use super::{Parser, Scopes};
use crate::demangle::tree::{Id, Node};

impl Parser<'_> {
    /// `<unresolved-name>` behind its `gs`.
    pub fn unresolved_name(&mut self) -> Option<Id> {
        if !self.eat("sr") {
            return self.base_name(None);
        }
        let is_nested = self.peek() == b'N';
        if !self.may_be_names(is_nested) {
            self.scopes = Scopes::Types;
        }
        if self.scopes == Scopes::Types {
            let scope = self.type_()?;
            return self.base_name(Some(scope));
        }
        if self.peek().is_ascii_digit() {
            let first = self.level()?;
            return self.levels(first);
        }
        self.eat("N");
        let scope = self.type_()?;
        if is_nested {
            return self.levels(scope);
        }
        self.base_name(Some(scope))
    }

    /// Whether a scope may be names: it begins with one, or with a type that depends on the template. GCC's are types.
    fn may_be_names(&self, is_nested: bool) -> bool {
        let first = usize::from(is_nested);
        match [self.peek_behind(first), self.peek_behind(first + 1)] {
            [b'0'..=b'9', _] => !is_nested,
            [b'T', _] | [b'D', b't' | b'T'] => true,
            [b'S', b'0'..=b'9' | b'A'..=b'Z' | b'_'] => {
                let substituted = self.substituted_behind(first + 1);
                substituted.is_some_and(|id| matches!(self.tree.node(id), Node::Parameter(..) | Node::Decltype(_)))
            }
            _ => false,
        }
    }

    /// `<unresolved-qualifier-level>+ E <base-unresolved-name>`
    fn levels(&mut self, first: Id) -> Option<Id> {
        let mut scope = first;
        while !self.eat("E") {
            let level = self.level()?;
            scope = self.tree.add(Node::Nested(scope, level));
        }
        self.base_name(Some(scope))
    }

    /// `<simple-id>`
    fn level(&mut self) -> Option<Id> {
        let name = self.source_name()?;
        self.maybe_template(name)
    }

    /// `<base-unresolved-name>`
    fn base_name(&mut self, scope: Option<Id>) -> Option<Id> {
        let mut name = match self.peek_two() {
            [b'd', b'n'] => self.destructor()?,
            [b'0'..=b'9', _] => self.tagged_name()?,
            _ => {
                self.eat("on");
                if self.peek_two() == *b"cv" {
                    self.conversion()?
                } else {
                    self.operator_name()?
                }
            }
        };
        if let Some(scope) = scope {
            name = self.tree.add(Node::Nested(scope, name));
        }
        self.maybe_template(name)
    }

    fn destructor(&mut self) -> Option<Id> {
        self.expect("dn")?;
        let class = match self.peek() {
            b'0'..=b'9' => self.level()?,
            _ => self.type_()?,
        };
        self.add(Node::Before("~", class))
    }

    fn tagged_name(&mut self) -> Option<Id> {
        let mut name = self.source_name()?;
        while self.eat("B") {
            let tag = self.identifier()?;
            name = self.tree.add(Node::Tagged(name, tag));
        }
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn scopes_are_names_for_clang_and_types_for_gcc() {
        for (name, expected) in [
            // By Clang.
            ("_Z2f1IiEN2enIXsr3FooIT_EE5valueEP3FooIS1_EE4typeES1_S4_", "f1<int>(int, Foo<int>*)"),
            ("_Z2f4IiEN2enIXsr1n3BarIT_E1XE5valueEPN1n3BarIS1_EEE4typeES1_S5_", "f4<int>(int, n::Bar<int>*)"),
            (
                "_Z2f6I3FooIiEEN2enIXsrNT_2InIS3_EE5valueEPN1n3BarIS3_EEE4typeES3_S7_",
                "f6<Foo<int> >(Foo<int>, n::Bar<Foo<int> >*)",
            ),
            // By GCC.
            ("_Z2f1IiEN2enIXsr3FooIT_E5valueEPS3_E4typeES2_S4_", "f1<int>(int, Foo<int>*)"),
            ("_Z2f2IiEN2enIXsrN1n3BarIT_EE5valueEPS4_E4typeES3_S5_", "f2<int>(int, n::Bar<int>*)"),
            ("_Z2f3IiEN2enIXsrN3FooIT_E2InIS2_EE5valueEPS3_E4typeES2_S6_", "f3<int>(int, Foo<int>*)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn names_may_be_operators_destructors_or_global() {
        for (name, expected) in [
            ("_Z1fIXonplEEvv", "f<operator+>()"),
            ("_Z1fIXonplIiEEEvv", "f<operator+<int> >()"),
            ("_Z1fIXgs1xEEvv", "f<::x>()"),
            ("_Z1fIXsr1AE1xEEvv", "f<A::x>()"),
            ("_Z1fIXsr1AE1xIiEEEvv", "f<A::x<int> >()"),
            ("_Z1fIXdt1adn1AEEvv", "f<a.~A>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

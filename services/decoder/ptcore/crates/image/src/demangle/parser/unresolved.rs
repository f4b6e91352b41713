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
        let of_substitution = |one: [u8; 2]| one[0] == b'S' && one[1] != b't';
        let behind = [self.peek_behind(usize::from(is_nested)), self.peek_behind(usize::from(is_nested) + 1)];
        let is_type = matches!(behind[0], b'T' | b'D') || of_substitution(behind);
        if self.scopes == Scopes::Types || !(is_type || (behind[0].is_ascii_digit() && !is_nested)) {
            let scope = self.type_()?;
            return self.base_name(Some(scope));
        }
        if !is_type {
            let first = self.level()?;
            return self.levels(first);
        }
        if is_nested {
            self.skip(1);
        }
        let around = std::mem::take(&mut self.in_conversion);
        let first = self.type_();
        self.in_conversion = around;
        if is_nested {
            return self.levels(first?);
        }
        self.base_name(Some(first?))
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

//! What objects begin with: Itanium C++ ABI, 5.1.6, "Expressions".

use super::Parser;
use crate::demangle::tree::{Id, Node};

impl Parser<'_> {
    pub fn braced_of_type(&mut self) -> Option<Id> {
        let of = self.type_()?;
        self.braced(Some(of))
    }

    pub fn braced(&mut self, of: Option<Id>) -> Option<Id> {
        let items = self.until_end(Self::expression)?;
        self.add(Node::Braced(of, items))
    }

    /// `di <field> <braced-expression>`
    pub fn field(&mut self) -> Option<Id> {
        let field = self.source_name()?;
        let value = self.expression()?;
        self.add(Node::Field(field, value))
    }

    /// `dx <index> <braced-expression>`
    pub fn element(&mut self) -> Option<Id> {
        let index = self.expression()?;
        let value = self.expression()?;
        self.add(Node::Element(index, None, value))
    }

    /// `dX <first> <last> <braced-expression>`
    pub fn elements(&mut self) -> Option<Id> {
        let first = self.expression()?;
        let last = self.expression()?;
        let value = self.expression()?;
        self.add(Node::Element(first, Some(last), value))
    }

    /// `nw <expression>* _ <type> E` or with `<initializer>`
    pub fn new_expression(&mut self) -> Option<Id> {
        let mut placement = Vec::new();
        while !self.eat("_") {
            placement.push(self.expression()?);
        }
        let placement = self.tree.list(&placement);
        let of = self.type_()?;
        let initial = if self.eat("pi") {
            let arguments = self.until_end(Self::expression)?;
            Some(self.tree.add(Node::Arguments(arguments)))
        } else if self.peek_two() == *b"il" {
            self.skip(2);
            Some(self.braced(None)?)
        } else {
            self.expect("E")?;
            None
        };
        self.add(Node::New { placement, of, initial })
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn objects_begin_with_what_stands_in_braces() {
        for (name, expected) in [
            ("_Z1fIXtl1ALi1ELi2EEEEvv", "f<A{1, 2}>()"),
            ("_Z1fIXtl1Adi1xLi1EdX1yLi1ELi2ELi3EEEEvv", "f<A{.x=(1), [y ... 1]=(2), 3}>()"),
            ("_Z1fIXilLi1EEEEvv", "f<{1}>()"),
            ("_Z1fIXnw_iEEEvv", "f<new int>()"),
            ("_Z1fIXgsnwLi0E_ipiLi1EEEEvv", "f<::new (0) int(1)>()"),
            ("_ZTAXtl1ALi1EEE", "template parameter object for A{1}"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

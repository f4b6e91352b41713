//! Writes literals: Itanium C++ ABI, 5.1.6.1, "Expression literals".

use super::Printer;
use crate::demangle::tree::{Id, Node};

impl Printer<'_, '_> {
    /// A number has the suffix of its type where C++ has one, others stand behind their type.
    pub fn literal(&mut self, of: Id, value: &str) -> Option<()> {
        let (sign, digits) = match value.strip_prefix('n') {
            Some(digits) => ("-", digits),
            None => ("", value),
        };
        let suffix = match (self.tree.node(of), value) {
            (Node::Name("decltype(nullptr)"), "") => return self.print(of),
            (Node::Name("bool"), "0") => return self.write("false"),
            (Node::Name("bool"), "1") => return self.write("true"),
            (Node::Name("int"), _) => "",
            (Node::Name("unsigned int"), _) => "u",
            (Node::Name("long"), _) => "l",
            (Node::Name("unsigned long"), _) => "ul",
            (Node::Name("long long"), _) => "ll",
            (Node::Name("unsigned long long"), _) => "ull",
            (Node::Name("float" | "double" | "long double" | "__float128"), _) => {
                self.write("(")?;
                self.print(of)?;
                self.write(")")?;
                self.write(sign)?;
                self.write("[")?;
                self.write(digits)?;
                return self.write("]");
            }
            _ => {
                self.write("(")?;
                self.print(of)?;
                self.write(")")?;
                ""
            }
        };
        self.write(sign)?;
        self.write(digits)?;
        self.write(suffix)
    }
}

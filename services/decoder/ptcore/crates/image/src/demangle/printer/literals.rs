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

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn numbers_have_the_suffix_of_their_type() {
        let all = "_Z1fILi5ELin5ELj5ELl5ELm5ELx5ELy5EEvv";
        assert_eq!(demangle(all), "f<5, -5, 5u, 5l, 5ul, 5ll, 5ull>()");
    }

    #[test]
    fn others_stand_behind_their_type() {
        for (name, expected) in [
            ("_Z1fILb0ELb1ELb2EEvv", "f<false, true, (bool)2>()"),
            ("_Z1fILc97ELs5ELn5ELa5EEvv", "f<(char)97, (short)5, (__int128)5, (signed char)5>()"),
            ("_Z1fILf3f800000ELd3ff0000000000000EEvv", "f<(float)[3f800000], (double)[3ff0000000000000]>()"),
            ("_Z1fILDnEEvv", "f<decltype(nullptr)>()"),
            ("_Z1fILDn0EEvv", "f<(decltype(nullptr))0>()"),
            ("_Z1fIL1E3EEvv", "f<(E)3>()"),
            ("_Z1fILPv0EEvv", "f<(void*)0>()"),
            ("_Z1fIL_Z1gEEvv", "f<g>()"),
            ("_Z1fILN1n1EE3EEvv", "f<(n::E)3>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

//! What constraints ask for: Itanium C++ ABI, 5.1.6, "Expressions".

use super::Parser;
use crate::demangle::tree::{Id, List, Node};

impl Parser<'_> {
    /// `rQ <type>+ _ <requirement>+ E`
    pub fn requires_of(&mut self) -> Option<Id> {
        let mut parameters = Vec::new();
        while !self.eat("_") {
            parameters.push(self.type_()?);
        }
        let parameters = self.tree.list(&parameters);
        self.requires(parameters)
    }

    pub fn requires(&mut self, parameters: List) -> Option<Id> {
        let requirements = self.until_end(Self::requirement)?;
        self.add(Node::Requires { parameters, requirements })
    }

    /// `<requirement>`
    fn requirement(&mut self) -> Option<Id> {
        match self.take(1)? {
            "X" => {
                let of = self.expression()?;
                let noexcept = self.eat("N");
                let constraint = if self.eat("R") { Some(self.type_name()?) } else { None };
                self.add(Node::Requirement { noexcept, of, constraint })
            }
            "T" => {
                let of = self.type_()?;
                self.add(Node::Special("typename ", of))
            }
            "Q" => {
                let of = self.expression()?;
                self.add(Node::Special("requires ", of))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    // From https://github.com/KDE/elf-dissector, autotests/demanglertest.cpp: binutils 2.41.
    #[test]
    fn constraints_stand_behind_what_they_are_of() {
        for (name, expected) in
            [("_Z1fIiQ1CIT_EEvv", "f<int> requires C<int>()"), ("_Z1fIiEvvQ1CIT_E", "f<int>() requires C<int>")]
        {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn constraints_are_of_the_templates_around_too() {
        for (name, expected) in [
            ("_ZN1AIiE1fIcEEvvQ1CIT_TL0__E", "A<int>::f<char>() requires C<int, char>"),
            ("_ZN1AIiE1fEvQ1CIT_E", "A<int>::f() requires C<int>"),
            ("_ZZ1fIiEvvENK1AIcE1gIdEEvvQ1CIT_TL0__E", "f<int>()::A<char>::g<double>() const requires C<char, double>"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn requirements_are_of_expressions_types_and_constraints() {
        for (name, expected) in [
            ("_Z1fIiEvvQrqXcl1gEE", "f<int>() requires requires { {g()}; }"),
            ("_Z1fIiEvvQrQT__XplfL0p_fL0p_NR1CTNT_1tEQ1DIT_EE", "f<int>() requires requires (int) { {{parm#1}+{parm#1}} noexcept -> C; typename int::t; requires D<int>; }"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

//! Types without a name: Itanium C++ ABI, 5.1.8, "Unnamed types and closures".

use super::Parser;
use crate::demangle::tree::{Declared, Id, Node};

impl Parser<'_> {
    /// `<unnamed-type-name>`
    pub fn unnamed_type(&mut self) -> Option<Id> {
        self.expect("Ut")?;
        let number = self.number_from_zero()?;
        self.add(Node::Unnamed(number.checked_add(1)?))
    }

    /// `<closure-type-name>`
    pub fn lambda(&mut self) -> Option<Id> {
        self.expect("Ul")?;
        let around = std::mem::take(&mut self.in_conversion);
        let lambda = self.deeper(Self::signature);
        self.in_conversion = around;
        lambda
    }

    fn signature(&mut self) -> Option<Id> {
        let mut head = Vec::new();
        while self.is_declaration() {
            let number = head.len() as u64;
            head.push(self.declaration(number)?);
        }
        let mut requires = self.constraint()?;
        let mut parameters = Vec::new();
        if !self.eat("v") {
            while parameters.is_empty() || !matches!(self.peek(), b'E' | b'Q') {
                parameters.push(self.type_()?);
            }
        }
        requires = self.constraint()?.or(requires);
        self.expect("E")?;
        let number = self.number_from_zero()?.checked_add(1)?;
        let head = self.tree.list(&head);
        let parameters = self.tree.list(&parameters);
        self.add(Node::Lambda { head, parameters, requires, number })
    }

    pub fn is_declaration(&self) -> bool {
        matches!(self.peek_two(), [b'T', b'y' | b'n' | b't' | b'p' | b'k'])
    }

    /// `<template-param-decl>`, the `number`th between `<` and `>`.
    pub fn declaration(&mut self, number: u64) -> Option<Id> {
        self.deeper(|parser| {
            if !parser.is_declaration() {
                return None;
            }
            let kind = parser.take(2)?;
            match kind {
                "Ty" => parser.add(Node::Declared(Declared::Type, number)),
                "Tn" => {
                    let of = parser.type_()?;
                    parser.add(Node::Declared(Declared::Value(of), number))
                }
                "Tk" => {
                    let concept = parser.type_name()?;
                    parser.add(Node::DeclaredConstraint(concept, number))
                }
                "Tp" => {
                    let one = parser.declaration(number)?;
                    parser.add(Node::DeclaredPack(one))
                }
                _ => {
                    let mut inner = Vec::new();
                    while !parser.eat("E") {
                        if parser.constraint()?.is_some() {
                            continue;
                        }
                        let one = parser.declaration(inner.len() as u64)?;
                        inner.push(one);
                    }
                    let inner = parser.tree.list(&inner);
                    parser.add(Node::Declared(Declared::Template(inner), number))
                }
            }
        })
    }

    /// `<template-param>`: Itanium C++ ABI, 5.1.5.9, "Template parameters".
    pub fn template_parameter(&mut self) -> Option<Id> {
        self.expect("T")?;
        // The level 0 is not written.
        let level = if self.eat("L") {
            let above = usize::try_from(self.number()?).ok()?;
            self.expect("_")?;
            Some(above.checked_add(1)?)
        } else {
            None
        };
        let index = usize::try_from(self.number_from_zero()?).ok()?;
        self.add(Node::Parameter(level, index))
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    // From https://github.com/KDE/elf-dissector, autotests/demanglertest.cpp: binutils 2.41.
    #[test]
    fn lambdas_have_their_own_parameters() {
        for (name, expected) in [
            ("_ZZN1XIfLj0EE2FnEvENKUlTyfT_E_clIiEEDafS1_", "X<float, 0u>::Fn()::{lambda<typename $T0>(float, $T0)#1}::operator()<int>(float, int) const"),
            ("_ZNK6l_var2MUlTpTniDpRAT__iE_clIJLi2ELi2EEEEDaS2_", "l_var2::{lambda<int... $N0>((int (&) [$N0])...)#1}::operator()<2, 2>(int (&) [2], int (&) [2]) const"),
            ("_ZNK6l_var3MUlTtTpTniETpTniRT_IJXspT0_EEEE_clI1XJLi1ELi2ELi3EEEEDaS2_", "l_var3::{lambda<template<int...> class $TT0, int... $N1>($TT0<($N1)...>&)#1}::operator()<X, 1, 2, 3>(X<1, 2, 3>&) const"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn a_parameter_is_that_of_the_function_where_it_is_substituted() {
        for (name, expected) in [
            ("_Z1fIZ1gvEUlT_E_EvS0_", "f<g()::{lambda(auto:1)#1}>(g()::{lambda(auto:1)#1})"),
            (
                "_ZZ1gvENKUlT_T0_E_clIiiEEvS_S0_",
                "g()::{lambda(auto:1, auto:2)#1}::operator()<int, int>(int, int) const",
            ),
            ("_Z1gIiZ1fIcEvT_EUlvE_EvT_S1_", "g<int, f<char>(char)::{lambda()#1}>(int, int)"),
            (
                "_ZN1C4withIZN1M4withIRN1L1CEEEDcOT_EUlP1XE_EEDcS6_",
                "C::with<M::with<L::C&>(L::C&)::{lambda(X*)#1}>(M::with<L::C&>(L::C&)::{lambda(X*)#1})",
            ),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_has_no_name_is_numbered() {
        for (name, expected) in [
            ("_ZN1AUt_1fEv", "A::{unnamed type#1}::f()"),
            ("_ZN1AUt0_D1Ev", "A::{unnamed type#2}::~A()"),
            ("_ZZ1fvENUlvE_D1Ev", "f()::{lambda()#1}::~{lambda()#1}()"),
            ("_ZZ1fvENUt_D1Ev", "f()::{unnamed type#1}::~{unnamed type#1}()"),
            ("_ZN1AUlvE2_D1Ev", "A::{lambda()#4}::~{lambda()#4}()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}

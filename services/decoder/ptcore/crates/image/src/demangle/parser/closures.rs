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

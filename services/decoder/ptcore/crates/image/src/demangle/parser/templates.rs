//! Arguments of templates and substitutions: Itanium C++ ABI, 5.1.5.8, "Template arguments", and 5.1.10, "Compression".

use super::encodings::Place;
use super::Parser;
use crate::demangle::tree::{Id, List, Node};

impl Parser<'_> {
    /// A name with its `<template-args>`, and these.
    pub fn template(&mut self, name: Id) -> Option<(Id, List)> {
        self.expect("I")?;
        let conversion_around = std::mem::take(&mut self.in_conversion);
        let mut items = Vec::new();
        let mut requires = None;
        while requires.is_none() && self.peek() != b'E' {
            requires = self.constraint()?;
            if requires.is_none() {
                items.push(self.template_argument()?);
            }
        }
        self.expect("E")?;
        self.in_conversion = conversion_around;
        let list = self.tree.list(&items);
        let mut id = self.tree.add(Node::Template(name, list));
        if let Some(requires) = requires {
            id = self.tree.add(Node::Constrained(id, requires));
        }
        Some((id, list))
    }

    /// The name with its `<template-args>`, where there are some.
    pub fn maybe_template(&mut self, name: Id) -> Option<Id> {
        if self.peek() != b'I' {
            return Some(name);
        }
        Some(self.template(name)?.0)
    }

    /// `<template-arg>`
    pub fn template_argument(&mut self) -> Option<Id> {
        self.deeper(|parser| match parser.peek() {
            b'X' => {
                parser.skip(1);
                let value = parser.expression()?;
                parser.expect("E")?;
                Some(value)
            }
            b'L' => parser.primary(),
            // GCC once wrote `I` for packs.
            b'J' | b'I' => {
                parser.skip(1);
                let items = parser.until_end(Self::template_argument)?;
                parser.add(Node::Pack(items))
            }
            b'T' if parser.is_declaration() => {
                parser.declaration(0)?;
                parser.template_argument()
            }
            _ => parser.type_(),
        })
    }

    /// `<expr-primary>`
    pub fn primary(&mut self) -> Option<Id> {
        self.expect("L")?;
        if self.eat("_Z") || self.eat("Z") {
            let entity = self.encoding(Place::Inner)?;
            self.expect("E")?;
            return Some(entity);
        }
        let of = self.type_()?;
        let value = self.take_while(|one| one != b'E');
        self.expect("E")?;
        self.add(Node::Literal(of, value))
    }

    /// What a `<seq-id>` so many bytes further on stands for.
    pub fn substituted_behind(&self, bytes: usize) -> Option<Id> {
        let digits = self.rest().get(bytes..)?.split('_').next()?;
        let index = if digits.is_empty() { 0 } else { usize::from_str_radix(digits, 36).ok()?.checked_add(1)? };
        self.substitutions.get(index).copied()
    }

    /// `<substitution>` but for `St`
    pub fn substitution(&mut self) -> Option<Id> {
        self.expect("S")?;
        if !self.peek().is_ascii_lowercase() {
            let index = self.sequence()?;
            return self.substitutions.get(index).copied();
        }
        const INPUT: &str = "std::basic_istream<char, std::char_traits<char> >";
        const BOTH: &str = "std::basic_iostream<char, std::char_traits<char> >";
        let class = match self.take(1)? {
            "a" => Node::Standard("std::allocator", "allocator"),
            "b" => Node::Standard("std::basic_string", "basic_string"),
            "s" => Node::Standard("std::string", "string"),
            "i" => Node::Standard(INPUT, "basic_istream"),
            "o" => Node::Standard("std::ostream", "ostream"),
            "d" => Node::Standard(BOTH, "basic_iostream"),
            _ => return None,
        };
        let mut id = self.tree.add(class);
        while self.eat("B") {
            let tag = self.identifier()?;
            id = self.tree.add(Node::Tagged(id, tag));
            self.remember(id);
        }
        Some(id)
    }
}

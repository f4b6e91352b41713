//! Types: Itanium C++ ABI, 5.1.5, "Type encodings".

use super::builtins::{builtin, extended_builtin};
use super::Parser;
use crate::demangle::tree::{Id, Node, Reference, Signature};

impl Parser<'_> {
    /// `<type>`
    pub fn type_(&mut self) -> Option<Id> {
        self.deeper(Self::bare_type)
    }

    fn bare_type(&mut self) -> Option<Id> {
        if let Some(name) = builtin(self.peek()) {
            self.skip(1);
            return self.add(Node::Name(name));
        }
        let id = match self.peek_two() {
            [b'r' | b'V' | b'K', _] => self.qualified_type()?,
            [b'U', b'0'..=b'9'] => self.qualified_type()?,
            [b'u', _] => self.vendor_type()?,
            [b'P', _] => self.with_inner(Node::Pointer)?,
            [b'R', _] => self.with_inner(|of| Node::Reference(of, Reference::LValue))?,
            [b'O', _] => self.with_inner(|of| Node::Reference(of, Reference::RValue))?,
            [b'C', _] => self.with_inner(|of| Node::Behind(of, " _Complex"))?,
            [b'G', _] => self.with_inner(|of| Node::Behind(of, " _Imaginary"))?,
            [b'F', _] => self.function_type(Signature::default())?,
            [b'A', _] => self.array_type()?,
            [b'M', _] => self.pointer_to_member()?,
            [b'T', b's' | b'u' | b'e'] => self.elaborated_type()?,
            [b'T', _] => return self.parameter_type(),
            [b'S', b't'] => self.name()?.id,
            [b'S', _] => return self.substituted_type(),
            [b'D', b'C'] => self.name()?.id,
            [b'D', _] => return self.extended_type(),
            _ => self.name()?.id,
        };
        Some(self.remember(id))
    }

    fn with_inner(&mut self, node: impl FnOnce(Id) -> Node<'static>) -> Option<Id> {
        self.skip(1);
        let of = self.type_()?;
        self.add(node(of))
    }

    /// `<qualified-type>`: all qualifiers together are one for substitutions.
    fn qualified_type(&mut self) -> Option<Id> {
        if self.peek() == b'U' && self.peek_behind(1).is_ascii_digit() {
            self.skip(1);
            let name = self.source_name()?;
            let qualifier = self.maybe_template(name)?;
            let of = self.deeper(Self::qualified_type)?;
            return self.add(Node::VendorQualified(of, qualifier));
        }
        let qualifiers = self.qualifiers();
        if self.starts_function() {
            return self.function_type(Signature { qualifiers, ..Signature::default() });
        }
        let of = self.type_()?;
        if !qualifiers.any() {
            return Some(of);
        }
        self.add(Node::Qualified(of, qualifiers))
    }

    /// `<array-type>`
    fn array_type(&mut self) -> Option<Id> {
        self.expect("A")?;
        let dimension = match self.peek() {
            b'_' => None,
            b'0'..=b'9' => Some(self.digits()?),
            _ => Some(self.expression()?),
        };
        self.expect("_")?;
        let of = self.type_()?;
        self.add(Node::Array(dimension, of))
    }

    fn digits(&mut self) -> Option<Id> {
        let digits = self.take_while(|one| one.is_ascii_digit());
        self.add(Node::Name(digits))
    }

    /// `<pointer-to-member-type>`
    fn pointer_to_member(&mut self) -> Option<Id> {
        self.expect("M")?;
        let class = self.type_()?;
        let member = self.type_()?;
        self.add(Node::PointerToMember(class, member))
    }

    fn elaborated_type(&mut self) -> Option<Id> {
        let word = match self.take(2)? {
            "Ts" => "struct ",
            "Tu" => "union ",
            _ => "enum ",
        };
        let name = self.name()?.id;
        self.add(Node::Before(word, name))
    }

    /// `<template-param>` or `<template-template-param> <template-args>`
    fn parameter_type(&mut self) -> Option<Id> {
        let parameter = self.template_parameter()?;
        self.remember(parameter);
        if self.peek() != b'I' || self.in_conversion {
            return Some(parameter);
        }
        let (id, _) = self.template(parameter)?;
        Some(self.remember(id))
    }

    /// What is only substituted is not remembered anew.
    fn substituted_type(&mut self) -> Option<Id> {
        let id = self.substitution()?;
        let of = self.tree.node(id);
        if matches!(of, Node::Module(..)) {
            let name = self.name_in(id)?.id;
            return Some(self.remember(name));
        }
        let is_whole = self.in_conversion && matches!(of, Node::Parameter(..) | Node::Template(..));
        if self.peek() != b'I' || is_whole {
            return Some(id);
        }
        let (id, _) = self.template(id)?;
        Some(self.remember(id))
    }

    /// Those with two letters, the first of which is a `D`.
    fn extended_type(&mut self) -> Option<Id> {
        if self.starts_function() {
            let id = self.function_type(Signature::default())?;
            return Some(self.remember(id));
        }
        if let Some(name) = extended_builtin(self.peek_behind(1)) {
            self.skip(2);
            return self.add(Node::Name(name));
        }
        if let [b'D', b't' | b'T'] = self.peek_two() {
            let id = self.decltype()?;
            return Some(self.remember(id));
        }
        let id = match self.take(2)? {
            "DF" => return self.float_type(),
            "DB" => return self.bit_int(true),
            "DU" => return self.bit_int(false),
            "Dk" => {
                let concept = self.type_name()?;
                return self.add(Node::ConstrainedAuto(concept, " auto"));
            }
            "DK" => {
                let concept = self.type_name()?;
                return self.add(Node::ConstrainedAuto(concept, " decltype(auto)"));
            }
            "Dp" => {
                let pattern = self.type_()?;
                self.tree.add(Node::Expansion(pattern))
            }
            "Dv" => self.vector_type()?,
            _ => return None,
        };
        Some(self.remember(id))
    }

    /// `DF16_`, `DF32x`, `DF16b`
    fn float_type(&mut self) -> Option<Id> {
        let bits = self.number()?;
        match self.peek() {
            b'b' if bits == 16 => {
                self.skip(1);
                self.add(Node::Name("std::bfloat16_t"))
            }
            b'x' => {
                self.skip(1);
                self.add(Node::FloatN(bits, "x"))
            }
            _ => {
                self.expect("_")?;
                self.add(Node::FloatN(bits, ""))
            }
        }
    }

    fn bit_int(&mut self, is_signed: bool) -> Option<Id> {
        let bits = match self.peek() {
            b'0'..=b'9' => self.digits()?,
            _ => self.expression()?,
        };
        self.expect("_")?;
        self.add(Node::BitInt(bits, is_signed))
    }

    fn vector_type(&mut self) -> Option<Id> {
        let dimension = match self.peek() {
            b'0'..=b'9' => self.digits()?,
            b'_' => {
                self.skip(1);
                self.expression()?
            }
            _ => self.expression()?,
        };
        self.expect("_")?;
        let of = self.type_()?;
        self.add(Node::Vector(dimension, of))
    }

    /// `Dt <expression> E` or `DT <expression> E`
    pub fn decltype(&mut self) -> Option<Id> {
        self.take(2)?;
        let of = self.expression()?;
        self.expect("E")?;
        self.add(Node::Decltype(of))
    }

    /// `u <source-name> [<template-args>]`
    fn vendor_type(&mut self) -> Option<Id> {
        self.expect("u")?;
        let name = self.source_name()?;
        if self.peek() != b'I' {
            return Some(name);
        }
        let (_, arguments) = self.template(name)?;
        self.add(Node::VendorType(name, arguments))
    }

    /// A `<name>` that stands for a type or a concept.
    pub fn type_name(&mut self) -> Option<Id> {
        Some(self.name()?.id)
    }
}

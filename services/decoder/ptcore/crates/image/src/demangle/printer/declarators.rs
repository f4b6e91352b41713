//! Writes types as C declares them: one half in front of a name, the other half behind it.

use super::Printer;
use crate::demangle::tree::{Exceptions, Id, List, Node, Qualifiers, Signature};

type Half<P> = fn(&mut P, Id) -> Option<()>;

impl Printer<'_, '_> {
    pub fn left(&mut self, id: Id) -> Option<()> {
        self.deeper(|printer| printer.bare_left(id))
    }

    fn bare_left(&mut self, id: Id) -> Option<()> {
        match self.tree.node(id) {
            Node::Pointer(of) => self.pointer_left(of, "*"),
            Node::Reference(of, reference) => {
                let (of, reference) = self.collapsed(of, reference)?;
                self.pointer_left(of, reference.text())
            }
            Node::PointerToMember(class, member) => self.member_left(class, member),
            Node::Qualified(of, qualifiers) => self.qualified_left(of, qualifiers),
            Node::VendorQualified(of, qualifier) => {
                self.left(of)?;
                self.write(" ")?;
                self.print(qualifier)
            }
            Node::Behind(of, word) => {
                self.left(of)?;
                self.write(word)
            }
            Node::Vector(dimension, of) => {
                self.left(of)?;
                self.write(" __vector(")?;
                self.print(dimension)?;
                self.write(")")
            }
            Node::Function(signature) => self.function_left(signature),
            Node::Array(_, of) => self.left(of),
            Node::Parameter(level, index) => self.parameter(id, level, index, Self::left),
            node => self.whole(id, node),
        }
    }

    pub fn right(&mut self, id: Id) -> Option<()> {
        match self.tree.node(id) {
            Node::Pointer(_)
            | Node::Reference(..)
            | Node::PointerToMember(..)
            | Node::Qualified(..)
            | Node::VendorQualified(..)
            | Node::Behind(..)
            | Node::Vector(..)
            | Node::Function(_)
            | Node::Array(..)
            | Node::Parameter(..) => self.deeper(|printer| printer.bare_right(id)),
            _ => Some(()),
        }
    }

    fn bare_right(&mut self, id: Id) -> Option<()> {
        match self.tree.node(id) {
            Node::Pointer(of) => self.pointer_right(of),
            Node::Reference(of, reference) => {
                let (of, _) = self.collapsed(of, reference)?;
                self.pointer_right(of)
            }
            Node::PointerToMember(_, member) => self.pointer_right(member),
            Node::Qualified(of, _) | Node::VendorQualified(of, _) | Node::Behind(of, _) | Node::Vector(_, of) => {
                self.right(of)
            }
            Node::Function(signature) => self.function_right(signature),
            Node::Array(dimension, of) => self.array_right(dimension, of),
            Node::Parameter(level, index) if self.lambdas.is_empty() => self.parameter(id, level, index, Self::right),
            _ => Some(()),
        }
    }

    /// One half of what a parameter stands for: nothing for a pack without arguments.
    fn parameter(&mut self, id: Id, level: Option<usize>, index: usize, half: Half<Self>) -> Option<()> {
        if !self.lambdas.is_empty() {
            return self.parameter_of_lambda(level, index);
        }
        if self.pack(id).is_some_and(List::is_empty) {
            return Some(());
        }
        let argument = self.resolved(id)?;
        half(self, argument)
    }

    fn pointer_left(&mut self, of: Id, sign: &str) -> Option<()> {
        self.left(of)?;
        self.open_group(of)?;
        if let Node::Qualified(function, qualifiers) = self.resolved_node(of)? {
            if self.is_function(function)? {
                self.write_qualifiers(qualifiers)?;
            }
        }
        self.write(sign)
    }

    fn pointer_right(&mut self, of: Id) -> Option<()> {
        if self.is_grouped(of)? {
            self.write(")")?;
        }
        self.right(of)
    }

    fn member_left(&mut self, class: Id, member: Id) -> Option<()> {
        self.left(member)?;
        if self.is_grouped(member)? {
            self.open_group(member)?;
        } else {
            self.write(" ")?;
        }
        self.print(class)?;
        self.write("::*")
    }

    fn open_group(&mut self, of: Id) -> Option<()> {
        if !self.is_grouped(of)? {
            return Some(());
        }
        let is_array = !self.is_function(of)?;
        let is_apart = self.last() == b' ' || (!is_array && matches!(self.last(), b'(' | b'*'));
        self.write(if is_apart { "(" } else { " (" })
    }

    /// Whether what points to it stands in parentheses.
    fn is_grouped(&mut self, of: Id) -> Option<bool> {
        let of = self.unqualified(of)?;
        Some(matches!(self.tree.node(of), Node::Function(_) | Node::Array(..)))
    }

    fn resolved_node(&mut self, id: Id) -> Option<Node<'_>> {
        let id = self.resolved(id)?;
        Some(self.tree.node(id))
    }

    fn is_function(&mut self, of: Id) -> Option<bool> {
        let of = self.unqualified(of)?;
        Some(matches!(self.tree.node(of), Node::Function(_)))
    }

    fn unqualified(&mut self, of: Id) -> Option<Id> {
        let mut of = self.resolved(of)?;
        while let Node::Qualified(inner, _) = self.tree.node(of) {
            self.step()?;
            of = self.resolved(inner)?;
        }
        Some(of)
    }

    /// Whether a part of it stands behind a name.
    pub fn has_right(&mut self, of: Id) -> Option<bool> {
        let mut of = of;
        loop {
            self.step()?;
            of = self.resolved(of)?;
            of = match self.tree.node(of) {
                Node::Function(_) | Node::Array(..) => return Some(true),
                Node::Pointer(of)
                | Node::Reference(of, _)
                | Node::PointerToMember(_, of)
                | Node::Qualified(of, _)
                | Node::VendorQualified(of, _) => of,
                _ => return Some(false),
            };
        }
    }

    fn qualified_left(&mut self, of: Id, qualifiers: Qualifiers) -> Option<()> {
        // What an argument is already is not said again.
        let mut said = qualifiers;
        let mut inner = Vec::new();
        let mut of = of;
        loop {
            self.step()?;
            of = self.resolved(of)?;
            of = match self.tree.node(of) {
                Node::Qualified(next, more) => {
                    inner.push(more.without(said));
                    said = said.and(more);
                    next
                }
                // What is constant of an array is each of its elements.
                Node::Array(_, element) => element,
                _ => break,
            };
        }
        self.left(of)?;
        if self.is_function(of)? {
            // Those of a function stand where it is pointed to.
            return Some(());
        }
        for one in inner.into_iter().rev() {
            self.write_qualifiers(one)?;
        }
        self.write_qualifiers(qualifiers)
    }

    pub fn write_qualifiers(&mut self, qualifiers: Qualifiers) -> Option<()> {
        for (has, word) in
            [(qualifiers.is_const, " const"), (qualifiers.is_volatile, " volatile"), (qualifiers.restrict, " restrict")]
        {
            if has {
                self.write(word)?;
            }
        }
        Some(())
    }

    fn function_left(&mut self, signature: Signature) -> Option<()> {
        let Some(returns) = signature.returns else { return Some(()) };
        self.left(returns)?;
        if self.has_right(returns)? {
            return Some(());
        }
        self.write(" ")
    }

    fn function_right(&mut self, signature: Signature) -> Option<()> {
        self.print_signature(signature)?;
        match signature.returns {
            Some(returns) => self.right(returns),
            None => Some(()),
        }
    }

    /// The parameters and what stands behind them.
    pub fn print_signature(&mut self, signature: Signature) -> Option<()> {
        self.print_parameters(signature.parameters)?;
        match signature.exceptions {
            None => (),
            Some(Exceptions::Noexcept) => self.write(" noexcept")?,
            Some(Exceptions::NoexceptIf(condition)) => {
                self.write(" noexcept(")?;
                self.print(condition)?;
                self.write(")")?;
            }
            Some(Exceptions::Throws(types)) => {
                self.write(" throw")?;
                self.print_parameters(types)?;
            }
        }
        if signature.transaction_safe {
            self.write(" transaction_safe")?;
        }
        self.write_qualifiers(signature.qualifiers)?;
        if let Some(reference) = signature.reference {
            self.write(" ")?;
            self.write(reference.text())?;
        }
        Some(())
    }

    fn array_right(&mut self, dimension: Option<Id>, of: Id) -> Option<()> {
        self.write(if self.last() == b']' { "[" } else { " [" })?;
        if let Some(dimension) = dimension {
            self.print(dimension)?;
        }
        self.write("]")?;
        self.right(of)
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn pointers_stand_inside_of_functions_and_arrays() {
        for (name, expected) in [
            ("_Z1fPFPFvvEvE", "f(void (*(*)())())"),
            ("_Z1fPA2_A3_i", "f(int (*) [2][3])"),
            ("_Z1fPM1AFvvE", "f(void (A::**)())"),
            ("_Z1fRM1AKFviE", "f(void (A::*&)(int) const)"),
            ("_Z1fPFPA3_ivE", "f(int (*(*)()) [3])"),
            ("_Z1fA3_PFvvE", "f(void (* [3])())"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn functions_say_what_they_throw() {
        for (name, expected) in [
            ("_Z1fM1AKDoFvvRE", "f(void (A::*)() noexcept const &)"),
            ("_Z1fPDoFvvE", "f(void (*)() noexcept)"),
            ("_Z1fPDOLb1EEFvvE", "f(void (*)() noexcept(true))"),
            ("_Z1fPDwiEFvvE", "f(void (*)() throw(int))"),
            ("_Z1fPDxFvvE", "f(void (*)() transaction_safe)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn qualifiers_stand_behind_their_type() {
        for (name, expected) in [
            ("_Z1fPVKc", "f(char const volatile*)"),
            ("_Z1fPrKc", "f(char const restrict*)"),
            ("_Z1fPU3AS1i", "f(int AS1*)"),
            ("_Z1fU3fooIiEi", "f(int foo<int>)"),
            ("_Z1fCfGd", "f(float _Complex, double _Imaginary)"),
            ("_Z1fDv4_fDv8_Kc", "f(float __vector(4), char const __vector(8))"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn references_collapse() {
        for (name, expected) in [
            ("_Z1gIiEvOT_", "g<int>(int&&)"),
            ("_Z1gIRiEvOT_", "g<int&>(int&)"),
            ("_Z1gIOiEvOT_", "g<int&&>(int&&)"),
            ("_Z1gIOiEvRT_", "g<int&&>(int&)"),
            ("_Z1gIRFviEEvOT_", "g<void (&)(int)>(void (&)(int))"),
            ("_Z1gIRA3_iEvOT_", "g<int (&) [3]>(int (&) [3])"),
            ("_Z1gIZNK1A1fEvEUlvE_EvRT_", "g<A::f() const::{lambda()#1}>(A::f() const::{lambda()#1}&)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_an_argument_is_already_is_not_said_again() {
        for (name, expected) in [
            ("_Z1gIKiEvRKT_", "g<int const>(int const&)"),
            ("_Z1gIPKcEvRKT_", "g<char const*>(char const* const&)"),
            ("_Z1gIA3_KcEvRKT_", "g<char const [3]>(char const (&) [3])"),
            ("_Z1gIFivEEvRKT_", "g<int ()>(int ( const&)())"),
            ("_Z1gIPFivEEvRKT_", "g<int (*)()>(int (* const&)())"),
            ("_Z1gIM1AKFvvEEvRT_", "g<void (A::*)() const>(void (A::*&)() const)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
